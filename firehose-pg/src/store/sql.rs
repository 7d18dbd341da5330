//! The store's statements, with the schema's name filled in.
//!
//! Results are cast, so that they have one shape on tables made here and on the gem's, and keep it when columns are
//! widened under a prepared statement.

use firehose_migrations::SchemaName;

/// All statements of a store.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) append_one: String,
    pub(crate) append: String,
    pub(crate) append_waiting: String,
    pub(crate) create: String,
    pub(crate) by_key: String,
    pub(crate) get_many: String,
    pub(crate) read_after: String,
    pub(crate) read_before: String,
    pub(crate) heads: String,
    pub(crate) heads_full: String,
    pub(crate) anchors: String,
    pub(crate) settings: String,
    pub(crate) channel: String,
    pub(crate) trim_candidates: String,
    pub(crate) trim: String,
    pub(crate) trim_due: String,
    pub(crate) trim_counters: String,
    pub(crate) trim_lock: String,
    pub(crate) delete: String,
}

impl Sql {
    pub(crate) fn new(schema: &SchemaName) -> Self {
        let fill = |text: &str| text.replace("{s}", &schema.quoted());
        Self {
            append_one: fill(APPEND_ONE),
            append: fill(&APPEND.replace("{wait}", "SKIP LOCKED")),
            append_waiting: fill(&APPEND.replace("{wait}", "")),
            create: fill(CREATE),
            by_key: fill(BY_KEY),
            get_many: fill(GET_MANY),
            read_after: fill(READ_AFTER),
            read_before: fill(READ_BEFORE),
            heads: fill(HEADS),
            heads_full: fill(HEADS_FULL),
            anchors: fill(ANCHORS),
            settings: fill("SELECT layout, buckets, prefix, gem, cleanup_threshold FROM {s}.firehose_settings"),
            channel: fill("SELECT id FROM {s}.firehose_channels WHERE name = $1"),
            trim_candidates: fill(TRIM_CANDIDATES),
            trim: fill(&format!("{DUE}DELETE FROM {{s}}.firehose_messages m USING due WHERE m.id = due.id")),
            trim_due: fill(&format!("{DUE}SELECT count(*) FROM due")),
            trim_counters: fill(TRIM_COUNTERS),
            trim_lock: TRIM_LOCK.to_owned(),
            delete: fill("DELETE FROM {s}.firehose_channels WHERE name = $1 RETURNING id"),
        }
    }
}

/// $1 stream names, $2 data, $3 keys, in the callers' order. A stream that is held, or that does not exist, is left out
/// of the answer. `bumped` reads the newest version of the row: the lock is held by then, and READ COMMITTED follows
/// the chain of updates. Ids and times are drawn under the lock, in the order of the sort.
const APPEND: &str = "
WITH input AS MATERIALIZED (
  SELECT name, data, key, ord FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS t(name, data, key, ord)
), counts AS MATERIALIZED (
  SELECT name, count(*) AS n, min(ord) AS first FROM input GROUP BY name
), locked AS MATERIALIZED (
  SELECT ch.id, ch.name FROM {s}.firehose_channels ch JOIN counts USING (name)
  ORDER BY ch.name FOR NO KEY UPDATE OF ch {wait}
), bumped AS (
  UPDATE {s}.firehose_channels ch
  SET sequence = ch.sequence + counts.n,
      messages_count = least(ch.messages_count::bigint + counts.n, 2147483647)
  FROM locked JOIN counts USING (name) WHERE ch.id = locked.id
  RETURNING ch.id, ch.name, ch.sequence::bigint AS sequence, counts.n, counts.first
), stored AS (
  INSERT INTO {s}.firehose_messages (channel_id, sequence, data, key, created_at)
  SELECT b.id, b.sequence - b.n + row_number() OVER (PARTITION BY input.name ORDER BY ord), input.data, input.key,
         clock_timestamp() AT TIME ZONE 'utc'
  FROM input JOIN bumped b USING (name) ORDER BY ord
  RETURNING id, channel_id, sequence, created_at
)
SELECT stored.id, stored.channel_id, stored.sequence::bigint, stored.created_at, b.first
FROM stored JOIN bumped b ON b.id = stored.channel_id";

/// [`APPEND`] for one entry: $1 stream name, $2 data, $3 key.
const APPEND_ONE: &str = "
WITH bumped AS (
  UPDATE {s}.firehose_channels ch
  SET sequence = ch.sequence + 1, messages_count = least(ch.messages_count::bigint + 1, 2147483647)
  WHERE ch.id = (SELECT held.id FROM {s}.firehose_channels held WHERE held.name = $1 FOR NO KEY UPDATE SKIP LOCKED)
  RETURNING ch.id, ch.sequence
)
INSERT INTO {s}.firehose_messages (channel_id, sequence, data, key, created_at)
SELECT b.id, b.sequence, $2, $3, clock_timestamp() AT TIME ZONE 'utc' FROM bumped b
RETURNING id, channel_id, sequence::bigint, created_at, 1::bigint";

/// In the order of the names, so that two who create the same ones do not deadlock.
const CREATE: &str = "
INSERT INTO {s}.firehose_channels (name, created_at, updated_at)
SELECT name, clock_timestamp() AT TIME ZONE 'utc', clock_timestamp() AT TIME ZONE 'utc'
FROM unnest($1::text[]) AS t(name) ORDER BY name
ON CONFLICT (name) DO NOTHING";

const BY_KEY: &str = "
SELECT r.ord, m.id, m.channel_id, m.sequence::bigint, m.data, m.created_at
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS r(name, key, ord)
JOIN {s}.firehose_channels ch ON ch.name = r.name
JOIN {s}.firehose_messages m ON m.channel_id = ch.id AND m.key = r.key";

const GET_MANY: &str = "
SELECT m.id, m.channel_id, m.sequence::bigint, m.data, m.created_at, ch.name
FROM {s}.firehose_messages m JOIN {s}.firehose_channels ch ON ch.id = m.channel_id
WHERE m.id = ANY ($1::bigint[])";

/// $1 names, $2 epochs (0: any), $3 sequences, $4 ids (0: by sequence), $5 rows and one more, $6 rows, $7 bytes.
/// What is cut off by bytes is cut off here, so that it never travels; `found` tells that it was there. A position by id
/// is looked for from the newest message backwards, over no more rows than are to be read.
const READ_AFTER: &str = "
SELECT r.ord, m.id, m.channel_id, m.sequence, m.data, m.created_at, m.found
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) WITH ORDINALITY AS r(name, epoch, sequence, id, ord)
JOIN {s}.firehose_channels ch ON ch.name = r.name
CROSS JOIN LATERAL (
  SELECT CASE
    WHEN r.id > 0 THEN coalesce((
      SELECT p.sequence::bigint FROM {s}.firehose_messages p
      WHERE p.channel_id = ch.id AND p.id <= r.id ORDER BY p.sequence DESC LIMIT 1), 0)
    WHEN r.epoch IN (0, ch.id) THEN r.sequence
    ELSE 0 END AS after
) start
CROSS JOIN LATERAL (
  SELECT page.*, row_number() OVER w AS row, sum(octet_length(page.data)) OVER w AS bytes, count(*) OVER () AS found
  FROM (
    SELECT p.id, p.channel_id, p.sequence::bigint AS sequence, p.data, p.created_at FROM {s}.firehose_messages p
    WHERE p.channel_id = ch.id AND p.sequence > start.after ORDER BY p.sequence LIMIT $5
  ) page WINDOW w AS (ORDER BY page.sequence)
) m
WHERE m.row = 1 OR (m.row <= $6 AND m.bytes <= $7)
ORDER BY r.ord, m.sequence";

/// $1 name, $2 epoch (0: any), $3 sequence, $4 id (0: by sequence), $5 rows and one more, $6 rows, $7 bytes. Before a
/// position in another epoch stands nothing.
const READ_BEFORE: &str = "
SELECT m.id, m.channel_id, m.sequence, m.data, m.created_at, m.found
FROM {s}.firehose_channels ch
CROSS JOIN LATERAL (
  SELECT page.*, row_number() OVER w AS row, sum(octet_length(page.data)) OVER w AS bytes, count(*) OVER () AS found
  FROM (
    SELECT p.id, p.channel_id, p.sequence::bigint AS sequence, p.data, p.created_at FROM {s}.firehose_messages p
    WHERE p.channel_id = ch.id AND p.sequence < $3::bigint AND ($4::bigint = 0 OR p.id < $4::bigint)
    ORDER BY p.sequence DESC LIMIT $5
  ) page WINDOW w AS (ORDER BY page.sequence DESC)
) m
WHERE ch.name = $1 AND $2::bigint IN (0, ch.id) AND (m.row = 1 OR (m.row <= $6 AND m.bytes <= $7))
ORDER BY m.sequence";

const HEADS: &str = "
SELECT r.ord, ch.id, ch.sequence::bigint
FROM unnest($1::text[]) WITH ORDINALITY AS r(name, ord) JOIN {s}.firehose_channels ch ON ch.name = r.name";

const HEADS_FULL: &str = "
SELECT r.ord, ch.id, ch.sequence::bigint, newest.id, oldest.sequence::bigint, oldest.id
FROM unnest($1::text[]) WITH ORDINALITY AS r(name, ord) JOIN {s}.firehose_channels ch ON ch.name = r.name
LEFT JOIN LATERAL (
  SELECT m.id FROM {s}.firehose_messages m WHERE m.channel_id = ch.id ORDER BY m.sequence DESC LIMIT 1
) newest ON true
LEFT JOIN LATERAL (
  SELECT m.id, m.sequence FROM {s}.firehose_messages m WHERE m.channel_id = ch.id ORDER BY m.sequence LIMIT 1
) oldest ON true";

/// $1 epochs, $2 sequences. The oldest message is looked up only where the cursor's own is gone.
const ANCHORS: &str = "
SELECT r.ord, own.id, own.created_at, oldest.sequence::bigint, oldest.id
FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS r(epoch, sequence, ord)
JOIN {s}.firehose_channels ch ON ch.id = r.epoch
LEFT JOIN {s}.firehose_messages own ON own.channel_id = ch.id AND own.sequence = r.sequence
LEFT JOIN LATERAL (
  SELECT m.id, m.sequence FROM {s}.firehose_messages m
  WHERE m.channel_id = ch.id AND own.id IS NULL ORDER BY m.sequence LIMIT 1
) oldest ON true";

/// $1 messages kept (-1: all), $2 longest age in µs (-1: any), $3 least age in µs, $4 the id after which to look, $5 how
/// many. The counter of a stream is not asked: the gem leaves it too low at times. Its sequence is: who never had more
/// than are kept is not looked at further.
const TRIM_CANDIDATES: &str = "
SELECT ch.id FROM {s}.firehose_channels ch
CROSS JOIN LATERAL (
  SELECT m.sequence, m.created_at FROM {s}.firehose_messages m WHERE m.channel_id = ch.id ORDER BY m.sequence LIMIT 1
) oldest
CROSS JOIN (SELECT clock_timestamp() AT TIME ZONE 'utc' AS utc) now
WHERE ch.id > $4::bigint
  AND ($2::bigint >= 0 OR ch.sequence > $1::bigint)
  AND oldest.created_at < now.utc - $3::bigint * interval '1 microsecond'
  AND (($1::bigint >= 0 AND ch.sequence - oldest.sequence >= $1::bigint)
    OR ($2::bigint >= 0 AND oldest.created_at < now.utc - $2::bigint * interval '1 microsecond'))
ORDER BY ch.id LIMIT $5";

/// $1 messages kept (-1: all), $2 longest age in µs (-1: any), $3 least age in µs, $4 channel ids, $5 how many rows. What
/// goes is a prefix: it ends before the first message that stays. No channel row is locked.
const DUE: &str = "
WITH now AS MATERIALIZED (
  SELECT clock_timestamp() AT TIME ZONE 'utc' AS utc
), due AS MATERIALIZED (
  SELECT prefix.id FROM unnest($4::bigint[]) AS ch(id)
  CROSS JOIN now
  CROSS JOIN LATERAL (
    SELECT coalesce(CASE WHEN $1::bigint >= 0 THEN (
      SELECT m.sequence::bigint FROM {s}.firehose_messages m
      WHERE m.channel_id = ch.id ORDER BY m.sequence DESC OFFSET greatest($1::bigint, 0) LIMIT 1) END, 0) AS last
  ) surplus
  CROSS JOIN LATERAL (
    SELECT oldest.id, oldest.channel_id, oldest.sequence, bool_and(
      (oldest.sequence <= surplus.last
        OR ($2::bigint >= 0 AND oldest.created_at < now.utc - $2::bigint * interval '1 microsecond'))
      AND oldest.created_at <= now.utc - $3::bigint * interval '1 microsecond') OVER (ORDER BY oldest.sequence) AS goes
    FROM (
      SELECT m.id, m.channel_id, m.sequence, m.created_at FROM {s}.firehose_messages m
      WHERE m.channel_id = ch.id ORDER BY m.sequence LIMIT $5
    ) oldest
  ) prefix
  WHERE prefix.goes ORDER BY prefix.channel_id, prefix.sequence LIMIT $5
)
";

/// The channels' ids are filled in. A row that a publisher holds is left for the next trim: the count is made anew each time.
const TRIM_COUNTERS: &str = "
UPDATE {s}.firehose_channels ch SET messages_count = least(ch.sequence - coalesce((
  SELECT m.sequence FROM {s}.firehose_messages m WHERE m.channel_id = ch.id ORDER BY m.sequence LIMIT 1
), ch.sequence + 1) + 1, 2147483647)
WHERE ch.id IN (
  SELECT held.id FROM {s}.firehose_channels held WHERE held.id IN ({channels})
  ORDER BY held.name FOR NO KEY UPDATE SKIP LOCKED
)";

/// $1 what is to be trimmed. Two who trimmed the same stream could leave a hole if one of them rolled back.
const TRIM_LOCK: &str = "SELECT pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended($1, 0))";
