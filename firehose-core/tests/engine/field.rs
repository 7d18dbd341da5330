//! Faults of the field that need no other file: reads that come too early, tasks that die, floods, hot streams.

use firehose_testkit::{Operation, Phase, Testkit};

use super::*;

fn count(testkit: &Testkit, operation: Operation) -> usize {
    testkit.faults().trace().iter().filter(|e| e.is(operation, Phase::Started)).count()
}

#[tokio::test(start_paused = true)]
async fn c05_what_is_broadcast_between_the_replay_and_the_live_feed_arrives_once() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    broadcast_numbers(&f, "s", 1..=3).await;
    // The replay's page has been read, and its answer is on its way.
    let hold = t.faults().on(Operation::ReadAfter).hang_after();
    let mut s = f.subscribe_from("s", Start::Earliest).await.unwrap();
    assert_eq!(said(&t, &mut s).await, numbered([]));
    assert_eq!(hold.waiting(), 1);
    broadcast_numbers(&f, "s", 4..=4).await;
    t.clock().idle().await;
    hold.release();
    assert_eq!(said_within(&t, &mut s, ms(100)).await, numbered(1..=4));
}

#[tokio::test(start_paused = true)]
async fn c23_a_message_that_is_not_visible_yet_is_looked_for_and_is_no_gap() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    // Announced without its data, and three reads do not see it.
    t.faults().hide_messages(3);
    let long = "x".repeat(9_000);
    f.broadcast("s", long.as_str()).await.unwrap();
    broadcast_numbers(&f, "s", 2..=3).await;
    let seen = said_within(&t, &mut s, ms(3_000)).await;
    let short: Vec<_> = seen.iter().map(|s| s.chars().take(3).collect::<String>()).collect();
    assert_eq!(short, ["1:x", "2:2", "3:3"]);
    assert_eq!(f.metrics_snapshot().gaps_reported, 0);
}

#[tokio::test(start_paused = true)]
async fn c43_a_nul_is_refused_before_the_store_is_asked() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let error = f.broadcast("s", "a\0b").await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::InvalidData, Outcome::NotDone));
    assert!(error.to_string().contains("NUL at byte 1"), "{error}");
    assert_eq!(f.broadcast("s\0", "x").await.unwrap_err().kind(), ErrorKind::InvalidName);
    assert_eq!(NewMessage::new("s", "x").unwrap().key("k\0").unwrap_err().kind(), ErrorKind::InvalidKey);
    assert_eq!(f.notify("raw", "a\0").await.unwrap_err().kind(), ErrorKind::InvalidData);
    assert_eq!(count(&t, Operation::Append), 0);
    // A NUL written as JSON is six characters like any others.
    assert_eq!(&*f.broadcast_json("s", &"a\0b").await.unwrap().data, r#""a\u0000b""#);
}

#[tokio::test(start_paused = true)]
async fn c47_a_stopped_consumer_costs_bounded_memory_however_much_is_heard() {
    let t = Testkit::new(1);
    let config = Config { subscriber_buffer: 100, subscriber_buffer_bytes: 10_000, ..Config::default() };
    let f = engine_with(&t, config).await;
    let mut stopped = f.subscribe("s").await.unwrap();
    let data = "x".repeat(200);
    for _ in 0..20 {
        let many = (0..1_000).map(|_| NewMessage::new("s", data.as_str()).unwrap());
        for stored in f.broadcast_many(many).await {
            stored.unwrap();
        }
        t.clock().idle().await;
        let kept = f.diagnostics().streams.iter().map(|s| (s.kept, s.kept_bytes)).next().unwrap();
        assert!(kept.0 <= 100 && kept.1 <= 10_000, "{kept:?}");
    }
    let mut seen = 0;
    while seen < 20_000 {
        match stopped.next().await.unwrap() {
            Delivery::Message(m) => seen += i64::from(m.sequence.0 == seen + 1),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c49_who_subscribed_before_the_session_died_or_its_task_panicked_still_receives() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut subscriptions = Vec::new();
    for n in 0..50 {
        subscriptions.push(f.subscribe(format!("s{n}")).await.unwrap());
    }
    for (round, panics) in [false, true].into_iter().enumerate() {
        if panics {
            t.faults().on(Operation::Connect).panic(1);
        }
        t.wire().cut();
        t.clock().advance(ms(5_000)).await;
        for (n, s) in subscriptions.iter_mut().enumerate() {
            let sequence = round as i64 + 1;
            broadcast_numbers(&f, &format!("s{n}"), sequence..=sequence).await;
            assert_eq!(said(&t, s).await, numbered(sequence..=sequence), "stream {n}, round {round}");
        }
    }
    assert_eq!(t.wire().channels().len(), 51, "and the probe's");
}

#[tokio::test(start_paused = true)]
async fn c70_a_hot_stream_of_two_processes_costs_few_reads_and_keeps_its_order() {
    let t = Testkit::new(1);
    let (a, b) = (engine(&t).await, t.process());
    let b = Firehose::builder(b.backend()).clock(t.clock()).seed(8).start().await.unwrap();
    let (mut here, mut there) = (a.subscribe("s").await.unwrap(), b.subscribe("s").await.unwrap());
    broadcast_numbers(&a, "s", 1..=1).await;
    assert_eq!((said(&t, &mut here).await, said(&t, &mut there).await), (numbered(1..=1), numbered(1..=1)));
    // Their notifications take different times, so each message overtakes the one of the other process.
    t.wire().delay_between(ms(1), ms(9));
    let before = count(&t, Operation::ReadAfter);
    let (mut seen_here, mut seen_there) = (Vec::new(), Vec::new());
    for n in 2..=2_000 {
        let publisher = if n % 2 == 0 { &a } else { &b };
        broadcast_numbers(publisher, "s", n..=n).await;
        t.clock().advance(ms(1)).await;
        if n % 100 == 0 {
            seen_here.extend(said(&t, &mut here).await);
            seen_there.extend(said(&t, &mut there).await);
        }
    }
    seen_here.extend(said_within(&t, &mut here, ms(100)).await);
    seen_there.extend(said_within(&t, &mut there, ms(100)).await);
    assert_said(&seen_here, &numbered(2..=2_000), "here");
    assert_said(&seen_there, &numbered(2..=2_000), "there");
    // Two seconds, two processes.
    let reads = count(&t, Operation::ReadAfter) - before;
    assert!(reads <= 4, "{reads} reads of the store for holes");
}
