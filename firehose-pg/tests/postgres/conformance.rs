//! The conformance suite on PostgreSQL: in both layouts, and on a database that was adopted from the gem.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use firehose_core::{
    Config, Epoch, Error, ErrorKind, Listener, Message, MessageId, MessageStore, NewMessage, Notification, Notifier,
    Result, Sequence,
};
use firehose_testkit::conformance::{ForeignTransaction, PendingNotification, StoreFixture, TransportFixture};
use tokio_postgres::Client;

use crate::harness::{Shape, TestDatabase};

mod per_stream {
    firehose_testkit::conformance::message_store!(super::Pg::store(super::Shape::Fresh, "per_stream").await);
}

mod buckets {
    firehose_testkit::conformance::message_store!(super::Pg::store(super::Shape::Fresh, "buckets").await);
}

mod adopted {
    firehose_testkit::conformance::message_store!(super::Pg::store(super::Shape::Adopted, "per_stream").await);
}

mod transport {
    firehose_testkit::conformance::notifier!(super::Wire::new(4).await);
    firehose_testkit::conformance::listener!(super::Wire::new(4).await);
}

/// Notifications go through the store's pool.
mod transport_through_the_pool {
    firehose_testkit::conformance::notifier!(super::Wire::new(0).await);
}

/// A store on a database of its own.
struct Pg {
    db: TestDatabase,
    store: Arc<dyn MessageStore>,
}

impl Pg {
    async fn store(shape: Shape, layout: &str) -> Self {
        let db = TestDatabase::create(shape).await;
        if layout != "per_stream" {
            db.execute(&format!("UPDATE firehose_settings SET layout = '{layout}'")).await;
        }
        let store = db.backend().await.store;
        Self { db, store }
    }
}

#[async_trait]
impl StoreFixture for Pg {
    fn store(&self) -> Arc<dyn MessageStore> {
        self.store.clone()
    }

    async fn another(&self) -> Option<Arc<dyn MessageStore>> {
        Some(self.db.backend().await.store)
    }

    async fn reopen(&self) -> Option<Arc<dyn MessageStore>> {
        terminate(&self.db, "pid <> pg_backend_pid()").await;
        Some(self.db.backend().await.store)
    }

    async fn begin(&self) -> Option<Box<dyn ForeignTransaction>> {
        Some(Box::new(Open::begin(&self.db).await))
    }

    async fn grow_older(&self, by: Duration) -> bool {
        let seconds = by.as_secs();
        let sql = format!("UPDATE firehose_messages SET created_at = created_at - interval '{seconds} s'");
        self.db.execute(&sql).await;
        true
    }

    async fn finish(&self) {
        self.db.give_up();
    }
}

/// A notifier and a listener on a database of their own.
struct Wire {
    db: TestDatabase,
    notifier: Arc<dyn Notifier>,
    listener: Arc<dyn Listener>,
    /// How many connections the listener's backend has beside its sessions.
    beside: i64,
}

/// What tells the listener's sessions from others.
const LISTENING: &str = "application_name = 'listening'";

impl Wire {
    async fn new(notify_pool_size: usize) -> Self {
        let db = TestDatabase::create(Shape::Fresh).await;
        let sending = Config { notify_pool_size, ..db.config() };
        let listening = Config { application_name: "listening".to_owned(), ..db.config() };
        let notifier = firehose_pg::connect(&sending).await.expect("a backend").notifier;
        let listener = firehose_pg::connect(&listening).await.expect("a backend").listener.expect("a listener");
        let beside = sessions(&db).await;
        Self { db, notifier, listener, beside }
    }
}

#[async_trait]
impl TransportFixture for Wire {
    fn notifier(&self) -> Arc<dyn Notifier> {
        self.notifier.clone()
    }

    fn listener(&self) -> Arc<dyn Listener> {
        self.listener.clone()
    }

    async fn cut(&self) -> bool {
        terminate(&self.db, LISTENING).await;
        true
    }

    async fn begin(&self, notification: Notification) -> Option<Box<dyn PendingNotification>> {
        let open = Open::begin(&self.db).await;
        let sql = "SELECT 1 FROM pg_notify($1, $2)";
        open.0.query_one(sql, &[&notification.channel.as_str(), &&*notification.payload]).await.expect(sql);
        Some(Box::new(open))
    }

    async fn open_sessions(&self) -> Option<usize> {
        usize::try_from(sessions(&self.db).await - self.beside).ok()
    }

    async fn finish(&self) {
        self.db.give_up();
    }
}

async fn sessions(db: &TestDatabase) -> i64 {
    let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE {LISTENING} AND datname = current_database()");
    db.number(&sql).await
}

/// Ends the sessions of a database that `which` says, and waits for their end.
async fn terminate(db: &TestDatabase, which: &str) {
    let sql = format!(
        "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE datname = current_database() AND {which}"
    );
    db.number(&sql).await;
}

/// Somebody else's open transaction.
struct Open(Client);

impl Open {
    async fn begin(db: &TestDatabase) -> Self {
        let client = db.client().await;
        client.batch_execute("BEGIN").await.expect("BEGIN");
        Self(client)
    }

    async fn end(self: Box<Self>, how: &str) -> Result<()> {
        self.0.batch_execute(how).await.map_err(failed)
    }
}

fn failed(error: tokio_postgres::Error) -> Error {
    Error::new(ErrorKind::Backend, "another writer", error.to_string()).with_source(error)
}

#[async_trait]
impl ForeignTransaction for Open {
    async fn append(&mut self, entry: &NewMessage) -> Result<Message> {
        let sql = "SELECT id, channel_id, sequence FROM firehose_append($1, $2, $3)";
        let key = entry.key.as_ref().map(|key| key.as_str());
        let row = self.0.query_one(sql, &[&entry.stream.as_str(), &&*entry.data, &key]).await.map_err(failed)?;
        let (id, epoch, sequence) = (MessageId(row.get(0)), Epoch(row.get(1)), Sequence(row.get(2)));
        Ok(Message::new(id, epoch, sequence, entry.stream.clone(), entry.data.clone()))
    }

    async fn commit(self: Box<Self>) -> Result<()> {
        self.end("COMMIT").await
    }

    async fn rollback(self: Box<Self>) -> Result<()> {
        self.end("ROLLBACK").await
    }
}

#[async_trait]
impl PendingNotification for Open {
    async fn commit(self: Box<Self>) -> Result<()> {
        self.end("COMMIT").await
    }
}
