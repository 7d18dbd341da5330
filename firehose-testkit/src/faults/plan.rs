//! What the next calls of one operation meet.

use std::collections::VecDeque;
use std::time::Duration;

use firehose_core::Error;

/// When a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before anything is done.
    Before,
    /// When all is done.
    After,
}

/// The faults of one operation that are still to come.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) delay: Duration,
    pub(super) panics: u64,
    before: Strikes,
    after: Strikes,
}

/// The faults of one moment.
#[derive(Debug, Default)]
struct Strikes {
    failures: VecDeque<(u64, Error)>,
    holds: Vec<u64>,
    /// How many calls hang here.
    hanging: usize,
}

impl Plan {
    /// Lets the next `count` calls fail, after those that fail already.
    pub(super) fn fail(&mut self, moment: Moment, count: u64, error: Error) {
        self.strikes(moment).failures.push_back((count, error));
    }

    /// What the call that comes now fails with.
    pub(super) fn failure(&mut self, moment: Moment) -> Option<Error> {
        let failures = &mut self.strikes(moment).failures;
        while let Some((left, error)) = failures.front_mut() {
            if *left > 0 {
                *left -= u64::from(*left < u64::MAX);
                return Some(error.replicate());
            }
            failures.pop_front();
        }
        None
    }

    /// Uses up a panic.
    pub(super) fn panics_now(&mut self) -> bool {
        let now = self.panics > 0;
        self.panics -= u64::from(now);
        now
    }

    pub(super) fn hold(&mut self, moment: Moment, hold: u64) {
        self.strikes(moment).holds.push(hold);
    }

    pub(super) fn release(&mut self, moment: Moment, hold: u64) {
        self.strikes(moment).holds.retain(|held| *held != hold);
    }

    pub(super) fn is_held(&mut self, moment: Moment) -> bool {
        !self.strikes(moment).holds.is_empty()
    }

    pub(super) fn hanging(&mut self, moment: Moment) -> &mut usize {
        &mut self.strikes(moment).hanging
    }

    /// Forgets all that is still to come; what hangs is counted until it goes on.
    pub(super) fn heal(&mut self) {
        self.delay = Duration::ZERO;
        self.panics = 0;
        for strikes in [&mut self.before, &mut self.after] {
            strikes.failures.clear();
            strikes.holds.clear();
        }
    }

    fn strikes(&mut self, moment: Moment) -> &mut Strikes {
        match moment {
            Moment::Before => &mut self.before,
            Moment::After => &mut self.after,
        }
    }
}
