//! Reading: pages, heads, single messages and cursors, each in one statement and so from one snapshot.
//!
//! `json_each(?1)` is the list that is asked for, and `r.key` the place in it. `CROSS JOIN` keeps SQLite from turning the
//! order of the tables around.

use std::sync::Arc;

use firehose_core::{
    Anchor, Cursor, Epoch, Error, Head, HeadDetail, Message, MessageId, Page, PageLimit, Position, Result, Sequence,
    Step, StreamName, Timestamp,
};
use sea_orm::{DbErr, QueryResult, Value};

use super::SqliteStore;
use super::append::{json, message};
use super::error::{Work, explain};

const GET_MANY: &str = "
SELECT DISTINCT m.id, m.stream_id, m.sequence, m.data, m.created_at, s.name
FROM json_each(?1) r CROSS JOIN messages m ON m.id = r.value CROSS JOIN streams s ON s.id = m.stream_id";

/// ?1 an array of [name, epoch (0: any), sequence, id (0: by sequence)], ?2 rows, ?3 bytes. Sequences have no holes but
/// where a beginning was trimmed, so a page is a range of them, of one row more than it may hold. Sizes are added up
/// before any data is read.
const READ_AFTER: &str = "
WITH wanted AS MATERIALIZED (
  SELECT r.key AS place, s.id AS stream_id, CASE
    WHEN r.value ->> 3 > 0 THEN coalesce((
      SELECT p.sequence FROM messages p
      WHERE p.stream_id = s.id AND p.id <= r.value ->> 3 ORDER BY p.sequence DESC LIMIT 1), 0)
    WHEN r.value ->> 1 IN (0, s.id) THEN r.value ->> 2
    ELSE 0 END AS past
  FROM json_each(?1) r CROSS JOIN streams s ON s.name = r.value ->> 0
), begun AS MATERIALIZED (
  SELECT w.place, w.stream_id, (
    SELECT min(f.sequence) FROM messages f WHERE f.stream_id = w.stream_id AND f.sequence > w.past) AS first
  FROM wanted w
), sized AS MATERIALIZED (
  SELECT b.place, m.id, m.sequence, octet_length(m.data) AS size
  FROM begun b CROSS JOIN messages m ON m.stream_id = b.stream_id AND m.sequence BETWEEN b.first AND b.first + ?2
), page AS MATERIALIZED (
  SELECT z.place, z.id, row_number() OVER w AS nth, sum(z.size) OVER w AS bytes, count(*) OVER (PARTITION BY z.place) AS found
  FROM sized z WINDOW w AS (PARTITION BY z.place ORDER BY z.sequence)
)
SELECT p.place, m.id, m.stream_id, m.sequence, m.data, m.created_at, p.found
FROM page p CROSS JOIN messages m ON m.id = p.id
WHERE p.nth = 1 OR (p.nth <= ?2 AND p.bytes <= ?3)
ORDER BY p.place, m.sequence";

/// ?1 name, ?2 epoch (0: any), ?3 sequence, ?4 id (0: by sequence), ?5 rows, ?6 bytes. Before a position in another
/// epoch stands nothing.
const READ_BEFORE: &str = "
WITH ended AS MATERIALIZED (
  SELECT s.id AS stream_id, (
    SELECT p.sequence FROM messages p
    WHERE p.stream_id = s.id AND p.sequence < ?3 AND (?4 = 0 OR p.id < ?4) ORDER BY p.sequence DESC LIMIT 1) AS last
  FROM streams s WHERE s.name = ?1 AND ?2 IN (0, s.id)
), sized AS MATERIALIZED (
  SELECT m.id, m.sequence, octet_length(m.data) AS size
  FROM ended e CROSS JOIN messages m ON m.stream_id = e.stream_id AND m.sequence BETWEEN e.last - ?5 AND e.last
), page AS MATERIALIZED (
  SELECT z.id, row_number() OVER w AS nth, sum(z.size) OVER w AS bytes, count(*) OVER () AS found
  FROM sized z WINDOW w AS (ORDER BY z.sequence DESC)
)
SELECT m.id, m.stream_id, m.sequence, m.data, m.created_at, p.found
FROM page p CROSS JOIN messages m ON m.id = p.id
WHERE p.nth = 1 OR (p.nth <= ?5 AND p.bytes <= ?6)
ORDER BY m.sequence";

const HEADS: &str = "
SELECT r.key, s.id, s.sequence FROM json_each(?1) r CROSS JOIN streams s ON s.name = r.value";

const HEADS_FULL: &str = "
SELECT r.key, s.id, s.sequence, newest.id, oldest.sequence, oldest.id
FROM json_each(?1) r CROSS JOIN streams s ON s.name = r.value
LEFT JOIN messages newest ON newest.stream_id = s.id
  AND newest.sequence = (SELECT max(m.sequence) FROM messages m WHERE m.stream_id = s.id)
LEFT JOIN messages oldest ON oldest.stream_id = s.id
  AND oldest.sequence = (SELECT min(m.sequence) FROM messages m WHERE m.stream_id = s.id)";

/// ?1 an array of [epoch, sequence].
const ANCHORS: &str = "
SELECT r.key, own.id, own.created_at, oldest.sequence, oldest.id
FROM json_each(?1) r CROSS JOIN streams s ON s.id = r.value ->> 0
LEFT JOIN messages own ON own.stream_id = s.id AND own.sequence = r.value ->> 1
LEFT JOIN messages oldest ON oldest.stream_id = s.id
  AND oldest.sequence = (SELECT min(m.sequence) FROM messages m WHERE m.stream_id = s.id)";

impl SqliteStore {
    pub(super) async fn get_by_id(&self, ids: &[MessageId]) -> Result<Vec<Arc<Message>>> {
        let wanted: Vec<i64> = ids.iter().map(|id| id.0).collect();
        let read = |row: &QueryResult| {
            let name: String = row.try_get_by_index(5)?;
            let stream = StreamName::new(name).map_err(|e| DbErr::Custom(e.to_string()))?;
            message(row, 0, stream).map(Arc::new)
        };
        let rows = self.rows("get messages", Step::Read, GET_MANY, vec![array("get messages", &wanted)?]).await?;
        rows.iter().map(read).collect::<Result<_, _>>().map_err(broken("get messages"))
    }

    pub(super) async fn pages_after(&self, requests: &[(StreamName, Position)], limit: PageLimit) -> Result<Vec<Page>> {
        let wanted: Vec<_> = requests.iter().map(|(stream, position)| (stream.as_str(), position)).collect();
        let wanted: Vec<_> = wanted.into_iter().map(|(name, position)| of_position(name, *position)).collect();
        let [most_rows, most_bytes] = limits(limit);
        let mut pages = vec![Page::default(); requests.len()];
        for row in
            self.rows("read", Step::Read, READ_AFTER, vec![array("read", &wanted)?, most_rows, most_bytes]).await?
        {
            let Some(at) = place(&row).filter(|at| *at < pages.len()) else { continue };
            add(&mut pages[at], &row, 1, requests[at].0.clone()).map_err(broken("read"))?;
        }
        Ok(pages)
    }

    pub(super) async fn page_before(&self, stream: &StreamName, position: Position, limit: PageLimit) -> Result<Page> {
        let (name, epoch, sequence, id) = match position {
            Position::Cursor(_) => of_position(stream.as_str(), position),
            // Nothing has an id below 1, and 0 would read by the sequence.
            Position::Id(id) => (stream.as_str(), 0, i64::MAX, id.0.max(1)),
        };
        let [most_rows, most_bytes] = limits(limit);
        let values = vec![name.into(), epoch.into(), sequence.into(), id.into(), most_rows, most_bytes];
        let mut page = Page::default();
        for row in self.rows("read back", Step::Read, READ_BEFORE, values).await? {
            add(&mut page, &row, 0, stream.clone()).map_err(broken("read back"))?;
        }
        Ok(page)
    }

    pub(super) async fn read_heads(&self, streams: &[StreamName], detail: HeadDetail) -> Result<Vec<Option<Head>>> {
        let names: Vec<&str> = streams.iter().map(|stream| stream.as_str()).collect();
        let sql = match detail {
            HeadDetail::Cheap => HEADS,
            HeadDetail::Full => HEADS_FULL,
        };
        let read = |row: &QueryResult| {
            let head = Head::new(Epoch(row.try_get_by_index(1)?), Sequence(row.try_get_by_index(2)?));
            if detail == HeadDetail::Cheap {
                return Ok(head);
            }
            let newest: Option<i64> = row.try_get_by_index(3)?;
            Ok(head.with_retained(newest.map(MessageId), oldest(row, 4)?))
        };
        let mut heads = vec![None; streams.len()];
        for row in self.rows("heads", Step::Heads, sql, vec![array("heads", &names)?]).await? {
            let Some(at) = place(&row).filter(|at| *at < heads.len()) else { continue };
            heads[at] = Some(read(&row).map_err(broken("heads"))?);
        }
        Ok(heads)
    }

    pub(super) async fn compare(&self, cursors: &[Cursor]) -> Result<Vec<Anchor>> {
        // No stream has the epoch 0.
        let own = |cursor: &Cursor| (cursor.epoch.map_or(0, |epoch| epoch.0), cursor.sequence.0);
        let wanted: Vec<_> = cursors.iter().map(own).collect();
        let mut anchors = vec![Anchor::Gone; cursors.len()];
        for row in self.rows("anchors", Step::Anchors, ANCHORS, vec![array("anchors", &wanted)?]).await? {
            let Some(at) = place(&row).filter(|at| *at < anchors.len()) else { continue };
            anchors[at] = anchor(&row, &cursors[at]).map_err(broken("anchors"))?;
        }
        Ok(anchors)
    }

    async fn rows(
        &self,
        operation: &'static str,
        step: Step,
        sql: &str,
        values: Vec<Value>,
    ) -> Result<Vec<QueryResult>> {
        self.connections.rows(operation, step, sql, values).await
    }
}

fn array(operation: &'static str, values: &impl serde::Serialize) -> Result<Value> {
    json(values).map_err(broken(operation))
}

/// A row that is not as the statement makes it.
fn broken(operation: &'static str) -> impl Fn(DbErr) -> Error {
    move |e| explain(operation, Step::Read, Work::Harmless, &e)
}

/// Name, epoch, sequence and id of a position, 0 for what it does not name.
fn of_position(name: &str, position: Position) -> (&str, i64, i64, i64) {
    match position {
        Position::Cursor(cursor) => (name, cursor.epoch.map_or(0, |epoch| epoch.0), cursor.sequence.0, 0),
        // An id of 0 is the beginning of the stream, which sequence 0 says as well.
        Position::Id(id) => (name, 0, 0, id.0.max(0)),
    }
}

/// Rows and bytes.
fn limits(limit: PageLimit) -> [Value; 2] {
    let clamp = |n: usize| i64::try_from(n).unwrap_or(i64::MAX).min(1 << 40);
    [clamp(limit.rows.max(1)).into(), clamp(limit.bytes).into()]
}

/// Which of the things asked for a row answers.
fn place(row: &QueryResult) -> Option<usize> {
    usize::try_from(row.try_get_by_index::<i64>(0).ok()?).ok()
}

/// Adds a message to a page; how many were found stands behind it.
fn add(page: &mut Page, row: &QueryResult, at: usize, stream: StreamName) -> Result<(), DbErr> {
    let found: i64 = row.try_get_by_index(at + 5)?;
    page.messages.push(Arc::new(message(row, at, stream)?));
    page.more = (page.messages.len() as i64) < found;
    Ok(())
}

fn oldest(row: &QueryResult, at: usize) -> Result<Option<(Sequence, MessageId)>, DbErr> {
    let sequence: Option<i64> = row.try_get_by_index(at)?;
    let id: Option<i64> = row.try_get_by_index(at + 1)?;
    Ok(sequence.zip(id).map(|(sequence, id)| (Sequence(sequence), MessageId(id))))
}

fn anchor(row: &QueryResult, cursor: &Cursor) -> Result<Anchor, DbErr> {
    if cursor.sequence <= Sequence::ZERO {
        return Ok(Anchor::Same);
    }
    let Some(id) = row.try_get_by_index::<Option<i64>>(1)? else {
        return Ok(Anchor::Trimmed { oldest: oldest(row, 3)? });
    };
    let created_at = row.try_get_by_index::<Option<i64>>(2)?.map(Timestamp);
    let same = cursor.id.is_none_or(|known| known.0 == id)
        && cursor.created_at.is_none_or(|known| created_at.is_none_or(|at| at == known));
    Ok(if same { Anchor::Same } else { Anchor::Other })
}
