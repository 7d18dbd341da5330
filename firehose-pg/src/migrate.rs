//! The migrations, on the database that a configuration names.

use std::sync::Weak;

use firehose_core::{Config, Result};
use firehose_migrations::SchemaName;
use sea_orm::{DatabaseConnection, DbErr};

use crate::connect::{database_url, dialler};
use crate::error::{Cause, Work};
use crate::pool;

const OPERATION: &str = "migrate";

/// Makes the tables in the database that `config` names, or adopts those of the gem. Does nothing where all is there.
///
/// # Errors
/// [`ErrorKind::Config`](firehose_core::ErrorKind::Config) where the configuration names no database, and what the
/// database says; then nothing was changed.
///
/// # Cancel safety
/// Dropped half way, nothing is changed, or everything.
pub async fn migrate(config: &Config) -> Result<()> {
    Migrations::connect(config).await?.up().await
}

/// A connection for changing the schema, and what can be done with it. Each call is one transaction.
#[derive(Debug)]
pub struct Migrations {
    db: DatabaseConnection,
    schema: Option<SchemaName>,
}

impl Migrations {
    /// Connects to the database that `config` names.
    ///
    /// # Errors
    /// As [`migrate`].
    ///
    /// # Cancel safety
    /// Dropped half way, it leaves no session behind.
    pub async fn connect(config: &Config) -> Result<Self> {
        config.validate()?;
        let dialler = dialler(config, database_url(config)?)?;
        // The pool would hide why it cannot connect, and knows no second host.
        let dialled = dialler.dial().await.map_err(|cause| cause.explain(OPERATION, Work::Harmless))?;
        let db = pool::open(&dialler, &dialled.address, 1, config.statement_timeout, Weak::new());
        Ok(Self { db, schema: config.schema.as_deref().map(SchemaName::new) })
    }

    /// Makes or adopts the tables: [`firehose_migrations::up`].
    ///
    /// # Errors
    /// What the database says; then nothing was changed.
    pub async fn up(&self) -> Result<()> {
        told(Box::pin(firehose_migrations::up(&self.db, self.schema.as_ref())).await)
    }

    /// Takes away what [`up`](Self::up) added: [`firehose_migrations::down`].
    ///
    /// # Errors
    /// As [`up`](Self::up).
    pub async fn down(&self) -> Result<()> {
        told(Box::pin(firehose_migrations::down(&self.db, self.schema.as_ref())).await)
    }

    /// Makes the gem's 32-bit columns bigint, and says whether there was anything to do: [`firehose_migrations::widen`].
    ///
    /// # Errors
    /// As [`up`](Self::up).
    pub async fn widen(&self) -> Result<bool> {
        told(firehose_migrations::widen(&self.db, self.schema.as_ref()).await)
    }

    /// Changes one of the settings that all processes share: [`firehose_migrations::set`].
    ///
    /// # Errors
    /// [`ErrorKind::Config`](firehose_core::ErrorKind::Config) for a key that is none, else as [`up`](Self::up).
    pub async fn set(&self, key: &str, value: &str) -> Result<()> {
        told(firehose_migrations::set(&self.db, self.schema.as_ref(), key, value).await)
    }
}

fn told<T>(done: Result<T, DbErr>) -> Result<T> {
    done.map_err(|e| Cause::from(e).explain(OPERATION, Work::Harmless))
}
