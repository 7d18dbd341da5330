//! The table: messages are read through sea-orm, and appended through connections of their own.

mod append;
mod batch;
mod changed;
mod read;
mod sql;
mod trim;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use firehose_core::{
    Anchor, Blocked, Capabilities, Changed, Cursor, Epoch, Head, HeadDetail, Message, MessageId, MessageStore,
    NewMessage, Page, PageLimit, Position, Result, Retain, Scope, Settings, StreamName, SweepMark, Trimmed,
};
use firehose_migrations::SchemaName;

use crate::pool::Pool;
use crate::sessions::Sessions;
use sql::Sql;

/// A [`MessageStore`] on PostgreSQL, on the tables that [`migrate`](crate::migrate) made or adopted.
#[derive(Debug)]
pub struct PgStore {
    pool: Arc<Pool>,
    /// For appends that wait for nobody.
    writers: Sessions,
    /// For appends that wait for someone's transaction, so that they keep no place from the others.
    waiters: Sessions,
    sql: Sql,
    schema: SchemaName,
    timeout: Duration,
}

impl PgStore {
    pub(crate) fn new(
        pool: Arc<Pool>,
        writers: Sessions,
        waiters: Sessions,
        schema: SchemaName,
        timeout: Duration,
    ) -> Self {
        Self { pool, writers, waiters, sql: Sql::new(&schema), schema, timeout }
    }
}

#[async_trait]
impl MessageStore for PgStore {
    async fn append(&self, entries: &[NewMessage], blocked: Blocked) -> Vec<Result<Message>> {
        self.append_entries(entries, blocked).await
    }

    async fn get_many(&self, ids: &[MessageId]) -> Result<Vec<Arc<Message>>> {
        self.get_by_id(ids).await
    }

    async fn read_after(&self, requests: &[(StreamName, Position)], limit: PageLimit) -> Result<Vec<Page>> {
        self.pages_after(requests, limit).await
    }

    async fn read_before(&self, stream: &StreamName, position: Position, limit: PageLimit) -> Result<Page> {
        self.page_before(stream, position, limit).await
    }

    async fn heads(&self, streams: &[StreamName], detail: HeadDetail) -> Result<Vec<Option<Head>>> {
        self.read_heads(streams, detail).await
    }

    async fn anchors(&self, cursors: &[Cursor]) -> Result<Vec<Anchor>> {
        self.compare(cursors).await
    }

    async fn changed_since(&self, mark: SweepMark, most: usize) -> Result<(Changed, SweepMark)> {
        self.what_changed(mark, most).await
    }

    async fn trim(&self, scope: Scope, retain: Retain, budget: u64) -> Result<Trimmed> {
        self.trim_scope(scope, retain, budget).await
    }

    async fn delete_stream(&self, stream: &StreamName) -> Result<Option<Epoch>> {
        self.delete(stream).await
    }

    async fn settings(&self) -> Result<Settings> {
        self.read_settings().await
    }

    /// Replaces the pool and closes what is idle: whatever hangs then hangs without us.
    async fn recover(&self) -> Result<()> {
        self.writers.forget();
        self.waiters.forget();
        self.pool.replace().await;
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::DURABLE
    }
}
