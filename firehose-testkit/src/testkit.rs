//! Everything together.

use firehose_core::{Backend, Clock};
use std::sync::Arc;

use crate::clock::ManualClock;
use crate::database::Database;
use crate::faults::Faults;
use crate::listener::WireListener;
use crate::notifier::WireNotifier;
use crate::store::MemoryStore;
use crate::wire::Wire;

/// A database in memory with its wire, a clock to turn by hand, and faults on demand. One seed gives one course of events.
///
/// ```
/// use firehose_core::{Blocked, NewMessage};
/// use firehose_testkit::Testkit;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), firehose_core::Error> {
/// let testkit = Testkit::new(7);
/// let (one, other) = (testkit.backend(), testkit.backend());
/// let stored = one.store.append(&[NewMessage::new("orders", "paid")?], Blocked::Wait).await.remove(0)?;
/// assert_eq!(*other.store.get_many(&[stored.id]).await?[0], stored, "they share the database");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Testkit {
    seed: u64,
    clock: ManualClock,
    database: Database,
    faults: Faults,
}

impl Testkit {
    /// An empty database at the clock's origin, without faults.
    pub fn new(seed: u64) -> Self {
        let clock = ManualClock::new();
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        Self { seed, database: Database::new(seed, shared.clone()), faults: Faults::new(shared), clock }
    }

    /// The number that repeats this run.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The clock of everything here; give it to the engine too.
    pub fn clock(&self) -> ManualClock {
        self.clock.clone()
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// What carries notifications, and loses them on demand.
    pub fn wire(&self) -> &Wire {
        self.database.wire()
    }

    /// The faults of all backends together, and the trace.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// A backend, as another process of the same database has one.
    pub fn backend(&self) -> Backend {
        self.process().backend()
    }

    /// Another process of the same database, whose faults can be told from those of others.
    pub fn process(&self) -> Process {
        Process { database: self.database.clone(), faults: self.faults.for_process() }
    }
}

/// One process of those that share a [`Testkit`]'s database.
///
/// ```
/// use firehose_core::ErrorKind;
/// use firehose_testkit::{Operation, Testkit};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), firehose_core::Error> {
/// let testkit = Testkit::new(7);
/// let (one, other) = (testkit.process(), testkit.process());
/// one.faults().on(Operation::Settings).refuse(ErrorKind::ConnectionLost);
/// assert!(one.backend().store.settings().await.is_err());
/// assert!(other.backend().store.settings().await.is_ok());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Process {
    database: Database,
    faults: Faults,
}

impl Process {
    /// This process's backend; each is on the same faults.
    pub fn backend(&self) -> Backend {
        Backend::new(self.store(), self.notifier(), self.listener())
    }

    /// Its store.
    pub fn store(&self) -> MemoryStore {
        MemoryStore::new(&self.database).with_faults(&self.faults)
    }

    /// Its notifier.
    pub fn notifier(&self) -> WireNotifier {
        WireNotifier::new(self.database.wire()).with_faults(&self.faults)
    }

    /// Its listener.
    pub fn listener(&self) -> WireListener {
        WireListener::new(self.database.wire()).with_faults(&self.faults)
    }

    /// Its own faults. It meets those of [`Testkit::faults`] too.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The number that the trace knows it by.
    pub fn number(&self) -> u32 {
        self.faults.process()
    }

    /// Cuts its sessions, and nobody else's.
    pub fn cut(&self) {
        self.database.wire().cut_where(|process| process == self.number());
    }

    /// Makes its open sessions half-open, as [`Wire::freeze`] does with all.
    pub fn freeze(&self) {
        self.database.wire().freeze_where(|process| process == self.number());
    }
}
