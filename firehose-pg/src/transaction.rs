//! Publishing in the caller's transaction.

use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use firehose_core::{Error, ErrorKind, Firehose, MessageId, NewMessage, Receipt, Result, StreamName};
use firehose_migrations::SchemaName;
use sea_orm::{
    ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbErr, QueryResult, Statement, TransactionTrait,
};

use crate::error::{Cause, NOT_MIGRATED_HINT, Work};

const OPERATION: &str = "broadcast in a transaction";

/// Stores a message in the transaction `txn`. It is there when the transaction commits, and never otherwise.
///
/// The stream is held until the transaction ends: others who publish on it wait, so keep it short. Who broadcasts on
/// several streams does so in one call of [`broadcast_many_in`], or in an order that everyone keeps.
///
/// The database's installation is the one on the `search_path`, or else the only one there is.
///
/// # Errors
/// [`ErrorKind::InvalidName`] and [`ErrorKind::InvalidData`] before the database is asked, and what it says; after the
/// latter the transaction can only be rolled back.
///
/// # Cancel safety
/// Dropped half way, the message may be stored in the transaction; roll it back.
pub async fn broadcast_in<S>(txn: &impl ConnectionTrait, stream: S, data: &str) -> Result<Receipt>
where
    S: TryInto<StreamName> + Send,
    Error: From<S::Error>,
{
    let message = NewMessage::new(stream, data)?;
    broadcast_many_in(txn, [message]).await
}

/// Stores several messages in the transaction `txn`, all or none. Streams are locked in the order of their names, so two
/// transactions that name them in opposite orders do not deadlock.
///
/// A message whose key its stream holds already gives the id of the one that was stored first.
///
/// # Errors
/// As [`broadcast_in`].
///
/// # Cancel safety
/// As [`broadcast_in`].
pub async fn broadcast_many_in(
    txn: &impl ConnectionTrait,
    messages: impl IntoIterator<Item = NewMessage>,
) -> Result<Receipt> {
    let messages: Vec<NewMessage> = messages.into_iter().collect();
    if messages.is_empty() {
        return Ok(Receipt::default());
    }
    let failed = |e: DbErr| Cause::from(e).explain(OPERATION, Work::Harmless);
    let schema = find_schema(txn).await?;
    // By name; those of one stream stay in their order.
    let mut order: Vec<usize> = (0..messages.len()).collect();
    order.sort_by(|&a, &b| messages[a].stream.cmp(&messages[b].stream));
    let column = |text: fn(&NewMessage) -> &str| -> Vec<String> {
        order.iter().map(|&at| text(&messages[at]).to_owned()).collect()
    };
    let streams = column(|m| m.stream.as_str());
    let data = column(|m| &m.data);
    let keys = column(|m| m.key.as_ref().map_or("", |key| key.as_str()));
    // No key is empty, and the ORM's arrays hold no null.
    let sql = format!(
        "SELECT r.ord, stored.id FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS r(stream, data, key, ord) \
         CROSS JOIN LATERAL {}.firehose_append(r.stream, r.data, nullif(r.key, '')) AS stored",
        schema.quoted()
    );
    let values = [streams.into(), data.into(), keys.into()];
    let statement = Statement::from_sql_and_values(txn.get_database_backend(), sql, values);
    let mut ids = vec![MessageId(0); messages.len()];
    for row in txn.query_all_raw(statement).await.map_err(failed)? {
        let (ord, id) = read_row(&row).map_err(failed)?;
        if let Some(&at) = usize::try_from(ord - 1).ok().and_then(|ord| order.get(ord)) {
            ids[at] = id;
        }
    }
    Ok(Receipt::new(ids))
}

/// Runs `work` in a transaction of `db`, commits it, and announces what it broadcast. Where `work` fails, or is dropped,
/// all is rolled back and nothing is announced.
///
/// ```no_run
/// # async fn f(db: sea_orm::DatabaseConnection, firehose: firehose_core::Firehose) -> firehose_core::Result<()> {
/// firehose_pg::transaction(&db, &firehose, async |txn: &firehose_pg::Transaction| {
///     // … your own statements on `txn`, a `sea_orm::DatabaseTransaction` …
///     txn.broadcast("orders", "paid").await
/// })
/// .await
/// # }
/// ```
///
/// # Errors
/// What `work` gives; what the database says of BEGIN and COMMIT. Where its outcome is `Unknown`, the transaction may be
/// committed. A failed announcement is no error: the sweep of every listening process finds what is committed.
///
/// # Cancel safety
/// Dropped before the COMMIT, nothing is stored; after it, everything, and the sweep announces it.
pub async fn transaction<T, E>(
    db: &DatabaseConnection,
    firehose: &Firehose,
    work: impl AsyncFnOnce(&Transaction) -> Result<T, E>,
) -> Result<T, E>
where
    E: From<Error>,
{
    let begun = db.begin().await.map_err(|e| Cause::from(e).explain(OPERATION, Work::Harmless))?;
    let txn = Transaction { txn: begun, receipt: Mutex::default() };
    let value = work(&txn).await?;
    let Transaction { txn, receipt } = txn;
    txn.commit().await.map_err(|e| Cause::from(e).explain(OPERATION, Work::Write))?;
    let receipt = receipt.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = firehose.announce(receipt).await {
        tracing::debug!(%error, "not announced; the sweep finds it");
    }
    Ok(value)
}

/// A transaction that remembers what was broadcast in it. From [`transaction`].
#[derive(Debug)]
pub struct Transaction {
    txn: DatabaseTransaction,
    receipt: Mutex<Receipt>,
}

impl Transaction {
    /// As [`broadcast_in`]; announced after the commit.
    ///
    /// # Errors
    /// As [`broadcast_in`].
    ///
    /// # Cancel safety
    /// As [`broadcast_in`].
    pub async fn broadcast<S>(&self, stream: S, data: &str) -> Result<()>
    where
        S: TryInto<StreamName> + Send,
        Error: From<S::Error>,
    {
        let message = NewMessage::new(stream, data)?;
        self.broadcast_many([message]).await
    }

    /// As [`broadcast_many_in`]; announced after the commit.
    ///
    /// # Errors
    /// As [`broadcast_many_in`].
    ///
    /// # Cancel safety
    /// As [`broadcast_many_in`].
    pub async fn broadcast_many(&self, messages: impl IntoIterator<Item = NewMessage>) -> Result<()> {
        let stored = broadcast_many_in(&self.txn, messages).await?;
        self.receipt.lock().unwrap_or_else(PoisonError::into_inner).merge(stored);
        Ok(())
    }
}

impl Deref for Transaction {
    type Target = DatabaseTransaction;

    fn deref(&self) -> &DatabaseTransaction {
        &self.txn
    }
}

fn read_row(row: &QueryResult) -> Result<(i64, MessageId), DbErr> {
    Ok((row.try_get_by_index(0)?, MessageId(row.try_get_by_index(1)?)))
}

/// The schema whose function a caller would mean: the one that is visible, or the only one.
const INSTALLATIONS: &str = "SELECT n.nspname::text, pg_catalog.pg_function_is_visible(p.oid) \
     FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace \
     WHERE p.proname = 'firehose_append' ORDER BY 2 DESC LIMIT 2";

async fn find_schema(txn: &impl ConnectionTrait) -> Result<SchemaName> {
    let failed = |e: DbErr| Cause::from(e).explain(OPERATION, Work::Harmless);
    let statement = Statement::from_string(txn.get_database_backend(), INSTALLATIONS);
    let rows = txn.query_all_raw(statement).await.map_err(failed)?;
    let read = |row: &QueryResult| Ok((row.try_get_by_index(0)?, row.try_get_by_index(1)?));
    let found: Vec<(String, bool)> = rows.iter().map(read).collect::<Result<_, DbErr>>().map_err(failed)?;
    match found.as_slice() {
        [] => Err(Error::new(ErrorKind::NotMigrated, OPERATION, "the database has no function firehose_append")
            .with_hint(NOT_MIGRATED_HINT)),
        [(name, _)] | [(name, true), _] => Ok(SchemaName::new(name)),
        _ => Err(Error::new(
            ErrorKind::Config,
            OPERATION,
            "several schemas hold Firehose, and none is on the search_path",
        )
        .with_hint("put the schema that is meant on the search_path of this connection")),
    }
}
