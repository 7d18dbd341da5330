//! The migrations, in order.

use sea_orm_migration::prelude::*;
use sea_orm_migration::sea_orm::{ConnectionTrait, Statement};

use crate::schema::SchemaName;
use crate::sql;

/// The migrations of Firehose, for who drives them with sea-orm-migration itself; [`up`](crate::up) also takes the lock
/// without which concurrent runs fail.
#[derive(Debug)]
pub struct Migrator;

impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        STEPS.iter().map(|step| Box::new(*step) as Box<dyn MigrationTrait>).collect()
    }

    fn migration_table_name() -> DynIden {
        Alias::new("firehose_migrations").into_iden()
    }
}

/// One migration: its version, and what it says forwards and backwards.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) version: &'static str,
    pub(crate) up: &'static str,
    pub(crate) down: &'static str,
}

/// The settings come first: they note whether the tables are there already.
pub(crate) const STEPS: [Step; 3] = [
    Step { version: "m20261201_000001_settings", up: sql::settings::UP, down: sql::settings::DOWN },
    Step { version: "m20261201_000002_tables", up: sql::tables::UP, down: sql::tables::DOWN },
    Step { version: "m20261201_000003_functions", up: sql::functions::UP, down: sql::functions::DOWN },
];

impl MigrationName for Step {
    fn name(&self) -> &str {
        self.version
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Step {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        self.run(manager, self.up).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        self.run(manager, self.down).await
    }
}

impl Step {
    async fn run(&self, manager: &SchemaManager<'_>, template: &str) -> Result<(), DbErr> {
        let connection = manager.get_connection();
        let schema = current_schema(connection).await?;
        connection.execute_unprepared(&schema.fill(template)).await?;
        Ok(())
    }
}

/// The first schema of the `search_path` that exists.
pub(crate) async fn current_schema(connection: &impl ConnectionTrait) -> Result<SchemaName, DbErr> {
    let statement = Statement::from_string(connection.get_database_backend(), "SELECT current_schema()::text");
    let row = connection.query_one_raw(statement).await?;
    let name: Option<String> = row.map(|row| row.try_get_by_index(0)).transpose()?.flatten();
    name.map(SchemaName::new)
        .ok_or_else(|| DbErr::Custom("no schema of the search_path exists: name one in the configuration".to_owned()))
}
