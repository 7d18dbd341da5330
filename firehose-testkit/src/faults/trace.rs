//! What happened, in order.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use firehose_core::{ErrorKind, MonoTime};

use super::operation::Operation;

/// An entry of the trace: an operation came to a phase.
///
/// `Display` reads `1.5s #2 listen done [a1b2…]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traced {
    /// When, on the clock of the faults.
    pub at: MonoTime,
    /// The process, from 1; 0 where there are no processes.
    pub process: u32,
    /// What.
    pub operation: Operation,
    /// How far it had come.
    pub phase: Phase,
    /// The streams or channels that it was about, in the order of the call; epochs for `anchors`, ids for `get_many`.
    pub about: Vec<String>,
}

/// How far an operation has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// It was called.
    Started,
    /// Its answer is known to the caller.
    Done,
    /// It failed.
    Failed(ErrorKind),
    /// The caller gave it up.
    Dropped,
}

impl Traced {
    /// Whether this is `operation` coming to `phase`.
    pub fn is(&self, operation: Operation, phase: Phase) -> bool {
        (self.operation, self.phase) == (operation, phase)
    }
}

/// The newest entries, up to a limit.
#[derive(Debug, Default)]
pub(super) struct Trace {
    entries: Mutex<VecDeque<Traced>>,
}

impl Trace {
    const LIMIT: usize = 65_536;

    pub(super) fn record(&self, at: MonoTime, process: u32, operation: Operation, phase: Phase, about: &[String]) {
        let mut entries = self.lock();
        if entries.len() >= Self::LIMIT {
            entries.pop_front();
        }
        entries.push_back(Traced { at, process, operation, phase, about: about.to_vec() });
    }

    pub(super) fn entries(&self) -> Vec<Traced> {
        self.lock().iter().cloned().collect()
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Traced>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Traced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} #{} {} {}", self.at.since_origin(), self.process, self.operation, self.phase)?;
        if self.about.is_empty() { Ok(()) } else { write!(f, " [{}]", self.about.join(", ")) }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started => f.write_str("started"),
            Self::Done => f.write_str("done"),
            Self::Failed(kind) => write!(f, "failed: {kind:?}"),
            Self::Dropped => f.write_str("dropped"),
        }
    }
}
