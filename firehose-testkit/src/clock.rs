//! A clock that a test turns by hand.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use firehose_core::{Clock, MonoTime, Timestamp};
use tokio::runtime::{Handle, RuntimeFlavor};

/// A [`Clock`] that stands still until a test moves it; clones are the same clock.
///
/// It moves from one sleeper's deadline to the next, and lets everything run until idle in between, so that a test of an
/// hour takes milliseconds and gives the same order of events every time. "Idle" is found through tokio: on a
/// current-thread runtime whose own time is paused, a timer of tokio's ends exactly when nothing else can run. So it
/// needs `#[tokio::test(start_paused = true)]`, and code under test must not sleep on tokio's timer.
///
/// ```
/// use std::time::Duration;
/// use firehose_core::{Clock, MonoTime};
/// use firehose_testkit::ManualClock;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = ManualClock::new();
/// let sleeper = tokio::spawn({
///     let clock = clock.clone();
///     async move { clock.sleep_until(MonoTime::new(Duration::from_secs(30))).await }
/// });
/// clock.advance(Duration::from_secs(29)).await;
/// assert!(!sleeper.is_finished());
/// clock.advance(Duration::from_secs(1)).await;
/// assert!(sleeper.is_finished());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ManualClock {
    timeline: Arc<Mutex<Timeline>>,
}

struct Timeline {
    now: Duration,
    /// The time of day at the origin.
    wall_at_origin: SystemTime,
    /// By deadline, and among equal deadlines by arrival.
    sleepers: BTreeMap<SleeperKey, Waker>,
    arrivals: u64,
}

type SleeperKey = (Duration, u64);

impl ManualClock {
    /// The time of day at the origin of every manual clock: 2026-01-01T00:00:00Z.
    pub const WALL_AT_ORIGIN: Timestamp = Timestamp(1_767_225_600_000_000);

    /// A clock at its origin.
    pub fn new() -> Self {
        let timeline = Timeline {
            now: Duration::ZERO,
            wall_at_origin: Self::WALL_AT_ORIGIN.to_system_time(),
            sleepers: BTreeMap::new(),
            arrivals: 0,
        };
        Self { timeline: Arc::new(Mutex::new(timeline)) }
    }

    /// Moves the time by `by`, stopping at each sleeper's deadline on the way until nothing more can run there.
    ///
    /// # Panics
    /// Where tokio's own time is not paused: see [`ManualClock`].
    pub async fn advance(&self, by: Duration) {
        let _ = self.advance_until(|| false, by).await;
    }

    /// Moves the time as [`Self::advance`] does until `condition` holds, by at most `limit`; says whether it held.
    ///
    /// The condition is looked at once before the time moves and after every step, always when nothing more can run.
    ///
    /// # Panics
    /// As [`Self::advance`].
    #[must_use = "says whether the condition held"]
    pub async fn advance_until(&self, mut condition: impl FnMut() -> bool, limit: Duration) -> bool {
        let target = self.timeline().now.saturating_add(limit);
        self.idle().await;
        while !condition() {
            let next = self.timeline().sleepers.keys().next().map(|&(deadline, _)| deadline);
            match next {
                Some(deadline) if deadline <= target => self.move_to(deadline),
                _ if self.timeline().now < target => self.move_to(target),
                _ => return false,
            }
            settle().await;
        }
        true
    }

    /// Runs until nothing more can run without the time moving.
    ///
    /// # Panics
    /// As [`Self::advance`].
    pub async fn idle(&self) {
        assert!(
            tokio_time_is_paused(),
            "ManualClock needs tokio's current-thread runtime with its time paused: \
             #[tokio::test(start_paused = true)]"
        );
        settle().await;
    }

    /// How many sleeps wait for a later time.
    pub fn pending_sleeps(&self) -> usize {
        self.timeline().sleepers.len()
    }

    /// The deadline that the clock would stop at next.
    pub fn next_deadline(&self) -> Option<MonoTime> {
        self.timeline().sleepers.keys().next().map(|&(deadline, _)| MonoTime::new(deadline))
    }

    /// Sets the time of day, as an operator does; [`Clock::now`] does not notice.
    pub fn set_wall(&self, time: SystemTime) {
        let mut timeline = self.timeline();
        timeline.wall_at_origin = time.checked_sub(timeline.now).unwrap_or(UNIX_EPOCH);
    }

    fn move_to(&self, time: Duration) {
        let mut ended = Vec::new();
        let mut timeline = self.timeline();
        timeline.now = timeline.now.max(time);
        while let Some(first) = timeline.sleepers.first_entry()
            && first.key().0 <= time
        {
            ended.push(first.remove());
        }
        drop(timeline);
        ended.into_iter().for_each(Waker::wake);
    }

    fn timeline(&self) -> MutexGuard<'_, Timeline> {
        self.timeline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> MonoTime {
        MonoTime::new(self.timeline().now)
    }

    fn wall(&self) -> SystemTime {
        let timeline = self.timeline();
        timeline.wall_at_origin.checked_add(timeline.now).unwrap_or(timeline.wall_at_origin)
    }

    async fn sleep_until(&self, deadline: MonoTime) {
        Sleep { clock: self, deadline: deadline.since_origin(), key: None }.await;
    }
}

struct Sleep<'a> {
    clock: &'a ManualClock,
    deadline: Duration,
    key: Option<SleeperKey>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut timeline = self.clock.timeline();
        if timeline.now >= self.deadline {
            return Poll::Ready(());
        }
        let key = self.key.unwrap_or_else(|| {
            timeline.arrivals += 1;
            (self.deadline, timeline.arrivals)
        });
        timeline.sleepers.insert(key, context.waker().clone());
        drop(timeline);
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.clock.timeline().sleepers.remove(&key);
        }
    }
}

/// Ends when every other task waits for something.
#[allow(clippy::disallowed_methods, reason = "with tokio's time paused, its timer ends when nothing else can run")]
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Tokio cannot be asked, so it is watched: a paused clock does not move while real time does.
#[allow(clippy::disallowed_methods, reason = "finds out whether the ambient clock stands still")]
fn tokio_time_is_paused() -> bool {
    if !Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::CurrentThread) {
        return false;
    }
    let (real, tokio) = (std::time::Instant::now(), tokio::time::Instant::now());
    while real.elapsed() < Duration::from_micros(1) {
        std::hint::spin_loop();
    }
    tokio::time::Instant::now() == tokio
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let timeline = self.timeline();
        f.debug_struct("ManualClock").field("now", &timeline.now).field("sleepers", &timeline.sleepers.len()).finish()
    }
}
