//! The clauses' tests. A clock that goes by itself takes its time, so they ask for a few milliseconds at most.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, SystemTime};

use firehose_core::MonoTime;

use super::ClockFixture;
use crate::conformance::clause::Verdict;
use crate::conformance::expect::{equal, that, violated};
use crate::conformance::poll;

const STEP: Duration = Duration::from_millis(2);

pub(super) async fn never_back(fixture: &dyn ClockFixture) -> Verdict {
    let clock = fixture.clock();
    let mut before = clock.now();
    for _ in 0..3 {
        for _ in 0..200 {
            let now = clock.now();
            that(now >= before, || format!("`now` gave {before:?} and then {now:?}"))?;
            before = now;
        }
        fixture.pass(STEP).await;
        let now = clock.now();
        that(now >= before + STEP, || format!("{STEP:?} after {before:?}, `now` gives {now:?}"))?;
    }
    Ok(())
}

pub(super) async fn not_before_its_deadline(fixture: &dyn ClockFixture) -> Verdict {
    let clock = fixture.clock();
    for steps in [1, 2, 0] {
        let deadline = clock.now() + STEP * steps + Duration::from_nanos(1);
        let ended = until(fixture, async {
            clock.sleep_until(deadline).await;
            clock.now()
        });
        let ended = ended.await?;
        that(ended >= deadline, || format!("a sleep until {deadline:?} ended at {ended:?}"))?;
    }
    Ok(())
}

pub(super) async fn at_once_where_it_has_passed(fixture: &dyn ClockFixture) -> Verdict {
    let clock = fixture.clock();
    fixture.pass(STEP).await;
    for deadline in [MonoTime::ORIGIN, clock.now()] {
        let mut sleep = pin!(clock.sleep_until(deadline));
        // A timer may want one turn of its own to see it.
        let ended = match poll::once(sleep.as_mut()).await {
            None => {
                tokio::task::yield_now().await;
                poll::once(sleep.as_mut()).await.is_some()
            }
            Some(()) => true,
        };
        that(ended, || format!("a sleep until {deadline:?}, which has passed, is still one"))?;
    }
    Ok(())
}

/// Notes by its number that it was called.
struct Called {
    number: u32,
    all: Arc<Mutex<Vec<u32>>>,
}

impl Called {
    fn new(number: u32, all: &Arc<Mutex<Vec<u32>>>) -> Arc<Self> {
        Arc::new(Self { number, all: all.clone() })
    }
}

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
    }
}

fn so_far(all: &Mutex<Vec<u32>>) -> Vec<u32> {
    all.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

pub(super) async fn in_order(fixture: &dyn ClockFixture) -> Verdict {
    let clock = fixture.clock();
    let (begin, woken) = (clock.now(), Arc::new(Mutex::new(Vec::new())));
    let (mut sleeps, mut expected) = (Vec::new(), Vec::new());
    for steps in [3, 1, 4, 2] {
        let waker = Waker::from(Called::new(steps, &woken));
        let mut sleep = clock.sleep_until(begin + STEP * steps);
        // On a busy machine it may have passed already.
        if sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            expected.push(steps);
            sleeps.push(sleep);
        }
    }
    expected.sort_unstable();
    // A clock that goes by itself wakes sleepers when it comes round to it.
    for _ in 0..1_000 {
        fixture.pass(STEP).await;
        if clock.now() >= begin + STEP * 4 && so_far(&woken).len() >= expected.len() {
            break;
        }
    }
    equal("sleepers whose deadlines are 3, 1, 4 and 2 steps away are woken in the order", so_far(&woken), expected)
}

pub(super) async fn dropped(fixture: &dyn ClockFixture) -> Verdict {
    let clock = fixture.clock();
    let woken = Arc::new(Mutex::new(Vec::new()));
    let called = Called::new(1, &woken);
    let waker = Waker::from(called.clone());
    let deadline = clock.now() + STEP;
    {
        let mut sleep = pin!(clock.sleep_until(deadline));
        let asleep = sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending();
        // A machine that was busy for so long has nothing to show here.
        if !asleep {
            return that(clock.now() >= deadline, || format!("a sleep until {deadline:?} ended before it"));
        }
    }
    let held = Arc::strong_count(&called) - 2;
    equal("after a sleep was dropped, how many wakers of it the clock still holds", held, 0)?;
    fixture.pass(STEP * 2).await;
    equal("after a dropped sleep's deadline, how often it was woken", so_far(&woken).len(), 0)
}

pub(super) async fn time_of_day(fixture: &dyn ClockFixture) -> Verdict {
    /// 2020-01-01T00:00:00Z: no clock that is right gives an earlier time.
    const PAST: Duration = Duration::from_secs(1_577_836_800);
    let clock = fixture.clock();
    let before = clock.wall();
    let since = before.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    that(since > PAST, || format!("`wall` gives a time {since:?} after 1970, which is before 2020"))?;
    fixture.pass(STEP).await;
    let after = clock.wall();
    that(after > before, || format!("{STEP:?} later, `wall` gives {after:?} as before"))
}

/// What `work` gives while time passes.
async fn until<T>(fixture: &dyn ClockFixture, work: impl Future<Output = T>) -> Verdict<T> {
    let mut work = pin!(work);
    for _ in 0..1_000 {
        if let Some(done) = poll::once(work.as_mut()).await {
            return Ok(done);
        }
        fixture.pass(STEP / 2).await;
    }
    violated(format!("a sleep of a few times {STEP:?} does not end"))
}
