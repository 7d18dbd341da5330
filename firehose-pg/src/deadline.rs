//! The time that a call may take, kept on our side of the connection: a server that hangs keeps none.

use std::future::Future;
use std::time::Duration;

use firehose_core::{Clock, MonoTime, SystemClock};

/// A point in time that a call must not outlast.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    clock: SystemClock,
    at: MonoTime,
}

impl Deadline {
    /// The time that is `wait` from now.
    pub(crate) fn after(wait: Duration) -> Self {
        Self { clock: SystemClock::new(), at: MonoTime::new(wait) }
    }

    /// What is left of it.
    pub(crate) fn left(&self) -> Duration {
        self.at.since(self.clock.now())
    }

    /// What `work` gives, or `None` where the time is over first; `work` is then dropped.
    pub(crate) async fn bound<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.clock.sleep_until(self.at) => None,
        }
    }
}
