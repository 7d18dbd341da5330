//! What the tests of a transport need.

use std::sync::Arc;

use async_trait::async_trait;
use firehose_core::{ErrorKind, InProcess, Listener, Notification, Notifier, Result};

use crate::conformance::Finish;
use crate::database::Transaction;
use crate::faults::Operation;
use crate::testkit::Testkit;

/// A notifier and a listener over one wire, under test. Only the two must be there; each other method lets more clauses
/// be tried.
///
/// One fixture is one test's: nobody else uses its wire, and nobody listens when it is made.
#[async_trait]
pub trait TransportFixture: Send + Sync + 'static {
    /// Sends over the wire; the same one each time.
    fn notifier(&self) -> Arc<dyn Notifier>;

    /// Opens sessions on the same wire; the same one each time.
    fn listener(&self) -> Arc<dyn Listener>;

    /// Cuts the connection of every open session, as a network or a server does. `false` where that cannot be done.
    async fn cut(&self) -> bool {
        false
    }

    /// Makes the next command of a session, whichever it is, fail at the other end, and leaves the session as it is.
    /// `false` where that cannot be done.
    async fn refuse_next_command(&self) -> bool {
        false
    }

    /// Opens a transaction of a sender who is not this notifier, with one notification in it. `None` where the wire
    /// knows no transactions.
    async fn begin(&self, notification: Notification) -> Option<Box<dyn PendingNotification>> {
        let _ = notification;
        None
    }

    /// More notifications than a session may leave unread, where it has a limit: so many are sent to one that reads
    /// nothing. The default is more than any of this project's transports takes.
    fn too_many_unread(&self) -> usize {
        70_000
    }

    /// How many sessions of this listener the other end has open. `None` where it cannot be asked.
    async fn open_sessions(&self) -> Option<usize> {
        None
    }

    /// Puts away what the test used. Called at the end of each test, whatever came of it.
    async fn finish(&self) {}
}

impl Finish for dyn TransportFixture {
    async fn finish(&self) {
        TransportFixture::finish(self).await;
    }
}

/// A notification in a transaction that is open. Dropped, it is not sent.
#[async_trait]
pub trait PendingNotification: Send {
    /// Sends it.
    ///
    /// # Errors
    /// What stands in the way: the test fails with it.
    async fn commit(self: Box<Self>) -> Result<()>;
}

/// The wire in memory, with everything.
#[async_trait]
impl TransportFixture for Testkit {
    fn notifier(&self) -> Arc<dyn Notifier> {
        self.backend().notifier
    }

    fn listener(&self) -> Arc<dyn Listener> {
        Arc::new(self.process().listener())
    }

    async fn cut(&self) -> bool {
        self.wire().cut();
        true
    }

    async fn refuse_next_command(&self) -> bool {
        self.faults().on(Operation::Listen).fail(1, ErrorKind::Backend);
        self.faults().on(Operation::Unlisten).fail(1, ErrorKind::Backend);
        true
    }

    async fn begin(&self, notification: Notification) -> Option<Box<dyn PendingNotification>> {
        let mut transaction = self.database().begin();
        transaction.notify(notification.channel, notification.payload).ok()?;
        Some(Box::new(transaction))
    }

    async fn open_sessions(&self) -> Option<usize> {
        Some(self.wire().session_count())
    }
}

#[async_trait]
impl PendingNotification for Transaction {
    async fn commit(self: Box<Self>) -> Result<()> {
        Transaction::commit(*self)
    }
}

/// The transport of a single process, where nothing can be cut.
#[async_trait]
impl TransportFixture for InProcess {
    fn notifier(&self) -> Arc<dyn Notifier> {
        Arc::new(self.clone())
    }

    fn listener(&self) -> Arc<dyn Listener> {
        Arc::new(self.clone())
    }
}
