//! Sessions that live and are of no use: noticed, named, and repaired without help.

use std::sync::{Arc, Mutex};

use firehose_testkit::{Operation, Phase, Testkit};

use super::*;

type Errors = Arc<Mutex<Vec<(Stage, ErrorKind)>>>;

async fn with_errors(testkit: &Testkit, config: Config) -> (Firehose, Errors) {
    let errors = Errors::default();
    let heard = errors.clone();
    let builder = Firehose::builder(testkit.backend()).config(config).clock(testkit.clock()).seed(7);
    let builder = builder.on_error(move |e| heard.lock().unwrap().push((e.stage, e.error.kind())));
    (builder.start().await.unwrap(), errors)
}

fn slow_sweep() -> Config {
    Config { sweep_interval: Duration::from_secs(3_600), ..Config::default() }
}

#[tokio::test(start_paused = true)]
async fn c09_c10_a_session_that_goes_silent_shows_within_an_interval_and_is_replaced_in_time() {
    let t = Testkit::new(1);
    let (f, errors) = with_errors(&t, slow_sweep()).await;
    let mut s = f.subscribe("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=1).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=1));
    t.clock().advance(ms(100_000)).await;
    assert_eq!((f.state(), f.health().is_live()), (State::Live, true), "a quiet one is well");
    t.wire().freeze();
    broadcast_numbers(&f, "s", 2..=2).await;
    t.clock().advance(ms(10_000)).await;
    assert_eq!(f.state(), State::Degraded(Degradation::Silent));
    assert!(f.health().reason.is_some_and(|r| r.contains("does not answer")), "{:?}", f.health());
    assert_eq!(said_within(&t, &mut s, ms(300)).await, numbered(2..=2), "the sweep runs more often meanwhile");
    broadcast_numbers(&f, "s", 3..=3).await;
    assert_eq!(said_within(&t, &mut s, ms(300)).await, numbered(3..=3));
    t.clock().advance(ms(50_000)).await;
    assert_eq!((f.state(), f.health().reason), (State::Live, None));
    let metrics = f.metrics_snapshot();
    assert_eq!((metrics.watchdog_kicks, metrics.reconnects_total, t.wire().session_count()), (1, 1, 1));
    broadcast_numbers(&f, "s", 4..=4).await;
    assert_eq!(said(&t, &mut s).await, numbered(4..=4));
    let silent = (Stage::Probe, ErrorKind::Timeout(Step::Ping));
    assert_eq!(errors.lock().unwrap().iter().filter(|e| **e == silent).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_watchdog_nobody_pings() {
    let t = Testkit::new(1);
    let f = engine_with(&t, Config { watchdog_enabled: false, ..Config::default() }).await;
    t.clock().advance(ms(200_000)).await;
    assert_eq!(t.faults().trace().iter().filter(|e| e.is(Operation::Ping, Phase::Started)).count(), 0);
    assert_eq!((f.metrics_snapshot().watchdog_alive, f.state()), (0, State::Live));
}

#[tokio::test(start_paused = true)]
async fn c20_a_transaction_pooler_is_named_in_two_seconds_and_messages_arrive() {
    let t = Testkit::new(1);
    t.wire().drop_all();
    let (f, errors) = with_errors(&t, Config::default()).await;
    let subscribing = tokio::spawn({
        let f = f.clone();
        async move { f.subscribe("s").await.unwrap() }
    });
    t.clock().advance(ms(2_000)).await;
    assert_eq!(f.state(), State::Degraded(Degradation::TransactionPooler));
    let mut s = subscribing.await.unwrap();
    assert_eq!(t.wire().channels().len(), 1, "no stream is listened to");
    broadcast_numbers(&f, "s", 1..=5).await;
    assert_eq!(said_within(&t, &mut s, ms(300)).await, numbered(1..=5));
    assert_eq!(f.queue("jobs").await.unwrap_err().kind(), ErrorKind::Pooler, "what is not stored would be lost");
    assert_eq!(*errors.lock().unwrap(), [(Stage::Probe, ErrorKind::Pooler)]);
    t.wire().heal();
    t.clock().advance(ms(1_500)).await;
    assert_eq!((f.state(), f.health().reason), (State::Live, None), "back by itself");
    assert_eq!(t.wire().channels().len(), 2);
    broadcast_numbers(&f, "s", 6..=6).await;
    assert_eq!(said(&t, &mut s).await, numbered(6..=6), "announced again");
}

#[tokio::test(start_paused = true)]
async fn registrations_that_someone_took_away_are_missed_by_the_probe_and_made_anew() {
    let t = Testkit::new(1);
    let (f, errors) = with_errors(&t, slow_sweep()).await;
    let mut s = f.subscribe("s").await.unwrap();
    t.clock().idle().await;
    t.wire().forget_listens();
    broadcast_numbers(&f, "s", 1..=3).await;
    assert_eq!(said(&t, &mut s).await, numbered([]));
    t.clock().advance(ms(32_000)).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=3));
    assert_eq!((f.state(), f.metrics_snapshot().reconnects_total), (State::Live, 1));
    assert!(errors.lock().unwrap().contains(&(Stage::Probe, ErrorKind::Backend)));
}

#[tokio::test(start_paused = true)]
async fn c37_notifications_that_cannot_be_sent_degrade_and_broadcasts_do_not_fail() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    t.faults().on(Operation::Notify).refuse(ErrorKind::LimitReached);
    broadcast_numbers(&f, "s", 1..=3).await;
    assert_eq!(said_within(&t, &mut s, ms(1_000)).await, numbered(1..=3), "by the sweep");
    t.clock().advance(ms(32_000)).await;
    assert_eq!(f.state(), State::Degraded(Degradation::NotifyFailed));
    t.faults().heal();
    t.clock().advance(ms(7_000)).await;
    assert_eq!((f.state(), f.health().reason), (State::Live, None));
    broadcast_numbers(&f, "s", 4..=4).await;
    assert_eq!(said(&t, &mut s).await, numbered(4..=4));
}

#[tokio::test(start_paused = true)]
async fn gem_31_who_gives_up_stops_once_and_tells_everyone() {
    let t = Testkit::new(1);
    let config = Config { reconnect_attempts: Some(3), ..Config::default() };
    let (f, errors) = with_errors(&t, config).await;
    let (mut a, mut b) = (f.subscribe("a").await.unwrap(), f.subscribe("b").await.unwrap());
    t.faults().on(Operation::Connect).refuse(ErrorKind::Refused);
    t.faults().clear_trace();
    t.wire().cut();
    t.clock().advance(ms(600_000)).await;
    assert_eq!(f.state(), State::Stopped(StopReason::GaveUp));
    let attempts = t.faults().trace().iter().filter(|e| e.is(Operation::Connect, Phase::Started)).count();
    assert_eq!(attempts, 3, "and no busy loop");
    assert_eq!(said(&t, &mut a).await, ["closed GaveUp"]);
    assert_eq!(said(&t, &mut b).await, ["closed GaveUp"]);
    assert_eq!(errors.lock().unwrap().last(), Some(&(Stage::ReconnectGaveUp, ErrorKind::Refused)));
    assert_eq!(f.broadcast("a", "x").await.unwrap_err().kind(), ErrorKind::ShutDown);
    assert!(f.shutdown(ms(1_000)).await.is_clean());
}

#[tokio::test(start_paused = true)]
async fn attempts_are_counted_from_each_loss_anew() {
    let t = Testkit::new(1);
    let f = engine_with(&t, Config { reconnect_attempts: Some(3), ..Config::default() }).await;
    for _ in 0..5 {
        t.faults().on(Operation::Connect).fail(2, ErrorKind::Refused);
        t.wire().cut();
        t.clock().advance(ms(120_000)).await;
        assert_eq!(f.state(), State::Live);
    }
}
