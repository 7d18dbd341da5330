//! G10: the end, and what is told.

use std::sync::{Arc, Mutex};

use firehose_testkit::{Operation, Testkit};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_shutdown_in_order_leaves_nothing_and_says_so() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=1).await;
    t.clock().idle().await;
    let (stored, receipt) = tokio::join!(f.broadcast("s", "accepted before the end"), f.shutdown(ms(1_000)));
    assert!(stored.is_ok() && receipt.is_clean());
    let said = said(&t, &mut s).await;
    assert_eq!((said.first().unwrap().as_str(), said.last().unwrap().as_str()), ("1:1", "closed Shutdown"));
    assert_eq!(s.next().await, None);
    assert_eq!(f.state(), State::Stopped(StopReason::Shutdown));
    assert_eq!(f.shutdown(ms(1)).await, receipt, "again, the same");
    for kind in [
        f.broadcast("s", "x").await.unwrap_err().kind(),
        f.subscribe("s").await.unwrap_err().kind(),
        f.queue("q").await.unwrap_err().kind(),
        f.notify("q", "x").await.unwrap_err().kind(),
        f.head("s").await.unwrap_err().kind(),
    ] {
        assert_eq!(kind, ErrorKind::ShutDown);
    }
    drop((s, f));
    t.clock().idle().await;
    assert_eq!((t.wire().session_count(), t.clock().pending_sleeps()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn c53_a_shutdown_ends_at_its_deadline_and_gives_what_was_not_announced() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let _hold = t.faults().on(Operation::Notify).hang();
    broadcast_numbers(&f, "s", 1..=2).await;
    let shutdown = tokio::spawn({
        let f = f.clone();
        async move { f.shutdown(ms(500)).await }
    });
    t.clock().advance(ms(500)).await;
    let receipt = shutdown.await.unwrap();
    let sequences: Vec<i64> = receipt.not_announced.iter().map(|(_, c)| c.sequence.0).collect();
    assert_eq!(sequences, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn c53_a_shutdown_while_the_store_hangs_tells_every_caller() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let _hold = t.faults().on(Operation::Append).hang();
    let call = |data: &'static str| {
        let f = f.clone();
        tokio::spawn(async move { f.broadcast("s", data).await.unwrap_err() })
    };
    let first = call("in flight");
    t.clock().idle().await;
    let second = call("waits");
    t.clock().idle().await;
    let shutdown = tokio::spawn({
        let f = f.clone();
        async move { f.shutdown(ms(500)).await }
    });
    t.clock().advance(ms(500)).await;
    assert_eq!(shutdown.await.unwrap().not_stored, 1);
    assert_eq!(first.await.unwrap().outcome(), Outcome::Unknown);
    let e = second.await.unwrap();
    assert_eq!((e.kind(), e.outcome()), (ErrorKind::ShutDown, Outcome::NotDone));
}

#[tokio::test(start_paused = true)]
async fn c53_a_shutdown_during_an_outage_ends_at_once() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    t.faults().on(Operation::Connect).refuse(ErrorKind::ConnectionLost);
    t.wire().cut();
    t.clock().advance(Duration::from_secs(20)).await;
    assert!(f.shutdown(ms(500)).await.is_clean());
    t.clock().idle().await;
    assert_eq!(t.clock().pending_sleeps(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_ends_the_engine_and_announces_what_is_stored() {
    let t = Testkit::new(1);
    let (f, other) = (engine(&t).await, engine(&t).await);
    let mut mine = f.subscribe("s").await.unwrap();
    let mut theirs = other.subscribe("s").await.unwrap();
    f.broadcast("s", "1").await.unwrap();
    drop(f.clone());
    assert_eq!(said(&t, &mut mine).await, ["1:1"], "a clone's drop ends nothing");
    f.broadcast("s", "2").await.unwrap();
    std::thread::spawn(move || drop(f)).join().unwrap();
    assert_eq!(said(&t, &mut mine).await.last().unwrap(), "closed EngineDropped");
    assert_eq!(said(&t, &mut theirs).await, ["1:1", "2:2"]);
    assert_eq!(t.wire().session_count(), 1);
}

#[test]
fn a_runtime_that_goes_tells_every_subscription() {
    let t = Testkit::new(1);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let first = runtime();
    let (f, mut s) = first.block_on(async {
        let f = engine(&t).await;
        let s = f.subscribe("s").await.unwrap();
        (f, s)
    });
    drop(first);
    assert_eq!(f.state(), State::Stopped(StopReason::Dropped));
    runtime().block_on(async {
        assert_eq!(s.next().await, Some(Delivery::Closed(CloseReason::EngineDropped)));
        assert_eq!(f.broadcast("s", "x").await.unwrap_err().kind(), ErrorKind::ShutDown);
        f.shutdown(ms(10)).await;
    });
}

#[tokio::test(start_paused = true)]
async fn failures_are_told_with_their_stage_and_a_callback_that_panics_costs_nothing() {
    let t = Testkit::new(1);
    let stages = Arc::new(Mutex::new(Vec::new()));
    let heard = stages.clone();
    let f = Firehose::builder(t.backend())
        .clock(t.clock())
        .config(Config { metrics_interval: ms(100), ..Config::default() })
        .on_error(move |report| {
            heard.lock().unwrap().push(report.stage);
            panic!("in a callback");
        })
        .on_metrics(|_| panic!("in a callback"))
        .start()
        .await
        .unwrap();
    let mut s = f.subscribe("s").await.unwrap();
    t.faults().on(Operation::Heads).fail(1, ErrorKind::ConnectionLost);
    t.clock().advance(ms(1_100)).await;
    t.wire().cut();
    broadcast_numbers(&f, "s", 1..=1).await;
    assert_eq!(said_within(&t, &mut s, ms(2_000)).await, numbered(1..=1));
    assert_eq!(*stages.lock().unwrap(), [Stage::Sweep, Stage::ConnectionLost]);
}

#[tokio::test(start_paused = true)]
async fn on_metrics_is_called_at_its_interval_with_what_is_true() {
    let t = Testkit::new(1);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let heard = seen.clone();
    let f = Firehose::builder(t.backend())
        .clock(t.clock())
        .on_metrics(move |m| heard.lock().unwrap().push(m.subscribed_channels))
        .start()
        .await
        .unwrap();
    let _s = f.subscribe("s").await.unwrap();
    t.clock().advance(Duration::from_secs(45)).await;
    assert_eq!(*seen.lock().unwrap(), [1, 1, 1]);
    let d = f.diagnostics();
    assert_eq!((d.running, d.state, d.streams[0].subscribers), (true, State::Live, 1));
}

#[tokio::test(start_paused = true)]
async fn a_start_that_cannot_connect_gives_the_reason() {
    let t = Testkit::new(1);
    t.faults().on(Operation::Connect).fail(1, ErrorKind::ConnectionLost);
    let start = Firehose::builder(t.backend()).clock(t.clock()).start().await;
    assert_eq!(start.unwrap_err().kind(), ErrorKind::ConnectionLost);
    t.clock().idle().await;
    assert_eq!((t.wire().session_count(), t.clock().pending_sleeps()), (0, 0));
}
