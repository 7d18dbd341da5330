//! What the tests of a store need.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use firehose_core::{Clock as _, Message, MessageStore, NewMessage, Result};

use crate::conformance::Finish;
use crate::database::Transaction;
use crate::testkit::Testkit;

/// A store under test. Only [`store`](Self::store) must be there; each other method lets more clauses be tried.
///
/// One fixture is one test's: nobody else uses its store, and it is empty when it is made.
#[async_trait]
pub trait StoreFixture: Send + Sync + 'static {
    /// The store, the same one each time.
    fn store(&self) -> Arc<dyn MessageStore>;

    /// Another handle on the same store, as another process has: with nothing in common but what is stored. `None` where
    /// that cannot be had.
    async fn another(&self) -> Option<Arc<dyn MessageStore>> {
        None
    }

    /// The same store after a crash: what was open is gone, without a farewell, and what is on disk is opened anew.
    /// [`store`](Self::store) is not used any more after it. `None` where that cannot be had.
    async fn reopen(&self) -> Option<Arc<dyn MessageStore>> {
        None
    }

    /// Opens a transaction of a writer who is not this store, and who can hold a stream while others are written to.
    /// `None` where that cannot be had.
    async fn begin(&self) -> Option<Box<dyn ForeignTransaction>> {
        None
    }

    /// Makes every message that is stored older by `by`, by turning a clock or by changing what is stored. `false` where
    /// that cannot be done.
    async fn grow_older(&self, by: Duration) -> bool {
        let _ = by;
        false
    }

    /// Puts away what the test used. Called at the end of each test, whatever came of it.
    async fn finish(&self) {}
}

impl Finish for dyn StoreFixture {
    async fn finish(&self) {
        StoreFixture::finish(self).await;
    }
}

/// An open transaction of a writer who is not the store under test. Dropped, it is rolled back.
#[async_trait]
pub trait ForeignTransaction: Send {
    /// Appends a message, which nobody sees before [`commit`](Self::commit); the stream is held from here on. Waits for
    /// who holds it.
    ///
    /// # Errors
    /// What stands in the way: the test fails with it.
    async fn append(&mut self, entry: &NewMessage) -> Result<Message>;

    /// Makes it visible.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    async fn commit(self: Box<Self>) -> Result<()>;

    /// Undoes it.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    async fn rollback(self: Box<Self>) -> Result<()>;
}

/// The store in memory, with everything but a crash.
#[async_trait]
impl StoreFixture for Testkit {
    fn store(&self) -> Arc<dyn MessageStore> {
        self.backend().store
    }

    async fn another(&self) -> Option<Arc<dyn MessageStore>> {
        Some(self.backend().store)
    }

    async fn begin(&self) -> Option<Box<dyn ForeignTransaction>> {
        Some(Box::new(self.database().begin()))
    }

    async fn grow_older(&self, by: Duration) -> bool {
        self.clock().set_wall(self.clock().wall() + by);
        true
    }
}

#[async_trait]
impl ForeignTransaction for Transaction {
    async fn append(&mut self, entry: &NewMessage) -> Result<Message> {
        self.append_message(entry).await
    }

    async fn commit(self: Box<Self>) -> Result<()> {
        Transaction::commit(*self)
    }

    async fn rollback(self: Box<Self>) -> Result<()> {
        Transaction::rollback(*self);
        Ok(())
    }
}
