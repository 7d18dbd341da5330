//! The store over a database in memory.

use std::sync::Arc;

use async_trait::async_trait;
use firehose_core::{
    Anchor, Blocked, Capabilities, Cursor, Epoch, Head, HeadDetail, Message, MessageId, MessageStore, NewMessage, Page,
    PageLimit, Position, Result, Retain, Scope, Settings, StreamName, Trimmed,
};

use crate::database::Database;
use crate::faults::{Faults, Operation};

/// A [`MessageStore`] over a [`Database`].
#[derive(Debug, Clone)]
pub struct MemoryStore {
    database: Database,
    faults: Faults,
}

impl MemoryStore {
    /// A store over `database`, without faults.
    pub fn new(database: &Database) -> Self {
        Self { database: database.clone(), faults: Faults::new(database.clock().clone()) }
    }

    /// The same store, failing as `faults` says.
    #[must_use]
    pub fn with_faults(mut self, faults: &Faults) -> Self {
        self.faults = faults.clone();
        self
    }

    async fn call<T>(
        &self,
        operation: Operation,
        about: impl IntoIterator<Item = String>,
        work: impl FnOnce(&Database) -> T + Send,
    ) -> Result<T> {
        let call = self.faults.begin(operation, about).await?;
        let result = work(&self.database);
        call.end(Ok(result)).await
    }

    /// A read of messages, which may be made to find nothing.
    async fn read<T>(
        &self,
        operation: Operation,
        about: impl IntoIterator<Item = String>,
        work: impl FnOnce(&Database) -> T + Send,
        nothing: impl FnOnce() -> T + Send,
    ) -> Result<T> {
        let call = self.faults.begin(operation, about).await?;
        let result = if call.finds_nothing() { nothing() } else { work(&self.database) };
        call.end(Ok(result)).await
    }

    async fn append_all(&self, entries: &[NewMessage], blocked: Blocked) -> Result<Vec<Result<Message>>> {
        let about = entries.iter().map(|entry| entry.stream.to_string());
        let call = self.faults.begin(Operation::Append, about).await?;
        let results = self.database.append(entries, blocked).await;
        call.end(Ok(results)).await
    }
}

#[async_trait]
impl MessageStore for MemoryStore {
    async fn append(&self, entries: &[NewMessage], blocked: Blocked) -> Vec<Result<Message>> {
        match self.append_all(entries, blocked).await {
            Ok(results) => results,
            Err(error) => entries.iter().map(|_| Err(error.replicate())).collect(),
        }
    }

    async fn get_many(&self, ids: &[MessageId]) -> Result<Vec<Arc<Message>>> {
        let about = ids.iter().map(ToString::to_string);
        self.read(Operation::GetMany, about, |database| database.get_many(ids), Vec::new).await
    }

    async fn read_after(&self, requests: &[(StreamName, Position)], limit: PageLimit) -> Result<Vec<Page>> {
        let about = requests.iter().map(|(stream, _)| stream.to_string());
        let nothing = || requests.iter().map(|_| Page::default()).collect();
        self.read(Operation::ReadAfter, about, |database| database.read_after(requests, limit), nothing).await
    }

    async fn read_before(&self, stream: &StreamName, position: Position, limit: PageLimit) -> Result<Page> {
        let work = |database: &Database| database.read_before(stream, position, limit);
        self.read(Operation::ReadBefore, [stream.to_string()], work, Page::default).await
    }

    async fn heads(&self, streams: &[StreamName], detail: HeadDetail) -> Result<Vec<Option<Head>>> {
        let about = streams.iter().map(ToString::to_string);
        self.call(Operation::Heads, about, |database| database.heads(streams, detail)).await
    }

    async fn anchors(&self, cursors: &[Cursor]) -> Result<Vec<Anchor>> {
        let about = cursors.iter().map(|cursor| cursor.epoch.map_or_else(|| "-".to_owned(), |e| e.to_string()));
        self.call(Operation::Anchors, about, |database| database.anchors(cursors)).await
    }

    async fn trim(&self, scope: Scope, retain: Retain, budget: u64) -> Result<Trimmed> {
        let about = match &scope {
            Scope::Stream(stream) => Some(stream.to_string()),
            Scope::All => None,
        };
        // Held while the call hangs too, as by a trim that takes long.
        let right = (scope == Scope::All).then(|| self.database.try_trim_all());
        let work = |database: &Database| match right {
            Some(None) => Trimmed::default(),
            _ => database.trim(&scope, retain, budget),
        };
        self.call(Operation::Trim, about, work).await
    }

    async fn delete_stream(&self, stream: &StreamName) -> Result<Option<Epoch>> {
        let call = self.faults.begin(Operation::DeleteStream, [stream.to_string()]).await?;
        let result = self.database.delete_stream(stream).await;
        call.end(result).await
    }

    async fn settings(&self) -> Result<Settings> {
        self.call(Operation::Settings, [], Database::settings).await
    }

    async fn recover(&self) -> Result<()> {
        self.call(Operation::Recover, [], |_| ()).await
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::MEMORY
    }
}
