//! A database a test, copied from one that is migrated already.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use firehose_core::{Backend, Config};
use firehose_migrations::SchemaName;
use firehose_pg::DatabaseUrl;
use sea_orm::{ConnectOptions, Database, DatabaseConnection};
use tokio_postgres::{Client, NoTls};

use super::{Cluster, Shape, Shared};

/// What the gem's migration makes, to the letter.
pub(crate) const GEM: &str = "
CREATE TABLE firehose_channels (
  id bigserial PRIMARY KEY, name text NOT NULL, sequence integer NOT NULL DEFAULT 0,
  messages_count integer NOT NULL DEFAULT 0,
  created_at timestamp(6) without time zone NOT NULL, updated_at timestamp(6) without time zone NOT NULL);
CREATE UNIQUE INDEX index_firehose_channels_on_name ON firehose_channels (name);
CREATE TABLE firehose_messages (
  id bigserial PRIMARY KEY, channel_id bigint NOT NULL, sequence integer NOT NULL, data text NOT NULL,
  created_at timestamp(6) without time zone NOT NULL DEFAULT now());
CREATE INDEX index_firehose_messages_on_channel_id ON firehose_messages (channel_id);
CREATE UNIQUE INDEX index_firehose_messages_on_channel_id_and_sequence ON firehose_messages (channel_id, sequence);
ALTER TABLE firehose_messages ADD CONSTRAINT fk_rails_a277ba80b0
  FOREIGN KEY (channel_id) REFERENCES firehose_channels (id) ON DELETE CASCADE;";

/// A database of a test's own.
#[derive(Clone)]
pub(crate) struct TestDatabase {
    pub(crate) name: String,
    pub(crate) cluster: &'static Cluster,
}

impl TestDatabase {
    /// Where it is: through the socket, without a password.
    pub(crate) fn url(&self) -> DatabaseUrl {
        self.cluster.url(&self.name)
    }

    /// The configuration that names it.
    pub(crate) fn config(&self) -> Config {
        Config {
            database_url: Some(self.url().to_secret()),
            statement_timeout: Duration::from_secs(10),
            ..Config::default()
        }
    }

    pub(crate) async fn backend(&self) -> Backend {
        firehose_pg::connect(&self.config()).await.expect("a backend")
    }

    /// A session of somebody else's.
    pub(crate) async fn client(&self) -> Client {
        connect(self.cluster, &self.name).await
    }

    pub(crate) async fn execute(&self, sql: &str) {
        self.client().await.batch_execute(sql).await.expect(sql);
    }

    /// The first column of the first row, as a number.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.client().await.query_one(sql, &[]).await.expect(sql).get(0)
    }

    /// A connection of sea-orm's, for migrations and callers' transactions.
    pub(crate) async fn orm(&self) -> DatabaseConnection {
        let url = self.url().to_secret();
        let mut options = ConnectOptions::new(url.expose());
        options.sqlx_logging(false).max_connections(2);
        Database::connect(options).await.expect("sea-orm")
    }
}

impl TestDatabase {
    /// A new one; [`TestDatabase::give_up`] takes it away.
    pub(crate) async fn create(shape: Shape) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let Shared { cluster, .. } = Cluster::get();
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let admin = connect(cluster, "postgres").await;
        let template = match shape {
            Shape::Fresh => "fresh",
            Shape::Adopted => "adopted",
            Shape::Empty => "template0",
        };
        admin.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {template}")).await.expect("a database");
        Self { name, cluster }
    }

    /// Nobody waits for its end: a server that drops a database writes everything out first.
    pub(crate) fn give_up(&self) {
        Cluster::get().unused.send(self.name.clone()).expect("someone who drops databases");
    }
}

/// Runs `test` on a database of its own, which goes after it.
pub(crate) async fn run<F: Future<Output = ()>>(shape: Shape, test: impl FnOnce(TestDatabase) -> F) {
    let database = TestDatabase::create(shape).await;
    test(database.clone()).await;
    database.give_up();
}

/// Makes the databases that the tests' are copied from.
pub(super) fn make_templates(cluster: &Cluster) {
    let make = async {
        let admin = connect(cluster, "postgres").await;
        for name in ["fresh", "adopted"] {
            admin.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a template");
            let client = connect(cluster, name).await;
            if name == "adopted" {
                client.batch_execute(GEM).await.expect("the gem's tables");
            }
            let script = firehose_migrations::print(&SchemaName::new("public"));
            client.batch_execute(&script).await.expect("the migrations, as plain SQL");
        }
    };
    // Whoever asks first is inside a runtime already.
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    std::thread::scope(|scope| scope.spawn(|| runtime().block_on(make)).join().expect("templates"));
}

/// Drops databases that nobody uses any more, for as long as the run lasts.
pub(super) fn drop_unused(folder: PathBuf, port: u16, unused: mpsc::Receiver<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let admin = connect_to(&folder, port, "postgres").await;
        for name in unused {
            // At the end of the run the server goes first.
            drop(admin.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await);
        }
    });
}

async fn connect(cluster: &Cluster, database: &str) -> Client {
    connect_to(&cluster.folder, cluster.port, database).await
}

pub(super) async fn connect_to(folder: &Path, port: u16, database: &str) -> Client {
    let mut options = tokio_postgres::Config::new();
    options.host_path(folder).port(port).user("postgres").dbname(database);
    let (client, connection) = options.connect(NoTls).await.expect("the test server");
    tokio::spawn(connection);
    client
}
