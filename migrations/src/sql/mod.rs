//! The statements, one file a migration. `{s}` stands for the quoted schema, `{l}` for the same inside a literal.

pub(crate) mod functions;
pub(crate) mod settings;
pub(crate) mod tables;

/// Taken before anything is looked at, released by the end of the transaction. A database is migrated one schema at a
/// time, so one number serves.
pub(crate) const LOCK: &str =
    "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('firehose_migrations', 0))";

/// The table of what was done, in the shape that the migrator makes.
pub(crate) const MIGRATIONS: &str = "CREATE TABLE IF NOT EXISTS {s}.firehose_migrations (
  version varchar NOT NULL PRIMARY KEY,
  applied_at bigint NOT NULL
)";
