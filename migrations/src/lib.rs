//! The schema of Firehose, forwards and backwards.
//!
//! [`up`] makes the tables, or adopts those that the Ruby gem `firehose` made: it adds what is missing and rewrites
//! nothing. [`down`] takes away what [`up`] added, and the tables only where they were made here. [`print()`] gives the
//! same as plain SQL, for who runs migrations by other means.
//!
//! Each runs in one transaction under an advisory lock, so any number of processes may migrate at once. What was done
//! stands in a table of its own, `firehose_migrations`, and never in that of the user's migrator.

mod migrator;
mod run;
mod schema;
mod settings;
mod sql;

pub use migrator::Migrator;
pub use run::{down, print, up, widen};
pub use schema::SchemaName;
pub use sea_orm_migration::DbErr;
pub use settings::set;
