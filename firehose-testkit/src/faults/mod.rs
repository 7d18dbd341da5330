//! What a test lets go wrong: operations that fail or hang, and a wire that loses, doubles and shuffles.

mod call;
mod hold;
mod operation;
mod plan;
mod trace;
mod wire_rules;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use firehose_core::{Clock, Error, ErrorKind};
use tokio::sync::Notify;

pub use hold::Hold;
pub use operation::Operation;
use plan::{Moment, Plan};
use trace::Trace;
pub use trace::{Phase, Traced};
pub(crate) use wire_rules::WireRules;

/// Lets the calls to a backend fail, hang and take time, and keeps a trace of them; clones are the same handle.
///
/// A fault here is one of an [`Operation`]; those of the wire itself are on [`Wire`](crate::Wire). A [`Testkit`](crate::Testkit)
/// has one handle for all its backends, and each of its [processes](crate::Process) one for itself: a call meets the
/// common faults first. Each fault is used up by the calls it hits, in the order in which it was asked for.
///
/// ```
/// use firehose_core::{Blocked, ErrorKind, NewMessage};
/// use firehose_testkit::{Operation, Testkit};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), firehose_core::Error> {
/// let testkit = Testkit::new(1);
/// let store = testkit.backend().store;
/// testkit.faults().on(Operation::Append).lose_answer(1);
///
/// let entry = NewMessage::new("orders", "paid")?.key("payment-7")?;
/// let lost = store.append(&[entry.clone()], Blocked::Wait).await.remove(0);
/// assert_eq!(lost.map_err(|e| e.kind()), Err(ErrorKind::OutcomeUnknown));
///
/// let first = store.append(&[entry], Blocked::Wait).await.remove(0)?;
/// assert_eq!((first.sequence.0, testkit.database().messages("orders").len()), (1, 1), "it had been stored");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Faults {
    shared: Arc<Shared>,
    /// The faults that all processes have in common, where these are one process's own.
    common: Option<Box<Faults>>,
}

struct Shared {
    process: u32,
    processes: Arc<AtomicU32>,
    clock: Arc<dyn Clock>,
    trace: Arc<Trace>,
    plans: Mutex<HashMap<Operation, Plan>>,
    /// A hold was released.
    released: Notify,
    /// How many more reads of messages find nothing.
    hidden: AtomicU64,
}

/// The faults of one operation, on the way to being asked for.
#[derive(Debug)]
#[must_use = "does nothing until a fault is chosen"]
pub struct On<'a> {
    faults: &'a Faults,
    operation: Operation,
}

impl Faults {
    /// No faults yet; delays are on `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let shared = Shared {
            process: 0,
            processes: Arc::new(AtomicU32::new(0)),
            trace: Arc::new(Trace::default()),
            plans: Mutex::new(HashMap::new()),
            released: Notify::new(),
            hidden: AtomicU64::new(0),
            clock,
        };
        Self { shared: Arc::new(shared), common: None }
    }

    /// Faults of another process: its own, and these. They write to one trace.
    #[must_use]
    pub fn for_process(&self) -> Self {
        let shared = Shared {
            process: self.shared.processes.fetch_add(1, Ordering::Relaxed) + 1,
            processes: self.shared.processes.clone(),
            trace: self.shared.trace.clone(),
            plans: Mutex::new(HashMap::new()),
            released: Notify::new(),
            hidden: AtomicU64::new(0),
            clock: self.shared.clock.clone(),
        };
        Self { shared: Arc::new(shared), common: Some(Box::new(self.clone())) }
    }

    /// The number that the trace knows this process by; 0 for what is common to all.
    pub fn process(&self) -> u32 {
        self.shared.process
    }

    /// Chooses the operation that a fault is for.
    pub fn on(&self, operation: Operation) -> On<'_> {
        On { faults: self, operation }
    }

    /// The next `count` reads of messages (by id, forwards or backwards) find nothing, as on a replica that lags.
    pub fn hide_messages(&self, count: u64) {
        self.shared.hidden.store(count, Ordering::Relaxed);
    }

    /// Ends every fault of this handle, and lets go of what hangs.
    pub fn heal(&self) {
        self.plans().values_mut().for_each(Plan::heal);
        self.hide_messages(0);
        self.shared.released.notify_waiters();
    }

    /// What happened so far, in order, of all processes: the newest 65,536 entries.
    pub fn trace(&self) -> Vec<Traced> {
        self.shared.trace.entries()
    }

    /// Forgets what happened so far.
    pub fn clear_trace(&self) {
        self.shared.trace.clear();
    }

    fn plan<T>(&self, operation: Operation, change: impl FnOnce(&mut Plan) -> T) -> T {
        change(self.plans().entry(operation).or_default())
    }

    fn plans(&self) -> MutexGuard<'_, HashMap<Operation, Plan>> {
        self.shared.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl On<'_> {
    /// The next `count` calls fail with an error of `kind`, and nothing is done.
    pub fn fail(self, count: u64, kind: ErrorKind) {
        let error = self.injected(kind);
        self.fail_with(count, error);
    }

    /// As [`Self::fail`], with an error of your own.
    pub fn fail_with(self, count: u64, error: Error) {
        self.faults.plan(self.operation, |plan| plan.fail(Moment::Before, count, error));
    }

    /// All calls fail with an error of `kind` until [`Faults::heal`], and nothing is done.
    pub fn refuse(self, kind: ErrorKind) {
        self.fail(u64::MAX, kind);
    }

    /// The next `count` calls do their work, and their answer is lost: they give
    /// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown).
    pub fn lose_answer(self, count: u64) {
        self.fail_after(count, ErrorKind::OutcomeUnknown);
    }

    /// As [`Self::lose_answer`], with an error of `kind`; its outcome is unknown in any case.
    pub fn fail_after(self, count: u64, kind: ErrorKind) {
        let error = self.injected(kind).with_outcome(firehose_core::Outcome::Unknown);
        self.faults.plan(self.operation, |plan| plan.fail(Moment::After, count, error));
    }

    /// The next `count` calls panic before anything is done.
    pub fn panic(self, count: u64) {
        self.faults.plan(self.operation, |plan| plan.panics += count);
    }

    /// Every call takes `time` before anything is done, until it is set to zero or healed.
    pub fn delay(self, time: Duration) {
        self.faults.plan(self.operation, |plan| plan.delay = time);
    }

    /// Every call hangs before anything is done, until the hold is released or dropped.
    pub fn hang(self) -> Hold {
        Hold::new(self.faults.clone(), self.operation, Moment::Before)
    }

    /// Every call does its work and then hangs with the answer, until the hold is released or dropped.
    pub fn hang_after(self) -> Hold {
        Hold::new(self.faults.clone(), self.operation, Moment::After)
    }

    fn injected(&self, kind: ErrorKind) -> Error {
        Error::new(kind, self.operation.name(), "a fault that the test asked for")
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").field("process", &self.shared.process).field("plans", &*self.plans()).finish()
    }
}
