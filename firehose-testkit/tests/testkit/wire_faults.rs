//! What a wire can be made to do, and that the same seed makes it do the same.

use std::time::Duration;

use firehose_core::{ErrorKind, Session};
use firehose_testkit::Testkit;

use crate::support::*;

async fn session(testkit: &Testkit) -> Session {
    let session = testkit.backend().listener.unwrap().connect().await.unwrap();
    session.control.listen(&[channel("a")]).await.unwrap();
    session
}

fn send(testkit: &Testkit, payloads: impl IntoIterator<Item = impl ToString>) {
    for payload in payloads {
        testkit.database().announce_raw(channel("a"), payload.to_string());
    }
}

/// What is heard of 0 to 99 until the sentinel, which is sent when the wire is well again.
async fn heard_of_hundred(seed: u64, fault: impl FnOnce(&Testkit)) -> Vec<String> {
    let testkit = Testkit::new(seed);
    let mut session = session(&testkit).await;
    fault(&testkit);
    send(&testkit, 0..100);
    testkit.wire().heal();
    send(&testkit, ["end"]);
    let mut payloads = Vec::new();
    loop {
        match heard(&mut *session.events).await {
            end if end == "end" => return payloads,
            payload => payloads.push(payload),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_notifications_are_dropped_for_all_sessions() {
    let testkit = Testkit::new(1);
    let (mut one, mut other) = (session(&testkit).await, session(&testkit).await);
    testkit.wire().drop_next(2);
    send(&testkit, 1..=4);
    assert_eq!(heard_many(&mut *one.events, 2).await, ["3", "4"]);
    assert_eq!(heard_many(&mut *other.events, 2).await, ["3", "4"]);
}

#[tokio::test(start_paused = true)]
async fn all_are_dropped_until_healed() {
    assert_eq!(heard_of_hundred(1, |t| t.wire().drop_all()).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn one_channel_is_dropped_and_others_are_not() {
    let testkit = Testkit::new(1);
    let mut session = session(&testkit).await;
    session.control.listen(&[channel("b")]).await.unwrap();
    testkit.wire().drop_channel(channel("a"));
    send(&testkit, ["lost"]);
    testkit.database().announce_raw(channel("b"), "heard");
    assert_eq!(heard(&mut *session.events).await, "heard");
}

#[tokio::test(start_paused = true)]
async fn a_seed_drops_the_same_ones_again() {
    let some = heard_of_hundred(5, |t| t.wire().drop_with(0.3)).await;
    assert!((50..90).contains(&some.len()), "{}", some.len());
    assert_eq!(some, heard_of_hundred(5, |t| t.wire().drop_with(0.3)).await);
    assert_ne!(some, heard_of_hundred(6, |t| t.wire().drop_with(0.3)).await);
    let mut with_doubles = heard_of_hundred(5, |t| {
        t.wire().drop_with(0.3);
        t.wire().duplicate_with(0.5);
    })
    .await;
    with_doubles.dedup();
    assert_eq!(some, with_doubles, "another fault does not shift this one");
    assert_eq!(heard_of_hundred(5, |t| t.wire().drop_with(1.0)).await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn some_are_doubled() {
    let all = heard_of_hundred(5, |t| t.wire().duplicate_with(1.0)).await;
    assert_eq!(all[..4], ["0", "0", "1", "1"]);
    assert_eq!(all.len(), 200);
    let some = heard_of_hundred(5, |t| t.wire().duplicate_with(0.3)).await;
    assert!((110..150).contains(&some.len()), "{}", some.len());
}

#[tokio::test(start_paused = true)]
async fn what_waits_together_is_shuffled_and_nothing_is_lost() {
    let shuffled = async |seed| {
        let testkit = Testkit::new(seed);
        let mut session = session(&testkit).await;
        testkit.wire().shuffle(10);
        send(&testkit, 0..100);
        heard_many(&mut *session.events, 100).await
    };
    let mut first = shuffled(1).await;
    assert_eq!(first, shuffled(1).await);
    assert_ne!(first, shuffled(2).await);
    for (place, payload) in first.iter().enumerate() {
        assert!(payload.parse::<usize>().unwrap() < place + 10, "drawn from the first ten that wait");
    }
    assert!(!first.is_sorted_by_key(|p| p.parse::<u32>().unwrap()));
    first.sort_by_key(|p| p.parse::<u32>().unwrap());
    assert_eq!(first, (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_delay_passes_on_the_clock() {
    let testkit = Testkit::new(1);
    let mut session = session(&testkit).await;
    testkit.wire().delay(Duration::from_millis(250));
    send(&testkit, ["1", "2"]);
    let reader = tokio::spawn(async move { heard_many(&mut *session.events, 2).await });
    testkit.clock().advance(Duration::from_millis(249)).await;
    assert!(!reader.is_finished());
    testkit.clock().advance(Duration::from_millis(1)).await;
    assert!(reader.is_finished());
    assert_eq!(reader.await.unwrap(), ["1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn with_drawn_delays_they_overtake_each_other() {
    let delayed = async |seed| {
        let testkit = Testkit::new(seed);
        let mut session = session(&testkit).await;
        testkit.wire().delay_between(Duration::ZERO, Duration::from_millis(100));
        send(&testkit, 0..50);
        let reader = tokio::spawn(async move { heard_many(&mut *session.events, 50).await });
        testkit.clock().advance(Duration::from_millis(100)).await;
        assert!(reader.is_finished(), "none is later than the most");
        reader.await.unwrap()
    };
    let mut first = delayed(1).await;
    assert_eq!(first, delayed(1).await);
    assert!(!first.is_sorted_by_key(|p| p.parse::<u32>().unwrap()));
    first.sort_by_key(|p| p.parse::<u32>().unwrap());
    assert_eq!(first, (0..50).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_cut_loses_every_session_with_what_is_in_flight() {
    let testkit = Testkit::new(1);
    let (mut one, mut other) = (session(&testkit).await, session(&testkit).await);
    send(&testkit, ["in flight"]);
    testkit.wire().cut();
    assert_eq!(lost(&mut *one.events).await, ErrorKind::ConnectionLost);
    assert_eq!(lost(&mut *other.events).await, ErrorKind::ConnectionLost);
    assert_eq!(one.control.ping().await.unwrap_err().kind(), ErrorKind::ConnectionLost);
    assert_eq!((testkit.wire().session_count(), testkit.wire().channels()), (0, vec![]));
    let mut next = session(&testkit).await;
    send(&testkit, ["heard"]);
    assert_eq!(heard(&mut *next.events).await, "heard");
}

#[tokio::test(start_paused = true)]
async fn the_next_sessions_are_cut_after_some_events() {
    let testkit = Testkit::new(1);
    testkit.wire().cut_next_session_after(2);
    testkit.wire().cut_next_session_after(0);
    let (mut two, mut none, mut whole) = (session(&testkit).await, session(&testkit).await, session(&testkit).await);
    send(&testkit, 1..=3);
    assert_eq!(heard_many(&mut *two.events, 2).await, ["1", "2"]);
    assert_eq!(lost(&mut *two.events).await, ErrorKind::ConnectionLost);
    assert_eq!(lost(&mut *none.events).await, ErrorKind::ConnectionLost);
    assert_eq!(heard_many(&mut *whole.events, 3).await, ["1", "2", "3"]);
    assert_eq!(testkit.wire().session_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_session_hears_nothing_and_is_told_nothing_until_it_is_cut() {
    let testkit = Testkit::new(1);
    let Session { control, mut events } = session(&testkit).await;
    testkit.wire().freeze();
    send(&testkit, ["unheard"]);
    let ping = tokio::spawn(async move { control.ping().await.map_err(|e| e.kind()) });
    let next = tokio::spawn(async move { lost(&mut *events).await });
    testkit.clock().advance(Duration::from_secs(3_600)).await;
    assert!(!ping.is_finished() && !next.is_finished());
    let mut well = session(&testkit).await;
    send(&testkit, ["heard"]);
    assert_eq!(heard(&mut *well.events).await, "heard");
    testkit.wire().cut();
    assert_eq!(ping.await.unwrap(), Err(ErrorKind::ConnectionLost));
    assert_eq!(next.await.unwrap(), ErrorKind::ConnectionLost);
}

#[tokio::test(start_paused = true)]
async fn one_process_is_cut_or_frozen_and_others_are_not() {
    let testkit = Testkit::new(1);
    let (one, other) = (testkit.process(), testkit.process());
    let mut its = one.backend().listener.unwrap().connect().await.unwrap();
    let mut others = other.backend().listener.unwrap().connect().await.unwrap();
    others.control.listen(&[channel("a")]).await.unwrap();
    one.cut();
    assert_eq!(lost(&mut *its.events).await, ErrorKind::ConnectionLost);
    one.freeze();
    send(&testkit, ["heard"]);
    assert_eq!(heard(&mut *others.events).await, "heard");
    others.control.ping().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_bound_can_be_lowered() {
    let testkit = Testkit::new(1);
    let mut session = session(&testkit).await;
    testkit.wire().set_bound(2);
    send(&testkit, 1..=2);
    assert_eq!(heard_many(&mut *session.events, 2).await, ["1", "2"]);
    send(&testkit, 3..=5);
    assert_eq!(lost(&mut *session.events).await, ErrorKind::ConnectionLost);
}

#[tokio::test(start_paused = true)]
async fn nothing_follows_a_lost_session_not_even_what_was_late() {
    let testkit = Testkit::new(1);
    let mut session = session(&testkit).await;
    testkit.wire().delay(Duration::from_secs(1));
    send(&testkit, ["late"]);
    session.control.close().await;
    assert_eq!(lost(&mut *session.events).await, ErrorKind::ConnectionLost);
    testkit.clock().advance(Duration::from_secs(2)).await;
    assert_eq!(lost(&mut *session.events).await, ErrorKind::ConnectionLost);
}
