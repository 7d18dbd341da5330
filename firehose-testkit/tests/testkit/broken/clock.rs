//! Broken clocks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use firehose_core::{Clock, MonoTime};
use firehose_testkit::ManualClock;
use firehose_testkit::conformance::{ClockFixture, clock_clauses};

use super::faults;

faults! {
    clock_clauses, Broken::boxed;

    it_goes_back_now_and_then GoesBack => "clock_01_now_never_goes_back" ["`now` gave ", " and then "];
    a_sleep_ends_a_tick_early Early => "clock_02_a_sleep_does_not_end_before_its_deadline" ["a sleep until ", " ended at "];
    a_deadline_that_has_passed_is_waited_for OneMoreTick => "clock_02_a_deadline_that_has_passed_is_no_sleep"
        ["which has passed, is still one"];
    sleepers_of_one_tick_end_as_they_came Coarse => "clock_03_sleepers_end_in_the_order_of_their_deadlines"
        ["are woken in the order: saw [3, 1, 4, 2], expected [1, 2, 3, 4]"];
    a_dropped_sleep_is_remembered Remembers => "clock_04_a_dropped_sleep_leaves_nothing"
        ["how many wakers of it the clock still holds: saw 1, expected 0"];
    the_time_of_day_stands_still Stands => "clock_05_wall_is_the_time_of_day" ["`wall` gives ", " as before"];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    GoesBack,
    Early,
    OneMoreTick,
    Coarse,
    Remembers,
    Stands,
}

const TICK: Duration = Duration::from_millis(1);

#[derive(Debug)]
struct Broken {
    inner: ManualClock,
    fault: Fault,
    reads: AtomicU64,
    remembered: Mutex<Vec<Waker>>,
}

struct Fixture(Arc<Broken>);

impl Broken {
    fn boxed(fault: Fault) -> Box<dyn ClockFixture> {
        let broken = Self { inner: ManualClock::new(), fault, reads: AtomicU64::new(0), remembered: Mutex::default() };
        Box::new(Fixture(Arc::new(broken)))
    }
}

#[async_trait]
impl ClockFixture for Fixture {
    fn clock(&self) -> Arc<dyn Clock> {
        self.0.clone()
    }

    async fn pass(&self, by: Duration) {
        self.0.inner.advance(by).await;
    }
}

#[async_trait]
impl Clock for Broken {
    fn now(&self) -> MonoTime {
        let now = self.inner.now();
        let reads = self.reads.fetch_add(1, Ordering::Relaxed);
        if self.fault == Fault::GoesBack && reads % 50 == 49 {
            return MonoTime::new(now.since_origin().saturating_sub(TICK));
        }
        now
    }

    fn wall(&self) -> SystemTime {
        if self.fault == Fault::Stands { ManualClock::WALL_AT_ORIGIN.to_system_time() } else { self.inner.wall() }
    }

    async fn sleep_until(&self, deadline: MonoTime) {
        let given = deadline.since_origin();
        let deadline = match self.fault {
            Fault::Early => given.saturating_sub(TICK),
            Fault::OneMoreTick if deadline <= self.inner.now() => self.inner.now().since_origin() + TICK,
            // All that end within the same hundred ticks end together.
            Fault::Coarse if deadline > self.inner.now() => {
                TICK * 100 * (given.div_duration_f64(TICK * 100).ceil() as u32)
            }
            _ => given,
        };
        if self.fault == Fault::Remembers {
            let remember = |context: &mut std::task::Context<'_>| {
                self.remembered.lock().unwrap().push(context.waker().clone());
                std::task::Poll::Ready(())
            };
            std::future::poll_fn(remember).await;
        }
        self.inner.sleep_until(MonoTime::new(deadline)).await;
    }
}
