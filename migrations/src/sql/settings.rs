//! `firehose_settings`: the one row that all processes of a database share.

/// Whether the tables were there before is noted now, while it can still be seen: `down` goes by it.
pub(crate) const UP: &str = "
CREATE TABLE {s}.firehose_settings (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  layout text NOT NULL DEFAULT 'per_stream' CHECK (layout IN ('per_stream', 'buckets')),
  buckets integer NOT NULL DEFAULT 256 CHECK (buckets BETWEEN 1 AND 65536),
  prefix text NOT NULL DEFAULT 'firehose' CHECK (octet_length(prefix) BETWEEN 1 AND 64 AND position(':' IN prefix) = 0),
  gem boolean NOT NULL DEFAULT true,
  cleanup_threshold bigint DEFAULT 100 CHECK (cleanup_threshold >= 0),
  adopted boolean NOT NULL
);
COMMENT ON TABLE {s}.firehose_settings IS 'What all processes of this database agree on; change it with firehose migrate --set';
COMMENT ON COLUMN {s}.firehose_settings.cleanup_threshold IS 'Messages kept a stream; null keeps all';
COMMENT ON COLUMN {s}.firehose_settings.adopted IS 'Whether the tables were there before Firehose, and stay when it goes';
INSERT INTO {s}.firehose_settings (adopted)
VALUES (pg_catalog.to_regclass('{l}.firehose_channels') IS NOT NULL);
";

pub(crate) const DOWN: &str = "DROP TABLE {s}.firehose_settings;";
