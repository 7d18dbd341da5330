//! What the gem's tests of messages, queues and the registry assert, 1 to 65, as far as no other test here says it: by its
//! number, and by its value here.

use std::collections::BTreeSet;
use std::sync::Arc;

use firehose_testkit::Testkit;

use super::*;

#[tokio::test(start_paused = true)]
async fn gem_a001_a002_a_broadcast_adds_exactly_one_message_and_gives_it() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let given = f.broadcast("user:42/orders", "paid").await.unwrap();
    t.clock().advance(ms(2_000)).await;
    assert_eq!(t.database().streams().iter().map(StreamName::as_str).collect::<Vec<_>>(), ["user:42/orders"]);
    assert_eq!(t.database().messages("user:42/orders"), std::slice::from_ref(&given));
    assert_eq!((given.sequence, &*given.data), (Sequence(1), "paid"));
}

#[tokio::test(start_paused = true)]
async fn gem_a005_a012_streams_count_each_for_itself_and_ids_rise() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut last = MessageId(0);
    for n in 1..=10 {
        for stream in ["a", "b"] {
            let m = f.broadcast(stream, "x").await.unwrap();
            assert_eq!(m.sequence, Sequence(n), "{stream}");
            assert!(m.id > last);
            last = m.id;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn gem_a007_a008_names_are_stored_as_they_are() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let names = ["app/orders:42-new_2", "Z2lkOi8vYXBwL1VzZXIvNDI", "Z2lkOi8vYXBwL1VzZXIvNDI=", "a:b:c", "-", "0"];
    for name in names {
        assert_eq!(f.broadcast(name, "x").await.unwrap().stream.as_str(), name);
    }
    let stored: BTreeSet<String> = t.database().streams().iter().map(ToString::to_string).collect();
    assert_eq!(stored, names.iter().map(ToString::to_string).collect());
}

#[tokio::test(start_paused = true)]
async fn gem_a009_a_subscriber_gets_the_stored_message_once_and_whole() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    let stored = f.broadcast("s", "paid").await.unwrap();
    t.clock().idle().await;
    assert_eq!(s.next().await, Some(Delivery::Message(Arc::new(stored))), "its time too");
    assert_eq!(said_within(&t, &mut s, ms(3_000)).await, numbered([]), "and nothing more");
}

#[tokio::test(start_paused = true)]
async fn gem_a026_a031_reading_after_an_id_gives_the_later_ones_of_its_streams() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    for n in 1..=4 {
        f.broadcast("a", n.to_string()).await.unwrap();
        f.broadcast("b", n.to_string()).await.unwrap();
    }
    let ids: Vec<MessageId> = t.database().messages("a").iter().map(|m| m.id).collect();
    let store = t.backend().store;
    let read = async |id: MessageId, streams: &[&str]| {
        let requests: Vec<_> = streams.iter().map(|s| (s.parse().unwrap(), Position::Id(id))).collect();
        let pages = store.read_after(&requests, PageLimit { rows: 100, bytes: 1 << 20 }).await.unwrap();
        pages.into_iter().map(|p| p.messages.iter().map(|m| m.sequence.0).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    assert_eq!(read(ids[1], &["a"]).await, [vec![3, 4]], "the next one first");
    assert_eq!(read(ids[1], &["a", "b"]).await, [vec![3, 4], vec![2, 3, 4]], "several at once");
    assert_eq!(read(ids[3], &["a"]).await, [Vec::<i64>::new()], "the last");
    assert_eq!(read(MessageId(0), &["a"]).await, [vec![1, 2, 3, 4]]);
}

#[tokio::test(start_paused = true)]
async fn gem_a054_who_waits_for_a_queue_holds_nobody_up() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let queue = Arc::new(f.queue("jobs").await.unwrap());
    let popping = tokio::spawn({
        let queue = queue.clone();
        async move { queue.pop().await }
    });
    let mut s = f.subscribe("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=50).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=50));
    assert!(!popping.is_finished());
    queue.push("x").await.unwrap();
    assert_eq!(popping.await.unwrap().as_deref(), Some("x"));
}

#[tokio::test(start_paused = true)]
async fn gem_a055_a_queues_name_may_be_long() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let (name, other) = ("q".repeat(500), format!("{}x", "q".repeat(500)));
    let (queue, neighbour) = (f.queue(&name).await.unwrap(), f.queue(&other).await.unwrap());
    queue.push("mine").await.unwrap();
    neighbour.push("the neighbour's").await.unwrap();
    assert_eq!(queue.pop().await.as_deref(), Some("mine"));
    assert_eq!(neighbour.pop().await.as_deref(), Some("the neighbour's"));
}

#[tokio::test(start_paused = true)]
async fn gem_a056_the_limit_of_a_push_is_that_of_notify_and_exact() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let queue = f.queue("jobs").await.unwrap();
    for data in ["x".repeat(7_999), "é".repeat(3_999)] {
        queue.push(data.as_str()).await.unwrap();
        assert_eq!(queue.pop().await.as_deref(), Some(data.as_str()));
    }
    for data in ["x".repeat(8_000), "é".repeat(4_000)] {
        let error = queue.push(data).await.unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::TooLarge, Outcome::NotDone));
        assert_eq!(error.to_string(), "notify: payload of 8000 bytes, at most 7999 are allowed");
    }
    assert_eq!(queue.pop_timeout(ms(0)).await.unwrap_err().to_string(), "nothing was pushed within 0s");
}

#[tokio::test(start_paused = true)]
async fn gem_a062_rounds_of_raw_listeners_and_subscribers_leave_nothing_in_any_map() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    for n in 0..1_000 {
        let subscription = f.subscribe(format!("s{n}")).await.unwrap();
        let raw = f.listen_raw(format!("r{n}")).await.unwrap();
        drop((subscription, raw));
    }
    t.clock().idle().await;
    // The one that is left is that of the probe.
    assert_eq!((f.metrics_snapshot().subscribed_channels, t.wire().channels().len()), (0, 1));
    assert_eq!(f.diagnostics().streams, []);
}
