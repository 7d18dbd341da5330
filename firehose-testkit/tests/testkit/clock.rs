//! How the manual clock is turned; the contract of `Clock` is held by the conformance suite.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use firehose_core::{Clock, MonoTime};
use firehose_testkit::ManualClock;

const SECOND: Duration = Duration::from_secs(1);

/// What happened when, in seconds of the clock.
type Log = Arc<Mutex<Vec<(&'static str, u64)>>>;

fn sleeper(clock: &ManualClock, log: &Log, name: &'static str, deadlines: &'static [u64]) {
    let (clock, log) = (clock.clone(), log.clone());
    tokio::spawn(async move {
        for &deadline in deadlines {
            clock.sleep_until(MonoTime::new(SECOND * deadline as u32)).await;
            log.lock().unwrap().push((name, clock.now().since_origin().as_secs()));
        }
    });
}

#[tokio::test(start_paused = true)]
async fn advance_stops_at_each_deadline() {
    let clock = ManualClock::new();
    let log = Log::default();
    sleeper(&clock, &log, "a", &[5]);
    clock.advance(SECOND * 4).await;
    assert_eq!(*log.lock().unwrap(), []);
    clock.advance(SECOND * 4).await;
    assert_eq!(*log.lock().unwrap(), [("a", 5)], "not at the end of the step");
    assert_eq!(clock.now(), MonoTime::new(SECOND * 8));
    clock.sleep_until(MonoTime::new(SECOND * 8)).await;
    clock.sleep_until(MonoTime::ORIGIN).await;
    assert_eq!(clock.pending_sleeps(), 0);
}

#[tokio::test(start_paused = true)]
async fn sleepers_that_sleep_again_take_their_turns() {
    let clock = ManualClock::new();
    let log = Log::default();
    sleeper(&clock, &log, "late", &[3]);
    sleeper(&clock, &log, "early, then between, then last", &[1, 2, 4]);
    sleeper(&clock, &log, "equal", &[2]);
    clock.advance(SECOND * 10).await;
    let again = "early, then between, then last";
    assert_eq!(*log.lock().unwrap(), [(again, 1), ("equal", 2), (again, 2), ("late", 3), (again, 4)]);
}

#[tokio::test(start_paused = true)]
async fn pending_sleeps_are_told_and_dropped_ones_forgotten() {
    let clock = ManualClock::new();
    let sleeping = tokio::spawn({
        let clock = clock.clone();
        async move { clock.sleep_until(MonoTime::new(SECOND)).await }
    });
    clock.idle().await;
    assert_eq!((clock.pending_sleeps(), clock.next_deadline()), (1, Some(MonoTime::new(SECOND))));
    sleeping.abort();
    clock.idle().await;
    assert_eq!((clock.pending_sleeps(), clock.next_deadline()), (0, None));
}

#[tokio::test(start_paused = true)]
async fn the_time_of_day_moves_with_the_clock_and_jumps_by_hand() {
    let clock = ManualClock::new();
    // 2026-01-01T00:00:00Z
    assert_eq!(clock.wall(), SystemTime::UNIX_EPOCH + SECOND * 1_767_225_600);
    clock.advance(SECOND * 90).await;
    assert_eq!(clock.wall(), SystemTime::UNIX_EPOCH + SECOND * 1_767_225_690);
    let back = SystemTime::UNIX_EPOCH + SECOND * 1_000;
    clock.set_wall(back);
    clock.advance(SECOND).await;
    assert_eq!((clock.wall(), clock.now()), (back + SECOND, MonoTime::new(SECOND * 91)));
}

#[tokio::test(start_paused = true)]
async fn idle_runs_everything_and_moves_nothing() {
    let clock = ManualClock::new();
    let (sender, mut receiver) = tokio::sync::mpsc::channel::<u32>(1);
    let counted = tokio::spawn(async move {
        let mut sum = 0;
        while let Some(n) = receiver.recv().await {
            sum += n;
            tokio::task::yield_now().await;
        }
        sum
    });
    tokio::spawn(async move {
        for n in 1..=1_000 {
            sender.send(n).await.unwrap();
        }
    });
    clock.idle().await;
    assert!(counted.is_finished());
    assert_eq!((counted.await.unwrap(), clock.now()), (500_500, MonoTime::ORIGIN));
}

#[tokio::test(start_paused = true)]
async fn advance_until_stops_where_the_condition_holds() {
    let clock = ManualClock::new();
    let log = Log::default();
    sleeper(&clock, &log, "a", &[1, 2, 3, 4]);
    assert!(clock.advance_until(|| log.lock().unwrap().len() == 3, SECOND * 10).await);
    assert_eq!(clock.now(), MonoTime::new(SECOND * 3));
    assert!(!clock.advance_until(|| log.lock().unwrap().len() == 9, SECOND * 10).await);
    assert_eq!((clock.now(), log.lock().unwrap().len()), (MonoTime::new(SECOND * 13), 4));
    assert!(clock.advance_until(|| true, SECOND).await);
    assert_eq!(clock.now(), MonoTime::new(SECOND * 13));
}

#[tokio::test]
#[should_panic(expected = "ManualClock needs tokio's current-thread runtime with its time paused")]
async fn a_runtime_that_is_not_paused_is_refused() {
    ManualClock::new().advance(SECOND).await;
}
