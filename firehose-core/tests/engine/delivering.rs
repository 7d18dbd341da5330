//! G2, G3, G5, G6, G8 while subscribed.

use firehose_testkit::{Operation, Testkit};

use super::*;

#[tokio::test(start_paused = true)]
async fn c08_a_message_whose_announcement_is_lost_is_found_by_the_sweep_and_counted() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    t.wire().drop_next(1);
    broadcast_numbers(&f, "s", 1..=1).await;
    assert_eq!(said(&t, &mut s).await, Vec::<String>::new());
    assert_eq!(said_within(&t, &mut s, ms(1_000)).await, numbered(1..=1), "within sweep_interval");
    assert_eq!(f.metrics_snapshot().sweep_messages_found, 1);
}

#[tokio::test(start_paused = true)]
async fn a_hole_is_filled_by_one_read() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=1).await;
    t.clock().idle().await;
    t.wire().drop_next(1);
    broadcast_numbers(&f, "s", 2..=4).await;
    t.faults().clear_trace();
    assert_eq!(said_within(&t, &mut s, ms(20)).await, numbered(1..=4));
    let reads = t.faults().trace().into_iter().filter(|e| e.is(Operation::ReadAfter, firehose_testkit::Phase::Done));
    assert_eq!(reads.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn c31_shuffled_notifications_are_put_in_order() {
    let t = Testkit::new(3);
    let f = engine(&t).await;
    broadcast_numbers(&f, "s", 1..=1).await;
    let mut s = f.subscribe_from("s", Start::Earliest).await.unwrap();
    t.wire().shuffle(64);
    t.wire().duplicate_with(0.3);
    let many = (2..=10_000).map(|n| NewMessage::new("s", n.to_string()).unwrap());
    for result in f.broadcast_many(many).await {
        result.unwrap();
    }
    assert_said(&said_within(&t, &mut s, ms(2_000)).await, &numbered(1..=10_000), "shuffled");
    let m = f.metrics_snapshot();
    assert!(m.duplicates_dropped > 0 && m.out_of_order_held > 0, "{m:?}");
}

#[tokio::test(start_paused = true)]
async fn c40_payloads_around_the_limit_are_delivered_whole() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    let mut data = Vec::new();
    for length in [7_800, 7_900, 7_998, 7_999, 8_000, 8_001, 100_000] {
        data.push("a".repeat(length));
        data.push("🌍".repeat(length / 4));
        data.push("\"\\\n".repeat(length / 6));
    }
    for d in &data {
        f.broadcast("s", d.as_str()).await.unwrap();
    }
    for d in &data {
        let Some(Delivery::Message(m)) = s.next().await else { panic!() };
        assert_eq!(m.data.as_ref(), d);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_announced_without_its_data_is_read_once_for_a_hundred_subscribers() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut all = Vec::new();
    for _ in 0..100 {
        all.push(f.subscribe("s").await.unwrap());
    }
    t.faults().clear_trace();
    f.broadcast("s", "x".repeat(50_000)).await.unwrap();
    for s in &mut all {
        assert_eq!(s.next().await.unwrap().message().unwrap().data.len(), 50_000);
    }
    let reads = t.faults().trace().into_iter().filter(|e| e.is(Operation::ReadAfter, firehose_testkit::Phase::Done));
    assert_eq!(reads.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn c30_what_is_announced_before_its_commit_is_delivered_after_it_and_never_if_it_rolls_back() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=1).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=1));
    let mut open = t.database().begin();
    let m = open.append("s", "2").await.unwrap();
    let bare = format!(r#"{{"id":{},"channel_id":{},"sequence":2,"stream":"s"}}"#, m.id, m.channel_id);
    let channel = Naming::default().stream(&"s".parse().unwrap());
    t.database().announce_raw(channel.clone(), bare);
    assert_eq!(said_within(&t, &mut s, ms(3_000)).await, Vec::<String>::new());
    open.commit().unwrap();
    assert_eq!(said_within(&t, &mut s, ms(1_000)).await, numbered(2..=2));
    let mut open = t.database().begin();
    let m = open.append("s", "3").await.unwrap();
    t.database()
        .announce_raw(channel, format!(r#"{{"id":{},"channel_id":{},"sequence":3,"stream":"s"}}"#, m.id, m.channel_id));
    t.clock().advance(ms(100)).await;
    open.rollback();
    assert_eq!(said_within(&t, &mut s, ms(5_000)).await, Vec::<String>::new());
    broadcast_numbers(&f, "s", 3..=3).await;
    assert_eq!(said_within(&t, &mut s, ms(1_000)).await, numbered(3..=3));
}

#[tokio::test(start_paused = true)]
async fn c59_a_phantom_is_followed_by_a_reset_and_the_real_message() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    broadcast_numbers(&f, "s", 1..=1).await;
    let mut s = f.subscribe("s").await.unwrap();
    let mut open = t.database().begin();
    let m = open.append("s", "phantom").await.unwrap();
    let channel = Naming::default().stream(&"s".parse().unwrap());
    t.database().announce_raw(channel, wire::encode(&m, 7_999));
    open.rollback();
    assert_eq!(said(&t, &mut s).await, ["2:phantom"]);
    broadcast_numbers(&f, "s", 2..=3).await;
    assert_eq!(said_within(&t, &mut s, ms(100)).await, ["reset Replaced", "2:2", "3:3"]);
}

#[tokio::test(start_paused = true)]
async fn c62_what_is_no_announcement_is_ignored_and_counted() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    let channel = Naming::default().stream(&"s".parse().unwrap());
    let long = "[".repeat(7_999);
    for bad in ["42", "null", "true", "[1,2]", "\"x\"", "", "{}", "plain", &long] {
        t.database().announce_raw(channel.clone(), bad);
    }
    broadcast_numbers(&f, "s", 1..=1).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=1));
    let metrics = f.metrics_snapshot();
    assert_eq!((metrics.payloads_ignored, metrics.reconnects_total), (9, 0));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_deleted_and_made_again_is_a_reset_while_subscribed() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=3).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=3));
    f.delete_stream("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=2).await;
    assert_eq!(said_within(&t, &mut s, ms(1_100)).await, ["reset Recreated", "1:1", "2:2"]);
}

#[tokio::test(start_paused = true)]
async fn a_database_that_went_back_is_a_reset_to_its_head_after_the_reconnect() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=8).await;
    let dump = t.database().snapshot();
    broadcast_numbers(&f, "s", 9..=10).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=10));
    t.database().restore(&dump);
    t.wire().cut();
    assert_eq!(said_within(&t, &mut s, ms(3_000)).await, ["reset WentBack"]);
    broadcast_numbers(&f, "s", 9..=9).await;
    assert_eq!(said(&t, &mut s).await, numbered(9..=9));
}

#[tokio::test(start_paused = true)]
async fn c46_who_falls_behind_catches_up_from_the_store_and_is_told() {
    let t = Testkit::new(1);
    let lagged = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = lagged.clone();
    let f = Firehose::builder(t.backend())
        .config(Config { subscriber_buffer: 100, ..Config::default() })
        .clock(t.clock())
        .on_event(move |e| {
            if let Event::Lagged { from, to, .. } = e {
                heard.lock().unwrap().push((from.0, to.0));
            }
        })
        .start()
        .await
        .unwrap();
    let (mut slow, mut quick) = (f.subscribe("s").await.unwrap(), f.subscribe("s").await.unwrap());
    broadcast_numbers(&f, "s", 1..=1).await;
    assert_eq!(said(&t, &mut slow).await, numbered(1..=1));
    let mut seen = Vec::new();
    for from in (2..=2_000).step_by(50) {
        broadcast_numbers(&f, "s", from..=(from + 49).min(2_000)).await;
        seen.extend(said(&t, &mut quick).await);
    }
    assert_said(&seen, &numbered(1..=2_000), "nobody waits for the slow one");
    assert_eq!(f.metrics_snapshot().subscribers_behind, 1);
    let mut seen = Vec::new();
    for _ in 0..3 {
        // It lags again while it catches up.
        for _ in 0..300 {
            seen.push(tell(&slow.next().await.unwrap()));
        }
        let next = t.database().messages("s").len() as i64 + 1;
        broadcast_numbers(&f, "s", next..=next + 300).await;
    }
    seen.extend(said_within(&t, &mut slow, ms(100)).await);
    assert_said(&seen, &numbered(2..=2_903), "the slow one");
    assert_eq!(lagged.lock().unwrap()[0], (2, 2_000));
    t.clock().idle().await;
    assert_eq!(f.metrics_snapshot().subscribers_behind, 1, "only the one that reads no more");
}

#[tokio::test(start_paused = true)]
async fn c45_a_handler_that_never_returns_and_one_that_panics_delay_nobody() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let _stuck = f.on("s", |_| std::future::pending()).await.unwrap();
    let count = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = count.clone();
    let _panics = f
        .on("s", move |m| {
            let counted = counted.clone();
            async move {
                assert!(m.sequence.0 % 2 == 0, "an odd one");
                counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        })
        .await
        .unwrap();
    let mut s = f.subscribe("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=10).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=10));
    assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 5);
}

#[tokio::test(start_paused = true)]
async fn c26_a_token_of_two_streams_keeps_a_late_commit() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut late = t.database().begin();
    let a = late.append("a", "late").await.unwrap();
    let mut set = f.subscriptions();
    set.add("a", Start::Now).await.unwrap();
    set.add("b", Start::Now).await.unwrap();
    let b = f.broadcast("b", "x").await.unwrap();
    assert!(b.id > a.id);
    let (stream, delivery) = set.next().await.unwrap();
    assert_eq!((stream.as_str(), tell(&delivery).as_str()), ("b", "1:x"));
    let token: Token = set.token().to_string().parse().unwrap();
    drop(set);
    late.commit().unwrap();
    let mut set = f.subscriptions();
    for stream in ["a", "b"] {
        let name: StreamName = stream.parse().unwrap();
        set.add(&name, Start::After(token.get(&name).unwrap())).await.unwrap();
    }
    let (stream, delivery) = set.next().await.unwrap();
    assert_eq!((stream.as_str(), tell(&delivery).as_str()), ("a", "1:late"));
}

#[tokio::test(start_paused = true)]
async fn a_set_comes_and_goes() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut set = f.subscriptions();
    for name in ["a", "b", "c"] {
        set.add(name, Start::Now).await.unwrap();
    }
    f.broadcast("a", "1").await.unwrap();
    f.broadcast("b", "1").await.unwrap();
    t.clock().idle().await;
    set.remove(&"a".parse().unwrap());
    t.clock().idle().await;
    assert_eq!(f.metrics_snapshot().subscribed_channels, 2);
    let (stream, _) = set.next().await.unwrap();
    assert_eq!(stream.as_str(), "b", "nothing of what was removed");
    set.add("b", Start::Earliest).await.unwrap();
    let (stream, delivery) = set.next().await.unwrap();
    assert_eq!((stream.as_str(), tell(&delivery).as_str()), ("b", "1:1"), "it began anew");
    assert_eq!((set.len(), set.token().len()), (2, 2));
    f.shutdown(ms(100)).await;
    let mut ends = Vec::new();
    while let Some((stream, delivery)) = set.next().await {
        ends.push(format!("{stream} {}", tell(&delivery)));
    }
    ends.sort();
    assert_eq!(ends, ["b closed Shutdown", "c closed Shutdown"]);
}
