//! The two tables, and what tells a file of this store from any other.

use std::path::Path;
use std::sync::Arc;

use firehose_core::{Clock, Error, ErrorKind, Result, Step, Timestamp};
use sea_orm::{
    ConnectionTrait, DatabaseConnection, DbErr, SqliteTransactionMode, TransactionOptions, TransactionTrait,
};

use super::connections::{PATIENCE, connect_options, pool, statement};
use super::error::{Work, explain, is_busy};
use super::options::OPERATION;

/// "fire", in the header of the file.
const APPLICATION_ID: i64 = 0x6669_7265;

/// Raised with each change of the tables.
const VERSION: i64 = 1;

/// `AUTOINCREMENT`: a number that was given out is not given out again, also when its row is gone. `streams.id` is the
/// epoch. The unique index holds the id too, so heads and positions by id are read from it alone.
const TABLES: &str = "
CREATE TABLE streams (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  sequence INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE messages (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  stream_id INTEGER NOT NULL REFERENCES streams (id) ON DELETE CASCADE,
  sequence INTEGER NOT NULL,
  key TEXT,
  created_at INTEGER NOT NULL,
  data TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX messages_by_sequence ON messages (stream_id, sequence);
CREATE UNIQUE INDEX messages_by_key ON messages (stream_id, key) WHERE key IS NOT NULL;
";

/// What is found in a file.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Ours,
    Later(i64),
    Foreign,
}

/// Makes the tables where the file is new, and refuses it where it is not ours. Two processes may do it at once.
pub(super) async fn prepare(path: &Path, clock: &Arc<dyn Clock>) -> Result<()> {
    let failed = |e: &DbErr| explain(OPERATION, Step::Connect, Work::Harmless, e);
    let database = pool(connect_options(path, PATIENCE).create_if_missing(true), 1).await.map_err(|e| failed(&e))?;
    let prepared = prepare_in(&database, path, clock).await;
    // It has nothing to fail with.
    let _ = database.close().await;
    prepared
}

async fn prepare_in(database: &DatabaseConnection, path: &Path, clock: &Arc<dyn Clock>) -> Result<()> {
    let failed = |e: DbErr| explain(OPERATION, Step::Connect, Work::Harmless, &e);
    let shown = path.display();
    match look(database).await.map_err(failed)? {
        Found::Nothing | Found::Ours => {}
        Found::Later(version) => {
            let message = format!("{shown} has tables of version {version}, and this store knows up to {VERSION}");
            return Err(Error::new(ErrorKind::NotMigrated, OPERATION, message).with_hint("open it with what made it"));
        }
        Found::Foreign => {
            let message = format!("{shown} is a database of another program, and is left alone");
            return Err(Error::new(ErrorKind::UnknownDatabase, OPERATION, message));
        }
    }
    let mode = to_wal(database, clock).await.map_err(failed)?;
    if mode != "wal" {
        let message = format!("{shown} cannot have a write-ahead log: its journal stays {mode:?}");
        return Err(Error::new(ErrorKind::UnknownDatabase, OPERATION, message)
            .with_hint("put the file on a local disk: WAL needs memory that processes share"));
    }
    create(database, clock).await.map_err(failed)
}

/// In one statement, so that another process that is just making the tables is seen before it or after it.
const LOOK: &str = "
SELECT a.application_id, v.user_version, (SELECT count(*) FROM sqlite_schema)
FROM pragma_application_id a, pragma_user_version v";

async fn look(database: &impl ConnectionTrait) -> Result<Found, DbErr> {
    let row = database.query_one_raw(statement(LOOK, Vec::new())).await?;
    let row = row.ok_or_else(|| DbErr::Custom("the file does not say what it is".to_owned()))?;
    let (application, version, tables): (i64, i64, i64) =
        (row.try_get_by_index(0)?, row.try_get_by_index(1)?, row.try_get_by_index(2)?);
    Ok(match (application, version, tables) {
        (0, 0, 0) => Found::Nothing,
        (APPLICATION_ID, VERSION, _) => Found::Ours,
        (APPLICATION_ID, version, _) => Found::Later(version),
        _ => Found::Foreign,
    })
}

/// Switching needs the file alone for a moment, and SQLite does not wait for that by itself.
async fn to_wal(database: &DatabaseConnection, clock: &Arc<dyn Clock>) -> Result<String, DbErr> {
    let deadline = clock.now() + PATIENCE;
    loop {
        match database.query_one_raw(statement("PRAGMA journal_mode = WAL", Vec::new())).await {
            Ok(row) => return row.map_or_else(|| Ok(String::new()), |row| row.try_get_by_index(0)),
            Err(e) if is_busy(&e) && clock.now() < deadline => {
                clock.sleep_until(clock.now() + std::time::Duration::from_millis(5)).await;
            }
            Err(e) => return Err(e),
        }
    }
}

async fn create(database: &DatabaseConnection, clock: &Arc<dyn Clock>) -> Result<(), DbErr> {
    let immediate = TransactionOptions {
        sqlite_transaction_mode: Some(SqliteTransactionMode::Immediate),
        ..TransactionOptions::default()
    };
    let transaction = database.begin_with_options(immediate).await?;
    // Another process may have been here since.
    if look(&transaction).await? == Found::Nothing {
        transaction.execute_unprepared(TABLES).await?;
        let first = first_epoch(Timestamp::from_system_time(clock.wall()));
        let seed = "INSERT INTO sqlite_sequence (name, seq) VALUES ('streams', ?1)";
        transaction.execute_raw(statement(seed, vec![first.into()])).await?;
        transaction.execute_unprepared(&format!("PRAGMA application_id = {APPLICATION_ID}")).await?;
        transaction.execute_unprepared(&format!("PRAGMA user_version = {VERSION}")).await?;
    }
    transaction.commit().await
}

/// Where epochs begin: a file that is deleted and made anew has others than before, so that an old cursor is a reset and
/// not a place in another history. It leaves a thousand epochs for each millisecond, and stays below 2^53, which is what
/// JavaScript can hold, until the year 2248.
fn first_epoch(now: Timestamp) -> i64 {
    (now.0 / 1_000).clamp(0, (1 << 43) - 1) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_of_a_file_made_anew_begin_after_the_old_ones() {
        let (then, later) = (Timestamp(1_764_547_200_000_000), Timestamp(1_764_547_200_001_000));
        assert_eq!(first_epoch(later) - first_epoch(then), 1_024);
        assert!(first_epoch(Timestamp(i64::MAX)) < 1 << 53);
        assert_eq!(first_epoch(Timestamp(-1)), 0);
    }
}
