//! Queues and raw channels.

use firehose_testkit::Testkit;

use super::*;

#[tokio::test(start_paused = true)]
async fn every_open_queue_gets_every_push_byte_for_byte() {
    let t = Testkit::new(1);
    let (f, other) = (engine(&t).await, engine(&t).await);
    let (a, b) = (f.queue("jobs").await.unwrap(), other.queue("jobs").await.unwrap());
    for data in ["", "42", "{\"x\": 1}", "🌍\n\t"] {
        a.push(data).await.unwrap();
        assert_eq!(a.pop().await.unwrap().as_ref(), data);
        assert_eq!(b.pop().await.unwrap().as_ref(), data);
    }
}

#[tokio::test(start_paused = true)]
async fn c36_equal_pushes_all_arrive() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let q = f.queue("jobs").await.unwrap();
    let (a, b, c) = tokio::join!(q.push("x"), q.push("x"), q.push("x"));
    a.and(b).and(c).unwrap();
    for _ in 0..3 {
        assert_eq!(q.pop().await.as_deref(), Some("x"));
    }
}

#[tokio::test(start_paused = true)]
async fn pop_with_a_limit_ends_and_a_close_is_no_timeout() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let q = std::sync::Arc::new(f.queue("jobs").await.unwrap());
    let popping = tokio::spawn({
        let q = q.clone();
        async move { q.pop_timeout(ms(300)).await }
    });
    t.clock().advance(ms(300)).await;
    assert_eq!(popping.await.unwrap().unwrap_err().to_string(), "nothing was pushed within 300ms");
    let popping = tokio::spawn({
        let q = q.clone();
        async move { q.pop_timeout(Duration::from_secs(10)).await }
    });
    t.clock().idle().await;
    q.close();
    assert_eq!(popping.await.unwrap(), Ok(None), "fault 51");
    f.queue("jobs").await.unwrap().push("x").await.unwrap();
    assert_eq!(q.pop().await, None);
}

#[tokio::test(start_paused = true)]
async fn c64_queues_and_streams_of_one_name_do_not_meet() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let q = f.queue("orders").await.unwrap();
    let mut s = f.subscribe("orders").await.unwrap();
    f.broadcast("orders", "1").await.unwrap();
    q.push(r#"{"id":9,"channel_id":1,"sequence":2,"stream":"orders","data":"lie"}"#).await.unwrap();
    t.wire().cut();
    t.clock().advance(ms(2_000)).await;
    q.push("end").await.unwrap();
    assert!(q.pop().await.unwrap().contains("lie"));
    assert_eq!(q.pop().await.as_deref(), Some("end"));
    assert_eq!(said_within(&t, &mut s, ms(2_000)).await, numbered(1..=1));
}

#[tokio::test(start_paused = true)]
async fn raw_channels_are_heard_by_their_name() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut hashed = f.listen_raw("events").await.unwrap();
    let mut own = f.listen_identifier("app_events").await.unwrap();
    f.notify("events", "a").await.unwrap();
    t.database().announce_raw(ChannelIdentifier::new("app_events").unwrap(), "b");
    assert_eq!(hashed.next().await.as_deref(), Some("a"));
    assert_eq!(own.next().await.as_deref(), Some("b"));
    drop((hashed, own));
    t.clock().idle().await;
    assert_eq!(t.wire().channels().len(), 1, "the probe's");
}

#[tokio::test(start_paused = true)]
async fn a_raw_listener_that_does_not_read_is_bounded_and_counts() {
    let t = Testkit::new(1);
    let f = engine_with(&t, Config { subscriber_buffer: 10, ..Config::default() }).await;
    let mut raw = f.listen_raw("events").await.unwrap();
    for n in 0..25 {
        f.notify("events", n.to_string()).await.unwrap();
    }
    t.clock().idle().await;
    assert_eq!((raw.missed(), raw.next().await.as_deref()), (15, Some("15")));
}
