//! How the suite's tests end: each makes a test with the macros, which is then expected to fail.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use firehose_core::{Clock, MonoTime};
use firehose_testkit::ManualClock;
use firehose_testkit::conformance::{self, ClockFixture, Outcome, clock_clauses};

/// A clock that fails in its own way.
#[derive(Debug, Clone, Copy)]
enum Bad {
    Panics,
    Falls,
}

#[async_trait]
impl ClockFixture for Bad {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(*self)
    }

    async fn pass(&self, _: Duration) {}
}

#[async_trait]
impl Clock for Bad {
    fn now(&self) -> MonoTime {
        match self {
            Self::Panics => panic!("no time today"),
            Self::Falls => MonoTime::ORIGIN,
        }
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }

    async fn sleep_until(&self, _: MonoTime) {
        std::future::pending().await
    }
}

fn run(name: &'static str, make: fn() -> std::future::Ready<Box<dyn ClockFixture>>) {
    conformance::run(clock_clauses(), ("harness", name), conformance::threads, make);
}

#[test]
#[should_panic(expected = "clause 1 of Clock (now never goes back): a panic: no time today")]
fn a_panic_is_told_with_its_clause() {
    run("clock_01_now_never_goes_back", || std::future::ready(Box::new(Bad::Panics)));
}

#[test]
#[should_panic(
    expected = "clause 1 of Clock (now never goes back): 2ms after MonoTime(0ns), `now` gives MonoTime(0ns)"
)]
fn a_violation_is_told_with_what_was_seen() {
    run("clock_01_now_never_goes_back", || std::future::ready(Box::new(Bad::Falls)));
}

#[test]
#[should_panic(expected = "no clause is called clock_99")]
fn a_name_that_is_none_fails() {
    run("clock_99", || std::future::ready(Box::new(ManualClock::new())));
}

#[tokio::test(start_paused = true)]
async fn what_is_lacking_is_said() {
    let testkit = firehose_testkit::Testkit::new(1);
    let clause =
        conformance::store_clauses().iter().find(|c| c.name() == "store_03_what_is_ok_outlives_a_crash").unwrap();
    let reason = "the backend is not durable, by its capabilities";
    assert_eq!(clause.check(&testkit).await, Outcome::Skipped(reason.to_owned()));
}
