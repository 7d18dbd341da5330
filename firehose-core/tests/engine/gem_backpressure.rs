//! Faults 25 to 30 of the gem: bounds that did not bound, or lost what they kept out, by their right outcome.

use std::sync::Arc;

use firehose_testkit::{Operation, Testkit};
use futures_util::future::join_all;

use super::*;

fn capped(cap: usize) -> Config {
    Config { max_command_queue_depth: cap, sweep_interval: Duration::from_secs(100_000), ..Config::default() }
}

#[tokio::test(start_paused = true)]
async fn gem_f25_f26_the_cap_bounds_what_waits_however_many_connections_there_are_and_the_depth_is_told() {
    for pool in [0, 1, 4] {
        let t = Testkit::new(1);
        let f = engine_with(&t, Config { notify_pool_size: pool, ..capped(100) }).await;
        let other = engine_with(&t, capped(100)).await;
        let (mut mine, mut theirs) = (f.subscribe("s").await.unwrap(), other.subscribe("s").await.unwrap());
        let stalled = t.faults().on(Operation::Notify).hang();
        broadcast_numbers(&f, "s", 1..=1).await;
        t.clock().idle().await;
        broadcast_numbers(&f, "s", 2..=101).await;
        assert_eq!((f.metrics_snapshot().command_queue_depth, f.metrics_snapshot().commands_dropped), (100, 0));
        broadcast_numbers(&f, "s", 102..=2_000).await;
        let m = f.metrics_snapshot();
        assert_eq!(m.commands_dropped, 1_899, "pool {pool}: each that found no room");
        assert_eq!(m.command_queue_depth, 101, "pool {pool}: a hundred, and the one stream that is to be made up for");
        assert_eq!(f.diagnostics().metrics.command_queue_depth, 101);
        assert_eq!(t.database().messages("s").len(), 2_000, "stored all the same");
        stalled.release();
        assert_said(&said_within(&t, &mut mine, ms(500)).await, &numbered(1..=2_000), "here, without a sweep");
        assert_said(&said_within(&t, &mut theirs, ms(500)).await, &numbered(1..=2_000), "and in another process");
        assert_eq!(f.metrics_snapshot().command_queue_depth, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn gem_f27_what_is_stored_nowhere_is_never_dropped_silently() {
    let t = Testkit::new(1);
    let f = engine_with(&t, capped(100)).await;
    let mut raw = f.listen_raw("burst").await.unwrap();
    let reading = tokio::spawn(async move {
        let mut heard = Vec::new();
        while heard.len() < 10_000 {
            heard.push(raw.next().await.unwrap().parse::<usize>().unwrap());
        }
        (heard, raw.missed())
    });
    let burst = (0..10_000).map(|n| {
        let f = f.clone();
        tokio::spawn(async move { f.notify("burst", n.to_string()).await })
    });
    for sent in join_all(burst).await {
        sent.unwrap().unwrap();
    }
    let (mut heard, missed) = reading.await.unwrap();
    heard.sort_unstable();
    assert_eq!((heard, missed), ((0..10_000).collect::<Vec<_>>(), 0));
    assert_eq!(f.metrics_snapshot().commands_dropped, 0);
    // Where nothing leaves, a caller waits for room and then for its answer, and is told how it ended.
    let stalled = t.faults().on(Operation::Notify).hang();
    let waiting: Vec<_> = (0..300)
        .map(|n| {
            let f = f.clone();
            tokio::spawn(async move { f.notify("burst", n.to_string()).await })
        })
        .collect();
    t.clock().advance(ms(900)).await;
    assert!(f.metrics_snapshot().command_queue_depth <= 100);
    assert!(waiting.iter().all(|w| !w.is_finished()));
    let ending = f.clone();
    let shutdown = tokio::spawn(async move { ending.shutdown(ms(100)).await });
    t.clock().advance(ms(100)).await;
    shutdown.await.unwrap();
    for one in waiting {
        assert_eq!(one.await.unwrap().unwrap_err().kind(), ErrorKind::ShutDown);
    }
    drop(stalled);
}

#[tokio::test(start_paused = true)]
async fn gem_f27_a_stream_whose_announcements_were_dropped_is_made_up_for_once_and_by_its_newest() {
    let t = Testkit::new(1);
    let f = engine_with(&t, capped(5)).await;
    let mut all = Vec::new();
    for n in 0..8 {
        all.push(f.subscribe(format!("s{n}")).await.unwrap());
    }
    let stalled = t.faults().on(Operation::Notify).hang();
    broadcast_numbers(&f, "s0", 1..=1).await;
    t.clock().idle().await;
    broadcast_numbers(&f, "s1", 1..=5).await;
    for n in 2..5 {
        broadcast_numbers(&f, &format!("s{n}"), 1..=50).await;
    }
    let before = f.metrics_snapshot().notifies_received;
    stalled.release();
    t.clock().advance(ms(500)).await;
    for (n, s) in all.iter_mut().enumerate() {
        let count = [1, 5, 50, 50, 50, 0, 0, 0][n];
        assert_said(&said(&t, s).await, &numbered(1..=count), &format!("s{n}"));
    }
    assert_eq!(f.metrics_snapshot().notifies_received - before, 1 + 5 + 3, "one for each stream that was cut short");
}

#[tokio::test(start_paused = true)]
async fn gem_f28_producers_at_once_do_not_overshoot_the_cap() {
    let t = Testkit::new(1);
    let f = engine_with(&t, capped(10)).await;
    let stalled = t.faults().on(Operation::Notify).hang();
    broadcast_numbers(&f, "in flight", 1..=1).await;
    t.clock().idle().await;
    let producers: Vec<_> = (0..500)
        .map(|n| {
            let f = f.clone();
            tokio::spawn(async move {
                f.broadcast(format!("s{n}"), "x").await.unwrap();
                f.metrics_snapshot().command_queue_depth
            })
        })
        .collect();
    for producer in producers {
        let depth = producer.await.unwrap();
        // As many streams may be marked as announcements may wait.
        assert!(depth <= 20, "{depth}");
    }
    let m = f.metrics_snapshot();
    assert_eq!(m.command_queue_depth, 20);
    assert_eq!(m.commands_dropped, 490, "each is counted");
    drop(stalled);
}

#[tokio::test(start_paused = true)]
async fn gem_f29_a_notification_whose_connection_dies_is_counted_and_sent_again_without_a_pool_too() {
    for pool in [0, 1] {
        let t = Testkit::new(1);
        let f = engine_with(&t, Config { notify_pool_size: pool, ..capped(100) }).await;
        let mut s = f.subscribe("s").await.unwrap();
        t.faults().on(Operation::Notify).fail(1, ErrorKind::ConnectionLost);
        broadcast_numbers(&f, "s", 1..=1).await;
        assert_eq!(said_within(&t, &mut s, ms(200)).await, numbered(1..=1), "no sweep, and no later message");
        // It was sent, and the answer is lost: sent again, and delivered once.
        t.faults().on(Operation::Notify).lose_answer(1);
        broadcast_numbers(&f, "s", 2..=2).await;
        assert_eq!(said_within(&t, &mut s, ms(500)).await, numbered(2..=2));
        let m = f.metrics_snapshot();
        assert_eq!((m.notify_failures, m.duplicates_dropped), (2, 1), "pool {pool}");
        // What is stored nowhere is not sent again by itself: its caller decides.
        t.faults().on(Operation::Notify).fail(1, ErrorKind::ConnectionLost);
        assert_eq!(f.notify("raw", "x").await.unwrap_err().kind(), ErrorKind::ConnectionLost);
    }
}

#[tokio::test(start_paused = true)]
async fn gem_f30_a_client_that_does_not_read_grows_nothing() {
    let t = Testkit::new(1);
    let f = engine_with(&t, Config { subscriber_buffer: 50, subscriber_buffer_bytes: 100_000, ..capped(100) }).await;
    let mut stuck = Vec::new();
    for _ in 0..20 {
        stuck.push(f.subscribe("s").await.unwrap());
    }
    let data: Arc<str> = "x".repeat(5_000).into();
    for _ in 0..200 {
        f.broadcast("s", data.clone()).await.unwrap();
        t.clock().idle().await;
        let d = f.diagnostics();
        assert!(d.streams[0].kept <= 50 && d.streams[0].kept_bytes <= 100_000, "{:?}", d.streams[0]);
    }
    assert_eq!(f.diagnostics().streams[0].subscribers, 20);
    for s in &mut stuck {
        assert_eq!(said_within(&t, s, ms(100)).await.len(), 200, "and it is all there when they read at last");
    }
}
