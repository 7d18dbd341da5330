//! Firehose on PostgreSQL: the store, the listener and the notifier, on the database that a team runs already.
//!
//! [`migrate`] makes the tables, or adopts those of the Ruby gem; [`connect`] gives the backend of an engine.
//!
//! In reading order: `url` and `target` (where the database is), `tls`, `session` and `sessions` (connections of
//! tokio-postgres), `pool` and `revive` (those of sea-orm), `pooler` (what may stand before the server), `error` and `sqlstate` (what failures mean), then the three traits:
//! `store`, `notifier`, `listener`.

mod connect;
mod deadline;
mod error;
mod listener;
mod migrate;
mod notifier;
mod pool;
mod pooler;
mod revive;
mod session;
mod sessions;
mod sqlstate;
mod store;
mod target;
mod tls;
mod transaction;
mod url;
mod url_builder;

pub use connect::connect;
pub use listener::PgListener;
pub use migrate::{Migrations, migrate};
pub use notifier::PgNotifier;
pub use store::PgStore;
pub use transaction::{Transaction, broadcast_in, broadcast_many_in, transaction};
pub use url_builder::DatabaseUrl;
