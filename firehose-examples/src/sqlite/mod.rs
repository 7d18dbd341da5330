//! A store on SQLite, in one file: durability for a single node, without a server.
//!
//! It is the example of a [`MessageStore`] of one's own, and a complete one. In reading order: `options` (how it is
//! opened), `schema` (the two tables), `connections` (one that writes, some that read), `append` with `plan` (pure:
//! what an append is to do), `read`, `trim`, and `error` (what SQLite's codes mean).

mod append;
mod connections;
mod error;
mod options;
mod plan;
mod read;
mod schema;
mod trim;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use firehose_core::{
    Anchor, Blocked, Capabilities, Clock, Cursor, Epoch, Head, HeadDetail, Message, MessageId, MessageStore,
    NewMessage, Page, PageLimit, Position, Result, Retain, Scope, StreamName, Trimmed,
};

use connections::Connections;
pub use options::SqliteOptions;

/// A [`MessageStore`] in a file of SQLite. Clones share its connections.
///
/// An append is one transaction, flushed to the disk before it returns (WAL, `synchronous = FULL`). Reads never wait for
/// it. The file may be opened by several processes of one machine at a time: SQLite has one of them write at a time, and
/// each reads what the others committed. It does not work on a network's file system.
///
/// Dropped half way, an append whose COMMIT was not sent is rolled back by the connection's own thread, and one whose
/// COMMIT was sent is whole.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use firehose_core::{Backend, Firehose, InProcess, Start};
/// use firehose_examples::SqliteStore;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("orders.db");
/// let (store, transport) = (SqliteStore::open(&path).await?, InProcess::new());
/// let firehose = Firehose::builder(Backend::new(store, transport.clone(), transport)).start().await?;
/// firehose.broadcast("orders", "paid").await?;
///
/// let mut orders = firehose.subscribe_from("orders", Start::Earliest).await?;
/// assert_eq!(&*orders.next().await.unwrap().message().unwrap().data, "paid");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct SqliteStore {
    connections: Connections,
    clock: Arc<dyn Clock>,
    path: PathBuf,
    /// Held by who trims everything, so that a second one in this process has nothing to do.
    trimming: Arc<tokio::sync::Mutex<()>>,
}

impl SqliteStore {
    /// Opens `path` with the usual options, and makes file and tables where they are missing.
    ///
    /// # Errors
    /// As [`SqliteOptions::open`].
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        SqliteOptions::default().open(path).await
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for what is under way, and closes the file; every later call is an error. Without it the file is as whole,
    /// and what is in its `-wal` file is taken over by whoever opens it next.
    pub async fn close(&self) {
        self.connections.close().await;
    }
}

#[async_trait]
impl MessageStore for SqliteStore {
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

    async fn trim(&self, scope: Scope, retain: Retain, budget: u64) -> Result<Trimmed> {
        self.trim_scope(&scope, retain, budget).await
    }

    async fn delete_stream(&self, stream: &StreamName) -> Result<Option<Epoch>> {
        self.delete(stream).await
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::DURABLE
    }
}
