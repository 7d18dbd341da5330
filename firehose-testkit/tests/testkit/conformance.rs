//! The conformance suite on everything in memory, bare, behind each wrapper, and through `Arc<dyn …>`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use firehose_core::{Clock, InProcess, Listener, MessageStore, Notification, Notifier, SystemClock};
use firehose_testkit::conformance::{
    ClockFixture, ForeignTransaction, PendingNotification, StoreFixture, TransportFixture,
};
use firehose_testkit::{ManualClock, MemoryStore, Testkit, WireListener, WireNotifier};

/// Behind [`Faults`](firehose_testkit::Faults) that are told nothing.
mod memory {
    firehose_testkit::conformance::message_store!(super::Testkit::new(1));
    firehose_testkit::conformance::notifier!(super::Testkit::new(1));
    firehose_testkit::conformance::listener!(super::Testkit::new(1));
}

mod bare {
    firehose_testkit::conformance::message_store!(super::Other::new(|testkit| {
        super::Arc::new(super::MemoryStore::new(testkit.database()))
    }));
    firehose_testkit::conformance::notifier!(super::OtherWire::bare());
    firehose_testkit::conformance::listener!(super::OtherWire::bare());
}

/// An `Arc<dyn …>` that is used as a backend itself. Time stands still, so what hangs is seen at once.
mod through_arc {
    firehose_testkit::conformance::message_store!(
        super::Other::new(|testkit| super::Arc::new(testkit.backend().store)),
        runtime = super::paused(),
    );
    firehose_testkit::conformance::notifier!(super::OtherWire::through_arc(), runtime = super::paused());
    firehose_testkit::conformance::listener!(super::OtherWire::through_arc(), runtime = super::paused());
    firehose_testkit::conformance::clock!(super::ArcClock(super::ManualClock::new()), runtime = super::paused());
}

mod in_process {
    firehose_testkit::conformance::notifier!(super::InProcess::new());
    firehose_testkit::conformance::listener!(super::InProcess::new());
}

mod system_clock {
    firehose_testkit::conformance::clock!(super::SystemClock::new());
}

mod manual_clock {
    firehose_testkit::conformance::clock!(super::ManualClock::new(), runtime = super::paused());
}

/// A runtime whose own time stands still, as the manual clock needs it.
fn paused() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// A testkit's database through other stores than its own.
struct Other {
    testkit: Testkit,
    open: fn(&Testkit) -> Arc<dyn MessageStore>,
}

impl Other {
    fn new(open: fn(&Testkit) -> Arc<dyn MessageStore>) -> Self {
        Self { testkit: Testkit::new(1), open }
    }
}

#[async_trait]
impl StoreFixture for Other {
    fn store(&self) -> Arc<dyn MessageStore> {
        (self.open)(&self.testkit)
    }

    async fn another(&self) -> Option<Arc<dyn MessageStore>> {
        Some((self.open)(&self.testkit))
    }

    async fn begin(&self) -> Option<Box<dyn ForeignTransaction>> {
        StoreFixture::begin(&self.testkit).await
    }

    async fn grow_older(&self, by: Duration) -> bool {
        self.testkit.grow_older(by).await
    }
}

/// A testkit's wire through other ends than its own.
struct OtherWire {
    testkit: Testkit,
    notifier: Arc<dyn Notifier>,
    listener: Arc<dyn Listener>,
}

impl OtherWire {
    fn bare() -> Self {
        let testkit = Testkit::new(1);
        let (notifier, listener) = (WireNotifier::new(testkit.wire()), WireListener::new(testkit.wire()));
        Self { notifier: Arc::new(notifier), listener: Arc::new(listener), testkit }
    }

    fn through_arc() -> Self {
        let testkit = Testkit::new(1);
        let notifier: Arc<dyn Notifier> = testkit.backend().notifier;
        let listener: Arc<dyn Listener> = testkit.backend().listener.unwrap();
        Self { notifier: Arc::new(notifier), listener: Arc::new(listener), testkit }
    }
}

#[async_trait]
impl TransportFixture for OtherWire {
    fn notifier(&self) -> Arc<dyn Notifier> {
        self.notifier.clone()
    }

    fn listener(&self) -> Arc<dyn Listener> {
        self.listener.clone()
    }

    async fn cut(&self) -> bool {
        self.testkit.cut().await
    }

    async fn refuse_next_command(&self) -> bool {
        // The bare ends know no faults.
        false
    }

    async fn begin(&self, notification: Notification) -> Option<Box<dyn PendingNotification>> {
        TransportFixture::begin(&self.testkit, notification).await
    }

    async fn open_sessions(&self) -> Option<usize> {
        self.testkit.open_sessions().await
    }
}

struct ArcClock(ManualClock);

#[async_trait]
impl ClockFixture for ArcClock {
    fn clock(&self) -> Arc<dyn Clock> {
        let inner: Arc<dyn Clock> = Arc::new(self.0.clone());
        Arc::new(inner)
    }

    async fn pass(&self, by: Duration) {
        self.0.advance(by).await;
    }
}
