//! What floors and rivals send.

use firehose_migrations::SchemaName;

/// The store's own statements, from their source: a floor is to send the very same one.
#[path = "../../../store/sql.rs"]
#[allow(dead_code, reason = "one of them is used here")]
mod store;

/// The statement that the store appends with: $1 stream names, $2 data, $3 keys.
pub(crate) fn append(schema: &SchemaName) -> String {
    store::Sql::new(schema).append
}

/// The least that appends one message: $1 the stream's name, $2 data.
pub(crate) fn least(schema: &SchemaName) -> String {
    format!("{LEAST} SELECT * FROM m").replace("{s}", &schema.quoted())
}

/// The same, announced in the same transaction: $3 the channel.
pub(crate) fn announced(schema: &SchemaName) -> String {
    format!("{LEAST} SELECT m.*, pg_notify($3::text, sequence || ' ' || $2::text) FROM m")
        .replace("{s}", &schema.quoted())
}

const LEAST: &str = "
WITH ch AS (
  UPDATE {s}.firehose_channels SET sequence = sequence + 1, messages_count = messages_count + 1
  WHERE name = $1::text RETURNING id, sequence
), m AS (
  INSERT INTO {s}.firehose_messages (channel_id, sequence, data) SELECT id, sequence, $2::text FROM ch
  RETURNING id, channel_id, sequence, created_at
)";

/// $1 the channel, $2 the payload.
pub(crate) const NOTIFY: &str = "SELECT pg_notify($1::text, $2::text)";
