//! Faults 44 to 51 of the gem, state that outlived its reason; and those of its connection handling (31 to 43) that
//! memory can show.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use firehose_testkit::{Operation, Phase, Testkit};

use super::*;

fn count(t: &Testkit, operation: Operation) -> usize {
    t.faults().trace().iter().filter(|e| e.is(operation, Phase::Started)).count()
}

fn no_sweep() -> Config {
    Config { sweep_interval: Duration::from_secs(100_000), ..Config::default() }
}

#[tokio::test(start_paused = true)]
async fn gem_f32_after_the_end_there_is_nothing_and_another_engine_begins_quietly() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    f.shutdown(ms(1_000)).await;
    t.clock().advance(Duration::from_secs(60)).await;
    assert_eq!((count(&t, Operation::Connect), t.wire().session_count()), (1, 0));
    let again = engine(&t).await;
    t.clock().advance(Duration::from_secs(60)).await;
    assert_eq!((count(&t, Operation::Connect), t.wire().session_count(), again.state()), (2, 1, State::Live));
}

#[tokio::test(start_paused = true)]
async fn gem_f33_a_shutdown_in_an_outage_leaves_nobody_who_goes_on_trying() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    t.faults().on(Operation::Connect).refuse(ErrorKind::ConnectionLost);
    t.wire().cut();
    t.clock().advance(ms(3_000)).await;
    let began = t.clock().now();
    assert!(f.shutdown(ms(5_000)).await.is_clean());
    assert_eq!(t.clock().now().since(began), Duration::ZERO);
    t.faults().clear_trace();
    t.clock().advance(Duration::from_secs(600)).await;
    assert_eq!((t.faults().trace(), t.clock().pending_sleeps()), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn gem_f34_a_peer_that_never_answers_is_given_up_at_a_deadline() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    let silent = t.faults().on(Operation::Connect).hang();
    t.wire().cut();
    t.clock().advance(Duration::from_secs(35)).await;
    let attempts = count(&t, Operation::Connect) - 1;
    assert!((2..=4).contains(&attempts), "{attempts}: each ends after 10 s, and another follows");
    broadcast_numbers(&f, "s", 1..=1).await;
    assert_eq!(said_within(&t, &mut s, ms(1_000)).await, numbered(1..=1), "the sweep goes on meanwhile");
    silent.release();
    t.clock().advance(Duration::from_secs(31)).await;
    assert_eq!((f.state(), f.metrics_snapshot().reconnects_total), (State::Live, 1));
}

#[tokio::test(start_paused = true)]
async fn gem_f40_subscribe_returns_when_the_listen_is_in_force() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let slow = t.faults().on(Operation::Listen).hang_after();
    let subscribing = tokio::spawn({
        let f = f.clone();
        async move { f.subscribe("s").await.unwrap() }
    });
    t.clock().advance(ms(5_000)).await;
    assert!(!subscribing.is_finished(), "it is not acknowledged yet");
    slow.release();
    let mut s = subscribing.await.unwrap();
    broadcast_numbers(&f, "s", 1..=1).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=1));
}

#[tokio::test(start_paused = true)]
async fn gem_f41_a_clean_shutdown_takes_no_time() {
    let t = Testkit::new(1);
    let builder = Firehose::builder(t.backend()).clock(t.clock());
    let f = builder.on_metrics(|_| ()).start().await.unwrap();
    let _s = f.subscribe("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=5).await;
    let began = t.clock().now();
    assert!(f.shutdown(Duration::from_secs(10)).await.is_clean());
    assert_eq!(t.clock().now().since(began), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn gem_f43_reconnects_are_told_while_they_last_and_counted_for_good() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    for round in 1..=3 {
        t.faults().on(Operation::Connect).fail(2, ErrorKind::ConnectionLost);
        t.wire().cut();
        t.clock().idle().await;
        assert!(f.metrics_snapshot().reconnects_current >= 1);
        t.clock().advance(Duration::from_secs(70)).await;
        let m = f.metrics_snapshot();
        assert_eq!((m.reconnects_current, m.reconnects_total), (0, round));
    }
}

#[tokio::test(start_paused = true)]
async fn gem_f44_nothing_is_kept_of_streams_that_came_and_went() {
    let t = Testkit::new(1);
    let f = engine_with(&t, no_sweep()).await;
    for n in 0..1_000 {
        let name = format!("s{n}");
        let mut s = f.subscribe(name.as_str()).await.unwrap();
        broadcast_numbers(&f, &name, 1..=1).await;
        assert_eq!(said(&t, &mut s).await, numbered(1..=1));
    }
    let mut left = f.subscribe("left").await.unwrap();
    t.clock().idle().await;
    let streams: Vec<_> = f.diagnostics().streams.into_iter().map(|s| s.stream.to_string()).collect();
    assert_eq!((streams, f.metrics_snapshot().subscribed_channels), (vec!["left".to_owned()], 1));
    t.faults().clear_trace();
    t.wire().cut();
    broadcast_numbers(&f, "left", 1..=1).await;
    assert_eq!(said_within(&t, &mut left, ms(100)).await, numbered(1..=1));
    for operation in [Operation::Listen, Operation::Heads, Operation::Anchors, Operation::ReadAfter] {
        let trace = t.faults().trace();
        let about: Vec<_> = trace.iter().filter(|e| e.is(operation, Phase::Started)).map(|e| e.about.len()).collect();
        assert!(about.iter().all(|n| *n == 1), "{operation} asks for {about:?}: only for what is left");
    }
}

#[tokio::test(start_paused = true)]
async fn gem_f45_a_new_subscriber_is_told_nothing_from_before_its_start() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut first = f.subscribe("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=5).await;
    assert_eq!(said(&t, &mut first).await, numbered(1..=5));
    drop(first);
    t.clock().idle().await;
    broadcast_numbers(&f, "s", 6..=25).await;
    let mut second = f.subscribe("s").await.unwrap();
    assert_eq!(second.start().sequence, Sequence(25));
    t.wire().cut();
    assert_eq!(said_within(&t, &mut second, ms(3_000)).await, numbered([]), "through a reconnect and sweeps");
    broadcast_numbers(&f, "s", 26..=26).await;
    assert_eq!(said(&t, &mut second).await, numbered(26..=26));
    // One who joins a stream that another has been following begins at his own start too.
    let mut third = f.subscribe("s").await.unwrap();
    t.wire().cut();
    broadcast_numbers(&f, "s", 27..=27).await;
    assert_eq!(said_within(&t, &mut third, ms(3_000)).await, numbered(27..=27));
    assert_eq!(said(&t, &mut second).await, numbered(27..=27));
}

#[tokio::test(start_paused = true)]
async fn gem_f46_a_queue_is_told_nothing_of_a_stream_of_its_name_by_a_replay() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let queue = f.queue("orders").await.unwrap();
    queue.push(r#"{"id":1,"channel_id":1,"sequence":1,"stream":"orders","data":"of the queue"}"#).await.unwrap();
    assert!(queue.pop().await.unwrap().contains("of the queue"));
    broadcast_numbers(&f, "orders", 1..=10).await;
    t.wire().cut();
    t.clock().advance(ms(5_000)).await;
    broadcast_numbers(&f, "orders", 11..=12).await;
    queue.push("next").await.unwrap();
    assert_eq!(queue.pop().await.as_deref(), Some("next"), "and nothing before it");
    for name in ["firehose:orders", "firehose-queue:x"] {
        assert_eq!(f.queue(name).await.unwrap_err().kind(), ErrorKind::InvalidName);
        assert_eq!(f.listen_raw(name).await.unwrap_err().kind(), ErrorKind::InvalidName);
    }
}

#[tokio::test(start_paused = true)]
async fn gem_f47_one_handler_subscribed_twice_and_given_up_once_is_still_there() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let handler = move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        std::future::ready(())
    };
    let one = f.on("s", handler.clone()).await.unwrap();
    let two = f.on("s", handler).await.unwrap();
    broadcast_numbers(&f, "s", 1..=1).await;
    t.clock().idle().await;
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    drop(one);
    t.clock().idle().await;
    broadcast_numbers(&f, "s", 2..=2).await;
    t.clock().idle().await;
    assert_eq!(calls.load(Ordering::Relaxed), 3, "the other one");
    drop(two);
    t.clock().idle().await;
    broadcast_numbers(&f, "s", 3..=3).await;
    t.clock().idle().await;
    assert_eq!((calls.load(Ordering::Relaxed), f.metrics_snapshot().subscribed_channels), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn gem_f48_what_comes_between_the_listen_and_the_replay_arrives_once() {
    for paused in [Operation::Anchors, Operation::Heads, Operation::ReadAfter] {
        let t = Testkit::new(1);
        let f = engine_with(&t, no_sweep()).await;
        let mut s = f.subscribe("s").await.unwrap();
        broadcast_numbers(&f, "s", 1..=2).await;
        assert_eq!(said(&t, &mut s).await, numbered(1..=2));
        t.wire().drop_next(1);
        broadcast_numbers(&f, "s", 3..=3).await;
        t.clock().idle().await;
        // The new session listens, and the replay has not read yet.
        let hold = t.faults().on(paused).hang();
        t.wire().cut();
        t.clock().idle().await;
        assert_eq!((f.state(), hold.waiting()), (State::Live, 1), "{paused}");
        broadcast_numbers(&f, "s", 4..=4).await;
        t.clock().idle().await;
        hold.release();
        assert_eq!(said_within(&t, &mut s, ms(200)).await, numbered(3..=4), "{paused}");
        broadcast_numbers(&f, "s", 5..=5).await;
        assert_eq!(said(&t, &mut s).await, numbered(5..=5), "{paused}");
    }
}

#[tokio::test(start_paused = true)]
async fn gem_f50_a_stream_that_lost_all_its_messages_keeps_its_epoch_and_its_sequence() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=5).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=5));
    let epoch = t.database().messages("s")[0].channel_id;
    t.database().trim_to("s", Sequence(5));
    assert_eq!(f.head("s").await.unwrap().unwrap().sequence, Sequence(5));
    let next = f.broadcast("s", "6").await.unwrap();
    assert_eq!((next.sequence, next.channel_id), (Sequence(6), epoch));
    assert_eq!(said(&t, &mut s).await, numbered(6..=6), "and no reset");
}

#[tokio::test(start_paused = true)]
async fn gem_f51_a_queue_that_is_closed_gives_what_it_has_and_then_its_end() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let queue = Arc::new(f.queue("jobs").await.unwrap());
    let popping = tokio::spawn({
        let queue = queue.clone();
        async move { queue.pop_timeout(Duration::from_secs(10)).await }
    });
    t.clock().advance(ms(300)).await;
    assert!(!popping.is_finished());
    queue.close();
    assert_eq!(popping.await.unwrap(), Ok(None), "an end, and no time-out");
    let began = t.clock().now();
    assert_eq!(queue.pop_timeout(Duration::from_secs(10)).await, Ok(None), "and the next pop the same");
    assert_eq!(t.clock().now().since(began), Duration::ZERO);
    let kept = f.queue("jobs").await.unwrap();
    kept.push("arrived before the end").await.unwrap();
    t.clock().idle().await;
    kept.close();
    assert_eq!(kept.pop_timeout(ms(10)).await.unwrap().as_deref(), Some("arrived before the end"));
    assert_eq!(kept.pop_timeout(ms(10)).await, Ok(None));
}
