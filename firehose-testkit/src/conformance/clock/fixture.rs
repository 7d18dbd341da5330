//! What the tests of a clock need.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use firehose_core::{Clock, SystemClock};

use crate::clock::ManualClock;
use crate::conformance::Finish;

/// A clock under test. Only [`clock`](Self::clock) must be there.
#[async_trait]
pub trait ClockFixture: Send + Sync + 'static {
    /// The clock, the same one each time.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Lets `by` pass on the clock, at least, and whoever sleeps on it get up. A clock that goes by itself is waited for,
    /// which is the default; one that does not is turned.
    async fn pass(&self, by: Duration) {
        let clock = self.clock();
        let deadline = clock.now() + by;
        clock.sleep_until(deadline).await;
    }

    /// Puts away what the test used. Called at the end of each test, whatever came of it.
    async fn finish(&self) {}
}

impl Finish for dyn ClockFixture {
    async fn finish(&self) {
        ClockFixture::finish(self).await;
    }
}

/// It needs a runtime whose own time is paused: `clock!(ManualClock::new(), runtime = …)`.
#[async_trait]
impl ClockFixture for ManualClock {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clone())
    }

    async fn pass(&self, by: Duration) {
        self.advance(by).await;
    }
}

#[async_trait]
impl ClockFixture for SystemClock {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(*self)
    }
}
