//! The connections: one that writes, and some that read beside it.

use std::path::Path;
use std::time::Duration;

use firehose_core::{Blocked, Clock, Error, Result, Step};
use sea_orm::sqlx::ConnectOptions as _;
use sea_orm::sqlx::Connection as _;
use sea_orm::sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous};
use sea_orm::{
    ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, QueryResult, SqliteTransactionMode,
    SqlxSqliteConnector, Statement, TransactionOptions, TransactionTrait, Value,
};

use super::error::{Work, explain, is_busy};
use super::options::{OPERATION, SqliteOptions};

/// How long a write waits for another process's ordinary commit before the file counts as held.
const BRIEF: Duration = Duration::from_millis(25);

/// How long a read waits: in WAL it has to only while another process opens the file after a crash, or closes it.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The longest pause between two tries of a write that waits for another process.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// How long a call waits for a connection; the engine gives up earlier.
const QUEUE: Duration = Duration::from_secs(60);

/// What the `-wal` file is cut to after a burst, in bytes.
const WAL_BYTES: u64 = 64 << 20;

const PAGE_BYTES: u64 = 4_096;

/// The connections of a store; clones share them.
#[derive(Debug, Clone)]
pub(super) struct Connections {
    /// One: SQLite has one writer, and whoever waits here is served in turn.
    writer: DatabaseConnection,
    readers: DatabaseConnection,
}

impl Connections {
    /// Opens the file, which is there and has its tables.
    pub(super) async fn open(path: &Path, options: &SqliteOptions) -> Result<Self> {
        let mut writing = connect_options(path, BRIEF).pragma("journal_size_limit", WAL_BYTES.to_string());
        if let Some(most) = options.most_bytes {
            writing = writing.pragma("max_page_count", (most / PAGE_BYTES).max(1).to_string());
        }
        let reading = connect_options(path, PATIENCE);
        let writer = pool(writing, 1).await.map_err(|e| explain(OPERATION, Step::Connect, Work::Harmless, &e))?;
        let readers = pool(reading, options.readers.max(1)).await;
        let readers = readers.map_err(|e| explain(OPERATION, Step::Connect, Work::Harmless, &e))?;
        Ok(Self { writer, readers })
    }

    pub(super) async fn close(&self) {
        // Each answers when its last connection is closed; it has nothing to fail with.
        let _ = self.readers.close_by_ref().await;
        let _ = self.writer.close_by_ref().await;
    }

    /// The rows of one statement, and so of one snapshot.
    pub(super) async fn rows(
        &self,
        operation: &'static str,
        step: Step,
        sql: &str,
        values: Vec<Value>,
    ) -> Result<Vec<QueryResult>> {
        let rows = self.readers.query_all_raw(statement(sql, values)).await;
        rows.map_err(|e| explain(operation, step, Work::Harmless, &e))
    }

    /// Begins a write: nobody else writes to the file until it ends. Dropped, it is rolled back.
    ///
    /// Who waits for another process does it between tries, so that in this process nobody waits for who waits.
    pub(super) async fn begin(
        &self,
        operation: &'static str,
        step: Step,
        blocked: Blocked,
        clock: &dyn Clock,
    ) -> Result<DatabaseTransaction> {
        let mut pause = Duration::from_millis(1);
        loop {
            let immediate = TransactionOptions {
                sqlite_transaction_mode: Some(SqliteTransactionMode::Immediate),
                ..TransactionOptions::default()
            };
            match self.writer.begin_with_options(immediate).await {
                Ok(transaction) => return Ok(transaction),
                Err(e) if is_busy(&e) && blocked == Blocked::Wait => clock.sleep_until(clock.now() + pause).await,
                Err(e) => return Err(explain(operation, step, Work::Unfinished, &e)),
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Ends a write. After an error of `COMMIT` nobody knows, but where SQLite says that it did not happen.
pub(super) async fn commit(operation: &'static str, step: Step, transaction: DatabaseTransaction) -> Result<()> {
    transaction.commit().await.map_err(|e| explain(operation, step, Work::Commit, &e))
}

/// An error of a statement inside a write, which is rolled back with the transaction's drop.
pub(super) fn unfinished(operation: &'static str, step: Step) -> impl Fn(DbErr) -> Error {
    move |e| explain(operation, step, Work::Unfinished, &e)
}

pub(super) fn statement(sql: &str, values: Vec<Value>) -> Statement {
    Statement::from_sql_and_values(DbBackend::Sqlite, sql, values)
}

/// What holds for every connection. WAL is not here: it is a property of the file, set when it is made.
pub(super) fn connect_options(path: &Path, busy: Duration) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .foreign_keys(true)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(busy)
        .disable_statement_logging()
}

/// A pool whose connections come back clean.
///
/// When SQLite itself has rolled back (a full disk, say), the driver's own ROLLBACK fails, and it goes on believing that
/// the connection is in a transaction: each later BEGIN on it would fail. So such a connection is closed. The ping comes
/// first, because the rollback of a dropped transaction is still in the queue of the connection's thread.
pub(super) async fn pool(options: SqliteConnectOptions, connections: u32) -> Result<DatabaseConnection, DbErr> {
    let pool = SqlitePoolOptions::new()
        .max_connections(connections)
        .min_connections(0)
        .acquire_timeout(QUEUE)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .after_release(|connection, _| {
            Box::pin(async move {
                connection.ping().await?;
                Ok(!connection.is_in_transaction())
            })
        })
        .connect_with(options)
        .await;
    let pool = pool.map_err(|e| DbErr::Conn(sea_orm::RuntimeErr::SqlxError(e.into())))?;
    Ok(SqlxSqliteConnector::from_sqlx_sqlite_pool(pool))
}
