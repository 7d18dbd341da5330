//! Running the migrations: one transaction, under one lock.

use sea_orm_migration::MigratorTrait;
use sea_orm_migration::sea_orm::{
    ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbErr, IsolationLevel, Statement, TransactionTrait,
};

use crate::migrator::{Migrator, STEPS, current_schema};
use crate::schema::SchemaName;
use crate::sql;

/// Makes or adopts the tables in `schema`, by default the first of the `search_path`. Does nothing where all is there.
///
/// A schema that is named and does not exist is created.
///
/// # Errors
/// What the database says; then nothing was changed.
///
/// # Cancel safety
/// Dropped half way, nothing is changed, or everything.
pub async fn up(db: &DatabaseConnection, schema: Option<&SchemaName>) -> Result<(), DbErr> {
    let txn = begin(db, schema).await?;
    Migrator::up(&txn, None).await?;
    txn.commit().await
}

/// Takes away what [`up`] added: functions, settings, the column `key`; the tables only where [`up`] made them, and
/// with them all messages.
///
/// # Errors
/// What the database says; then nothing was changed.
///
/// # Cancel safety
/// As [`up`].
pub async fn down(db: &DatabaseConnection, schema: Option<&SchemaName>) -> Result<(), DbErr> {
    let txn = begin(db, schema).await?;
    Migrator::down(&txn, None).await?;
    let schema = current_schema(&txn).await?;
    txn.execute_unprepared(&schema.fill("DROP TABLE {s}.firehose_migrations")).await?;
    txn.commit().await
}

/// Makes the gem's 32-bit `sequence` columns bigint; gives whether there was anything to do.
///
/// It rewrites both tables, under an exclusive lock: no publisher and no reader gets in until it ends.
///
/// # Errors
/// What the database says; then nothing was changed.
///
/// # Cancel safety
/// As [`up`].
pub async fn widen(db: &DatabaseConnection, schema: Option<&SchemaName>) -> Result<bool, DbErr> {
    let txn = begin(db, schema).await?;
    let schema = current_schema(&txn).await?;
    let statement = Statement::from_string(txn.get_database_backend(), schema.fill(sql::tables::IS_NARROW));
    let narrow: i64 = txn.query_one_raw(statement).await?.map_or(Ok(0), |row| row.try_get_by_index(0))?;
    if narrow > 0 {
        txn.execute_unprepared(&schema.fill(sql::tables::WIDEN)).await?;
    }
    txn.commit().await?;
    Ok(narrow > 0)
}

/// What [`up`] does to a database without Firehose, as plain SQL for `psql -v ON_ERROR_STOP=1`.
pub fn print(schema: &SchemaName) -> String {
    let mut script = String::from("BEGIN;\n");
    script.push_str(sql::LOCK);
    script.push_str(";\n");
    script.push_str(&schema.fill("CREATE SCHEMA IF NOT EXISTS {s};\n"));
    script.push_str(&schema.fill(sql::MIGRATIONS));
    script.push_str(";\n");
    for step in STEPS {
        script.push_str(&schema.fill(step.up));
        let note = "INSERT INTO {s}.firehose_migrations (version, applied_at)\nVALUES ('{v}', extract(epoch FROM now())::bigint);\n";
        script.push_str(&schema.fill(note).replace("{v}", step.version));
    }
    script.push_str("COMMIT;\n");
    script
}

/// A transaction in which `schema` is the current one and nobody else migrates.
pub(crate) async fn begin(db: &DatabaseConnection, schema: Option<&SchemaName>) -> Result<DatabaseTransaction, DbErr> {
    let txn = db.begin_with_config(Some(IsolationLevel::ReadCommitted), None).await?;
    txn.execute_unprepared(sql::LOCK).await?;
    if let Some(schema) = schema {
        // With a right to create schemas only where there is one to create.
        let exists = "SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = $1";
        let statement = Statement::from_sql_and_values(txn.get_database_backend(), exists, [schema.as_str().into()]);
        let found: i64 = txn.query_one_raw(statement).await?.map_or(Ok(0), |row| row.try_get_by_index(0))?;
        if found == 0 {
            txn.execute_unprepared(&schema.fill("CREATE SCHEMA {s}")).await?;
        }
        txn.execute_unprepared(&schema.fill("SET LOCAL search_path TO {s}")).await?;
    }
    Ok(txn)
}
