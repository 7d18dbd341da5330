//! A schema of the benchmark's own, and what runs on it.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use firehose_core::{Config, Error, Firehose, Secret};
use firehose_migrations::SchemaName;
use firehose_pg::Migrations;
use tokio_postgres::{Client, NoTls};

use super::{clock, failed, wrong};

/// How long an engine may go on announcing at its end.
const SHUTDOWN: Duration = Duration::from_secs(30);

/// Where a benchmark works.
#[derive(Clone)]
pub(crate) struct Place {
    url: Secret,
    pub(crate) schema: SchemaName,
    prefix: String,
}

impl Place {
    /// Makes a schema with a random name, with the tables in it and a random prefix.
    pub(crate) async fn make(config: &Config) -> Result<Self, Error> {
        let name = format!("firehose_bench_{:016x}", RandomState::new().hash_one(std::process::id()));
        let place = Self::at(config, &name)?;
        let made = async {
            let migrations = Migrations::connect(&place.config()).await?;
            migrations.up().await?;
            migrations.set("prefix", &place.prefix).await
        };
        if let Err(error) = made.await {
            // Nothing may be there yet; the first error says more.
            drop(place.remove().await);
            return Err(error);
        }
        Ok(place)
    }

    /// The place that another process made.
    pub(crate) fn at(config: &Config, schema: &str) -> Result<Self, Error> {
        let url = config.database_url.clone();
        let url = url.ok_or_else(|| wrong("database_url is not set").with_hint("set FIREHOSE_DATABASE_URL"))?;
        Ok(Self { url, schema: SchemaName::new(schema), prefix: schema.to_owned() })
    }

    pub(crate) fn url(&self) -> &Secret {
        &self.url
    }

    /// Every key has its default, so that figures can be compared.
    pub(crate) fn config(&self) -> Config {
        Config {
            database_url: Some(self.url.clone()),
            schema: Some(self.schema.as_str().to_owned()),
            ..Config::default()
        }
    }

    /// An engine as an application starts it.
    pub(crate) async fn engine(&self) -> Result<Firehose, Error> {
        let config = self.config();
        let backend = firehose_pg::connect(&config).await?;
        Firehose::builder(backend).config(config).start().await
    }

    /// A bare connection, for floors and rivals; without TLS.
    pub(crate) async fn client(&self) -> Result<Client, Error> {
        let options = self.options()?;
        let (client, connection) = options.connect(NoTls).await.map_err(|e| failed("cannot connect", e))?;
        // Its errors reach whoever waits for an answer; it ends with the client.
        tokio::spawn(connection);
        Ok(client)
    }

    pub(crate) fn options(&self) -> Result<tokio_postgres::Config, Error> {
        // The error is not shown: it may quote the URL.
        let parsed = self.url.expose().parse::<tokio_postgres::Config>();
        parsed.map_err(|_| wrong("the floors cannot read the URL: use no parameters of libpq's beyond tokio-postgres'"))
    }

    /// Empties the tables, so that each half of a round begins alike, and makes the stream.
    pub(crate) async fn fresh(&self, client: &Client, stream: &str) -> Result<(), Error> {
        let s = self.schema.quoted();
        let empty = format!("TRUNCATE {s}.firehose_messages, {s}.firehose_channels");
        client.batch_execute(&empty).await.map_err(|e| failed("cannot empty the tables", e))?;
        let make = format!("INSERT INTO {s}.firehose_channels (name) VALUES ($1)");
        client.execute(&make, &[&stream]).await.map_err(|e| failed("cannot make the stream", e))?;
        Ok(())
    }

    /// Empties the tables, and makes `idle 1` to `idle n` with a message each.
    pub(crate) async fn fill(&self, client: &Client, streams: usize) -> Result<(), Error> {
        let s = self.schema.quoted();
        let sql = format!(
            "TRUNCATE {s}.firehose_messages, {s}.firehose_channels;
             INSERT INTO {s}.firehose_channels (name, sequence, messages_count)
               SELECT 'idle ' || n, 1, 1 FROM generate_series(1, {streams}) n;
             INSERT INTO {s}.firehose_messages (channel_id, sequence, data)
               SELECT id, 1, 'x' FROM {s}.firehose_channels;
             ANALYZE {s}.firehose_channels, {s}.firehose_messages"
        );
        client.batch_execute(&sql).await.map_err(|e| failed("cannot make the streams", e))
    }

    /// How many messages there are.
    pub(crate) async fn count(&self, client: &Client) -> Result<u64, Error> {
        let sql = format!("SELECT count(*) FROM {}.firehose_messages", self.schema.quoted());
        let row = client.query_one(&sql, &[]).await.map_err(|e| failed("cannot count", e))?;
        let count: i64 = row.try_get(0).map_err(|e| failed("cannot count", e))?;
        Ok(count.unsigned_abs())
    }

    /// Drops the schema with all that is in it. What was cut short may hold it for a moment.
    pub(crate) async fn remove(&self) -> Result<(), Error> {
        let client = self.client().await?;
        let sql = format!("DROP SCHEMA IF EXISTS {} CASCADE", self.schema.quoted());
        let dropped = clock::within(SHUTDOWN, client.batch_execute(&sql)).await;
        let said = || wrong(format!("the schema {} is still there: something holds it", self.schema.quoted()));
        dropped.ok_or_else(said)?.map_err(|e| failed("cannot drop the schema", e))
    }
}

/// Ends an engine, and sees that it announced everything.
pub(crate) async fn end(engine: &Firehose) -> Result<(), Error> {
    engine.shutdown(SHUTDOWN).await;
    let metrics = engine.diagnostics().metrics;
    match (metrics.commands_dropped, metrics.notify_failures) {
        (0, 0) => Ok(()),
        (dropped, refused) => {
            Err(wrong(format!("not all was announced: {dropped} dropped, {refused} statements failed")))
        }
    }
}
