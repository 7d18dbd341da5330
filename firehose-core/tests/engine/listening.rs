//! Losing the session, and what is repaired without help.

use std::sync::{Arc, Mutex};

use firehose_testkit::{Operation, Testkit};

use super::*;

#[tokio::test(start_paused = true)]
async fn c01_what_is_broadcast_while_the_listener_is_down_arrives_in_order_once() {
    let t = Testkit::new(1);
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = events.clone();
    let f = Firehose::builder(t.backend())
        .clock(t.clock())
        .on_event(move |e| heard.lock().unwrap().push(e.clone()))
        .start()
        .await
        .unwrap();
    let mut s = f.subscribe("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=2).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=2));
    t.faults().on(Operation::Connect).fail(1, ErrorKind::ConnectionLost);
    t.wire().cut();
    t.clock().idle().await;
    assert!(matches!(f.state(), State::Reconnecting { attempt: 2 }), "{:?}", f.state());
    broadcast_numbers(&f, "s", 3..=12).await;
    assert_eq!(said_within(&t, &mut s, ms(2_500)).await, numbered(3..=12));
    assert_eq!(f.state(), State::Live);
    assert_eq!(f.metrics_snapshot().reconnects_total, 1);
    let events = events.lock().unwrap();
    assert!(
        matches!(
            events.iter().find(|e| matches!(e, Event::Reconnected { .. })),
            Some(Event::Reconnected { attempts: 2, .. })
        ),
        "{events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn c04_what_was_in_flight_when_the_connection_went_arrives_without_further_traffic() {
    let t = Testkit::new(1);
    let f = engine_with(&t, Config { sweep_interval: Duration::from_secs(3_600), ..Config::default() }).await;
    let mut s = f.subscribe("s").await.unwrap();
    t.wire().drop_next(5);
    broadcast_numbers(&f, "s", 1..=5).await;
    t.wire().cut();
    assert_eq!(said_within(&t, &mut s, ms(100)).await, numbered(1..=5), "replayed at once, and by no sweep");
    assert_eq!(f.metrics_snapshot().replay_messages_delivered, 5);
}

#[tokio::test(start_paused = true)]
async fn c07_a_long_outage_is_replayed_page_by_page() {
    let t = Testkit::new(1);
    t.database().set_settings(Settings::default().with_cleanup_threshold(CleanupThreshold::Everything));
    let process = t.process();
    let f = Firehose::builder(process.backend()).clock(t.clock()).seed(1).start().await.unwrap();
    let publisher = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    process.faults().on(Operation::Connect).refuse(ErrorKind::ConnectionLost);
    process.faults().on(Operation::Heads).refuse(ErrorKind::ConnectionLost);
    process.cut();
    broadcast_numbers(&publisher, "s", 1..=5_000).await;
    t.clock().advance(Duration::from_secs(3_600)).await;
    process.faults().heal();
    assert_said(&said_within(&t, &mut s, Duration::from_secs(31)).await, &numbered(1..=5_000), "replayed");
}

#[tokio::test(start_paused = true)]
async fn the_sweep_delivers_while_there_is_no_session() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    t.faults().on(Operation::Connect).refuse(ErrorKind::ConnectionLost);
    t.wire().cut();
    t.clock().advance(Duration::from_secs(60)).await;
    broadcast_numbers(&f, "s", 1..=2).await;
    assert_eq!(said_within(&t, &mut s, ms(1_100)).await, numbered(1..=2));
    assert!(!f.health().is_live());
    assert!(f.health().reason.is_some());
}

#[tokio::test(start_paused = true)]
async fn c17_c19_attempts_follow_the_backoff() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    t.faults().on(Operation::Connect).refuse(ErrorKind::ConnectionLost);
    t.faults().clear_trace();
    t.wire().cut();
    t.clock().advance(Duration::from_secs(60)).await;
    let failed = firehose_testkit::Phase::Failed(ErrorKind::ConnectionLost);
    let attempts = t.faults().trace().iter().filter(|e| e.is(Operation::Connect, failed)).count();
    assert!((4..=8).contains(&attempts), "{attempts} attempts in a minute");
    t.faults().heal();
    t.clock().advance(Duration::from_secs(31)).await;
    assert_eq!(f.state(), State::Live, "C14: repaired without help");
}

#[tokio::test(start_paused = true)]
async fn c15_each_loss_leads_to_one_new_session() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    for n in 1..=10 {
        t.wire().cut();
        broadcast_numbers(&f, "s", n..=n).await;
        assert_eq!(said_within(&t, &mut s, Duration::from_secs(40)).await, numbered(n..=n));
        assert_eq!(f.metrics_snapshot().reconnects_total, n as u64);
        assert_eq!(t.wire().session_count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn c44_c48_rounds_of_subscribing_leave_nothing() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    for n in 0..2_000 {
        let s = f.subscribe(format!("s{}", n % 3)).await.unwrap();
        drop(s);
    }
    t.clock().idle().await;
    assert_eq!(f.metrics_snapshot().subscribed_channels, 0);
    assert_eq!((t.wire().session_count(), t.wire().channels().len()), (1, 1), "the probe's");
    assert!(t.clock().pending_sleeps() < 10, "{}", t.clock().pending_sleeps());
}

#[tokio::test(start_paused = true)]
async fn c50_thirty_thousand_streams_listen_in_few_commands() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let all = futures_util::future::join_all((0..30_000).map(|n| f.subscribe(format!("s{n}")))).await;
    assert!(all.iter().all(Result::is_ok));
    t.faults().clear_trace();
    t.wire().cut();
    t.clock().advance(ms(2_000)).await;
    let listens = t.faults().trace().iter().filter(|e| e.is(Operation::Listen, firehose_testkit::Phase::Done)).count();
    assert_eq!((listens, f.state()), (31, State::Live), "one for the probe");
    drop(all);
    t.clock().advance(ms(2_000)).await;
    assert_eq!(t.wire().channels().len(), 1, "the probe's");
}

#[tokio::test(start_paused = true)]
async fn c41_c42_names_do_not_meet() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let long = "x".repeat(63);
    let names = [
        "my-channel",
        "My",
        "my",
        "a\"b'c",
        "orders; DROP TABLE x",
        "line\nbreak",
        " ",
        "🌍",
        "é",
        "e\u{301}",
        &long,
        &format!("{long}a"),
        &format!("{long}b"),
        &"y".repeat(1_024),
    ];
    let mut all = Vec::new();
    for name in names {
        all.push(f.subscribe(name).await.unwrap());
    }
    for name in names {
        f.broadcast(name, name).await.unwrap();
    }
    for (name, s) in names.iter().zip(&mut all) {
        assert_eq!(said(&t, s).await, [format!("1:{name}")]);
    }
}

#[tokio::test(start_paused = true)]
async fn buckets_deliver_the_same_and_only_what_is_wanted() {
    let t = Testkit::new(1);
    t.database().set_settings(Settings::default().with_layout(Layout::Buckets, 2));
    let f = engine(&t).await;
    let mut all = Vec::new();
    for n in 0..20 {
        all.push(f.subscribe(format!("s{n}")).await.unwrap());
    }
    assert_eq!(f.metrics_snapshot().subscribed_channels, 2);
    for n in 0..40 {
        f.broadcast(format!("s{n}"), "1").await.unwrap();
    }
    for s in &mut all {
        assert_eq!(said(&t, s).await, ["1:1"]);
    }
    assert_eq!(f.metrics_snapshot().payloads_ignored, 0, "a neighbour on the channel is no fault");
}
