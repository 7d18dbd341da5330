//! Changing the row of `firehose_settings`.

use sea_orm_migration::sea_orm::{ConnectionTrait, DatabaseConnection, DbErr, Statement, Value};

use crate::migrator::current_schema;
use crate::run::begin;
use crate::schema::SchemaName;

/// What may be set, and what its text is cast to.
const KEYS: [(&str, &str); 5] = [
    ("layout", "text"),
    ("buckets", "integer"),
    ("prefix", "text"),
    ("gem", "boolean"),
    ("cleanup_threshold", "bigint"),
];

/// Sets one of `layout`, `buckets`, `prefix`, `gem` and `cleanup_threshold` (`none` keeps everything) for all processes
/// of the database; each notices with its next sweep.
///
/// # Errors
/// [`DbErr::Custom`] for a key that is none, and what the database says of a value that does not fit.
///
/// # Cancel safety
/// As [`up`](crate::up).
pub async fn set(db: &DatabaseConnection, schema: Option<&SchemaName>, key: &str, value: &str) -> Result<(), DbErr> {
    let Some((key, cast)) = KEYS.iter().find(|(name, _)| *name == key) else {
        let names: Vec<&str> = KEYS.iter().map(|(name, _)| *name).collect();
        return Err(DbErr::Custom(format!("{key:?} is no setting: {} are", names.join(", "))));
    };
    let value = (*key != "cleanup_threshold" || value != "none").then(|| value.to_owned());
    let txn = begin(db, schema).await?;
    let statement = format!("UPDATE {{s}}.firehose_settings SET {key} = $1::text::{cast}");
    let statement = current_schema(&txn).await?.fill(&statement);
    let values = [Value::from(value)];
    txn.execute_raw(Statement::from_sql_and_values(txn.get_database_backend(), statement, values)).await?;
    txn.commit().await
}
