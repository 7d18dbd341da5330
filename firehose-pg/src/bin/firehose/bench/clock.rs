//! The ambient clocks: a benchmark measures real time.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::time::{Duration, Instant, SystemTime};

pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Nanoseconds since 1970, the same in all processes of a machine.
pub(crate) fn wall() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// What `work` gives within `limit`.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}

/// Ticks at a steady rate, whatever a tick takes; those that were missed come at once.
pub(crate) fn every(period: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    ticks
}
