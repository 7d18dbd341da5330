//! `firehose_channels` and `firehose_messages`: made, or adopted from the gem.

/// Names of indexes and of the foreign key are the gem's, so that its migration finds what it looks for.
pub(crate) const UP: &str = "
CREATE TABLE IF NOT EXISTS {s}.firehose_channels (
  id bigserial PRIMARY KEY,
  name text NOT NULL,
  sequence bigint NOT NULL DEFAULT 0,
  messages_count integer NOT NULL DEFAULT 0,
  created_at timestamp(6) without time zone NOT NULL DEFAULT (clock_timestamp() AT TIME ZONE 'utc'),
  updated_at timestamp(6) without time zone NOT NULL DEFAULT (clock_timestamp() AT TIME ZONE 'utc')
);
CREATE UNIQUE INDEX IF NOT EXISTS index_firehose_channels_on_name ON {s}.firehose_channels (name);
CREATE TABLE IF NOT EXISTS {s}.firehose_messages (
  id bigserial PRIMARY KEY,
  channel_id bigint NOT NULL
    CONSTRAINT fk_rails_a277ba80b0 REFERENCES {s}.firehose_channels (id) ON DELETE CASCADE,
  sequence bigint NOT NULL,
  data text NOT NULL,
  created_at timestamp(6) without time zone NOT NULL DEFAULT (clock_timestamp() AT TIME ZONE 'utc'),
  key text
);
ALTER TABLE {s}.firehose_messages ADD COLUMN IF NOT EXISTS key text;
CREATE INDEX IF NOT EXISTS index_firehose_messages_on_channel_id ON {s}.firehose_messages (channel_id);
CREATE UNIQUE INDEX IF NOT EXISTS index_firehose_messages_on_channel_id_and_sequence
  ON {s}.firehose_messages (channel_id, sequence);
CREATE UNIQUE INDEX IF NOT EXISTS index_firehose_messages_on_channel_id_and_key
  ON {s}.firehose_messages (channel_id, key) WHERE key IS NOT NULL;
";

/// The tables go only where they were made here.
pub(crate) const DOWN: &str = "
DO $firehose$
BEGIN
  IF (SELECT adopted FROM {s}.firehose_settings) THEN
    ALTER TABLE {s}.firehose_messages DROP COLUMN key;
  ELSE
    DROP TABLE {s}.firehose_messages;
    DROP TABLE {s}.firehose_channels;
  END IF;
END
$firehose$;
";

/// Whether either column is still the gem's 32-bit one.
pub(crate) const IS_NARROW: &str = "
SELECT count(*) FROM pg_catalog.pg_attribute
WHERE attrelid IN ('{l}.firehose_channels'::regclass, '{l}.firehose_messages'::regclass)
  AND attname = 'sequence' AND atttypid <> 'pg_catalog.int8'::regtype
";

pub(crate) const WIDEN: &str = "
ALTER TABLE {s}.firehose_channels ALTER COLUMN sequence TYPE bigint;
ALTER TABLE {s}.firehose_messages ALTER COLUMN sequence TYPE bigint;
";
