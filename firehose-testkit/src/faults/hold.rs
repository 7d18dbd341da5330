//! A hang that a test ends.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Faults;
use super::operation::Operation;
use super::plan::Moment;

static HOLDS: AtomicU64 = AtomicU64::new(0);

/// Keeps the calls of an operation from going on; released or dropped, it lets them go.
#[derive(Debug)]
#[must_use = "calls go on when it is dropped"]
pub struct Hold {
    faults: Faults,
    operation: Operation,
    moment: Moment,
    number: u64,
}

impl Hold {
    pub(super) fn new(faults: Faults, operation: Operation, moment: Moment) -> Self {
        let number = HOLDS.fetch_add(1, Ordering::Relaxed);
        faults.plan(operation, |plan| plan.hold(moment, number));
        Self { faults, operation, moment, number }
    }

    /// How many calls hang here now.
    pub fn waiting(&self) -> usize {
        self.faults.plan(self.operation, |plan| *plan.hanging(self.moment))
    }

    /// Lets them go on.
    pub fn release(self) {}
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.faults.plan(self.operation, |plan| plan.release(self.moment, self.number));
        self.faults.shared.released.notify_waiters();
    }
}
