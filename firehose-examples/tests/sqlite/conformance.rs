//! The contract of `MessageStore`, clause by clause.
//!
//! What a writer holds here is the whole file, not one stream, so the clauses on held streams are skipped: how a held
//! file is met is in `appending` and `trimming`.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use firehose_core::MessageStore;
use firehose_examples::{SqliteOptions, SqliteStore};
use firehose_testkit::conformance::StoreFixture;

use crate::harness::{Days, Folder};

/// A fresh file, and a calendar to turn.
struct Fresh {
    folder: Folder,
    store: SqliteStore,
    days: Days,
}

impl Fresh {
    async fn new() -> Self {
        let (folder, days) = (Folder::new(), Days::default());
        let store = folder.store_with(SqliteOptions::default().with_clock(days.clone())).await;
        Self { folder, store, days }
    }

    async fn open(&self, name: &str) -> Option<Arc<dyn MessageStore>> {
        let store = SqliteOptions::default().with_clock(self.days.clone()).open(self.folder.path(name)).await;
        Some(Arc::new(store.unwrap()))
    }
}

#[async_trait::async_trait]
impl StoreFixture for Fresh {
    fn store(&self) -> Arc<dyn MessageStore> {
        Arc::new(self.store.clone())
    }

    async fn another(&self) -> Option<Arc<dyn MessageStore>> {
        self.open("store.db").await
    }

    /// The files as a crash leaves them, opened elsewhere: here they are open still.
    async fn reopen(&self) -> Option<Arc<dyn MessageStore>> {
        for file in ["db", "db-wal"] {
            fs::copy(self.folder.path(&format!("store.{file}")), self.folder.path(&format!("crashed.{file}"))).unwrap();
        }
        self.open("crashed.db").await
    }

    async fn grow_older(&self, by: Duration) -> bool {
        self.days.pass(by);
        true
    }

    async fn finish(&self) {
        self.store.close().await;
    }
}

firehose_testkit::conformance::message_store!(Fresh::new().await);
