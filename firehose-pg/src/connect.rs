//! From a configuration to a backend, with everything checked that would otherwise go wrong later.

use std::sync::Arc;

use firehose_core::{Backend, Config, Error, ErrorKind, MessageStore, Result, Secret, Step};
use firehose_migrations::SchemaName;
use tokio_postgres::Client;

use crate::deadline::Deadline;
use crate::error::{Cause, NOT_MIGRATED_HINT, Work};
use crate::listener::PgListener;
use crate::notifier::PgNotifier;
use crate::pool::Pool;
use crate::pooler;
use crate::session::{Dialler, Session};
use crate::sessions::Sessions;
use crate::store::PgStore;
use crate::target::Target;
use crate::tls::Tls;

const OPERATION: &str = "connect";

/// Connects to the database that `config` names, checks it, and gives a backend for an engine.
///
/// Two connections are opened and kept, one of each driver; the others open when they are needed: at most `pool_size` for reading, as many
/// for appending, as many again for appends that wait for someone's transaction, `notify_pool_size` for notifying, and
/// one for each listening session.
///
/// # Errors
/// [`ErrorKind::Config`] where the configuration is not valid or names no database, [`ErrorKind::NotMigrated`] where
/// the tables are missing, [`ErrorKind::NotSupported`] where the database cannot hold them right (another encoding than
/// UTF-8, ids that are drawn in advance), [`ErrorKind::Pooler`] where a pooler stands before the server that loses
/// prepared statements, and what stands in the way of a connection.
///
/// # Cancel safety
/// Dropped half way, it leaves no session behind.
pub async fn connect(config: &Config) -> Result<Backend> {
    config.validate()?;
    let timeout = config.statement_timeout;
    let dialler = dialler(config, database_url(config)?)?;
    let listening = match &config.listen_url {
        Some(url) => self::dialler(config, url)?,
        None => dialler.clone(),
    };
    let dialled = dialler.dial().await.map_err(|cause| cause.explain(OPERATION, Work::Harmless))?;
    let address = dialled.address.clone();
    let session = Session::new(dialled);
    let checks = session.drive(check(&session.client, config.schema.as_deref()));
    let schema = match Deadline::after(timeout).bound(checks).await {
        Some(Ok(checked)) => checked?,
        Some(Err(cause)) => return Err(cause.explain(OPERATION, Work::Harmless)),
        None => return Err(Cause::Late(Step::Connect).explain(OPERATION, Work::Harmless)),
    };

    let pool = Arc::new(Pool::new(dialler.clone(), address, config.pool_size, timeout));
    let deadline = Deadline::after(timeout);
    let checked = session.drive(pooler::refuse(&session, &pool, &deadline)).await.and_then(|checked| checked);
    checked.map_err(|cause| cause.explain(OPERATION, Work::Harmless))?;
    let writers = Sessions::new(dialler.clone(), config.pool_size);
    writers.adopt(session);
    let waiters = Sessions::new(dialler.clone(), config.pool_size);
    let notifier = match config.notify_pool_size {
        0 => PgNotifier::through(pool.clone(), timeout),
        size => PgNotifier::on_own(Sessions::new(dialler, size), timeout),
    };
    let store = PgStore::new(pool, writers, waiters, schema, timeout);
    // Through the other driver too, so that what only it stumbles over is told now.
    store.settings().await?;
    Ok(Backend::new(store, notifier, PgListener::new(listening, timeout)))
}

pub(crate) fn database_url(config: &Config) -> Result<&Secret> {
    config.database_url.as_ref().ok_or_else(|| {
        Error::new(ErrorKind::Config, OPERATION, "database_url is not set").with_hint("set FIREHOSE_DATABASE_URL")
    })
}

pub(crate) fn dialler(config: &Config, url: &Secret) -> Result<Arc<Dialler>> {
    let target = Target::parse(url, config)?;
    let tls = Tls::new(&target)?;
    Ok(Arc::new(Dialler::new(target, tls, config.statement_timeout)))
}

const SURROUNDINGS: &str = "SELECT pg_catalog.current_setting('server_encoding'), pg_catalog.current_schema()::text";

/// $1 the quoted schema.
const TABLES: &str = "SELECT pg_catalog.to_regclass($1 || '.firehose_settings') IS NOT NULL AND EXISTS (
  SELECT FROM pg_catalog.pg_attribute
  WHERE attrelid = pg_catalog.to_regclass($1 || '.firehose_messages') AND attname = 'key' AND NOT attisdropped)";

/// $1 the quoted schema.
const CACHE: &str = "SELECT max(s.seqcache) FROM pg_catalog.pg_sequence s
WHERE s.seqrelid = pg_catalog.pg_get_serial_sequence($1 || '.firehose_messages', 'id')::regclass";

/// Gives the schema where the tables are.
async fn check(client: &Client, schema: Option<&str>) -> Result<SchemaName> {
    let failed = |e: tokio_postgres::Error| Cause::from(e).explain(OPERATION, Work::Harmless);
    let row = client.query_one(SURROUNDINGS, &[]).await.map_err(failed)?;
    let encoding: String = row.try_get(0).map_err(failed)?;
    if encoding != "UTF8" {
        let message = format!("the database's encoding is {encoding}, and UTF8 is needed");
        return Err(Error::new(ErrorKind::NotSupported, OPERATION, message));
    }
    let current: Option<String> = row.try_get(1).map_err(failed)?;
    let Some(schema) = schema.map(str::to_owned).or(current).map(SchemaName::new) else {
        let message = "no schema of the search_path exists";
        return Err(Error::new(ErrorKind::NotMigrated, OPERATION, message).with_hint("name one with the key schema"));
    };
    let tables: bool =
        client.query_one(TABLES, &[&schema.quoted()]).await.and_then(|row| row.try_get(0)).map_err(failed)?;
    if !tables {
        let message = format!("the tables are not in schema {}, or not all of them", schema.quoted());
        return Err(Error::new(ErrorKind::NotMigrated, OPERATION, message).with_hint(NOT_MIGRATED_HINT));
    }
    let cache: Option<i64> =
        client.query_one(CACHE, &[&schema.quoted()]).await.and_then(|row| row.try_get(0)).map_err(failed)?;
    if cache != Some(1) {
        let message = format!("ids of messages are drawn in advance ({cache:?} at a time), and would not rise");
        let e = Error::new(ErrorKind::NotSupported, OPERATION, message);
        return Err(e.with_hint("ALTER SEQUENCE … CACHE 1 for the sequence of firehose_messages.id"));
    }
    Ok(schema)
}
