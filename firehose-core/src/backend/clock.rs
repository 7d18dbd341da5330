//! Time, as the library sees it.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;

/// A point in time on a [`Clock`]: the distance from its origin. Two clocks' times do not compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MonoTime(Duration);

impl MonoTime {
    /// The clock's origin.
    pub const ORIGIN: Self = Self(Duration::ZERO);

    /// The time `since_origin` after the clock's origin.
    pub const fn new(since_origin: Duration) -> Self {
        Self(since_origin)
    }

    /// The distance from the clock's origin.
    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// How long ago `earlier` was; zero where it was not.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl std::ops::Add<Duration> for MonoTime {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }
}

/// Where the library takes its time from.
///
/// # Contract
/// 1. `now` never goes back.
/// 2. `sleep_until` ends at its deadline or later, never before it; for a deadline that has passed, at once.
/// 3. Sleepers end in the order of their deadlines.
/// 4. A `sleep_until` that is dropped leaves nothing behind.
/// 5. `wall` is the time of day, for people and records; it may jump.
#[async_trait]
pub trait Clock: Send + Sync + Debug + 'static {
    /// The time now (1).
    fn now(&self) -> MonoTime;

    /// The time of day (5).
    fn wall(&self) -> SystemTime;

    /// Waits until `deadline` (2, 3).
    ///
    /// # Cancel safety
    /// Dropping it forgets the sleep (4).
    async fn sleep_until(&self, deadline: MonoTime);
}

#[async_trait]
impl<T: Clock + ?Sized> Clock for Arc<T> {
    fn now(&self) -> MonoTime {
        (**self).now()
    }
    fn wall(&self) -> SystemTime {
        (**self).wall()
    }
    async fn sleep_until(&self, deadline: MonoTime) {
        (**self).sleep_until(deadline).await;
    }
}

/// The clock of the operating system, through tokio's timer. Its origin is its creation.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    origin: Instant,
}

#[allow(clippy::disallowed_methods, reason = "this is where the ambient clock enters")]
impl SystemClock {
    /// A clock that starts at zero now.
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
#[allow(clippy::disallowed_methods, reason = "this is where the ambient clock enters")]
impl Clock for SystemClock {
    fn now(&self) -> MonoTime {
        MonoTime(self.origin.elapsed())
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    async fn sleep_until(&self, deadline: MonoTime) {
        // Tokio's timer would wait for its next millisecond.
        if self.now() >= deadline {
            return;
        }
        match self.origin.checked_add(deadline.since_origin()) {
            Some(instant) => tokio::time::sleep_until(instant.into()).await,
            None => std::future::pending().await,
        }
    }
}
