//! Resets and ends that meet a subscriber at an awkward moment: it is behind, it waits, it was there before.

use firehose_testkit::{Operation, Testkit};

use super::*;

fn small(subscriber_buffer: usize) -> Config {
    Config { subscriber_buffer, ..Config::default() }
}

/// Announced as the next message of `s`, and rolled back.
async fn phantom(t: &Testkit) {
    let mut open = t.database().begin();
    let m = open.append("s", "phantom").await.unwrap();
    t.database().announce_raw(Naming::default().stream(&m.stream), wire::encode(&m, 7_999));
    open.rollback();
}

async fn foreign(t: &Testkit, data: &str) {
    let mut txn = t.database().begin();
    txn.append("s", data).await.unwrap();
    txn.commit().unwrap();
}

fn poll_once(s: &mut Subscription) {
    let _ = futures_util::FutureExt::now_or_never(s.next());
}

#[tokio::test(start_paused = true)]
async fn a_reset_that_went_by_is_told_to_who_was_behind() {
    for polls in 0..4 {
        for buffer in [1, 2, 3] {
            let t = Testkit::new(1);
            let f = engine_with(&t, small(buffer)).await;
            let mut s = f.subscribe("s").await.unwrap();
            broadcast_numbers(&f, "s", 1..=5).await;
            t.clock().idle().await;
            (0..polls).for_each(|_| poll_once(&mut s));
            f.delete_stream("s").await.unwrap();
            broadcast_numbers(&f, "s", 1..=7).await;
            t.clock().advance(ms(2_000)).await;
            t.database().trim_to("s", Sequence(3));
            let told = said_within(&t, &mut s, ms(10_000)).await;
            let resets = told.iter().filter(|d| d.starts_with("reset")).count();
            assert_eq!(resets, 1, "buffer {buffer}, {polls} polls: {told:?}");
            assert_eq!(told.last().unwrap(), "7:7");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_replaced_message_ahead_of_who_is_behind_costs_him_nothing() {
    let t = Testkit::new(1);
    let f = engine_with(&t, small(1)).await;
    let mut s = f.subscribe("s").await.unwrap();
    assert!(said(&t, &mut s).await.is_empty());
    broadcast_numbers(&f, "s", 1..=3).await;
    t.clock().idle().await;
    phantom(&t).await;
    broadcast_numbers(&f, "s", 4..=6).await;
    t.clock().advance(ms(2_000)).await;
    assert_eq!(said_within(&t, &mut s, ms(2_000)).await, numbered(1..=6));
}

#[tokio::test(start_paused = true)]
async fn a_restored_history_that_has_passed_the_old_tail_is_a_reset() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=8).await;
    let dump = t.database().snapshot();
    broadcast_numbers(&f, "s", 9..=10).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=10));
    t.clock().advance(ms(3)).await;
    t.database().restore(&dump);
    t.wire().cut();
    for n in 9..=11 {
        foreign(&t, &format!("new{n}")).await;
    }
    assert_eq!(said_within(&t, &mut s, ms(20_000)).await, ["reset WentBack"]);
}

#[tokio::test(start_paused = true)]
async fn an_announcement_does_not_overtake_the_question_whether_the_history_goes_on() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=8).await;
    let dump = t.database().snapshot();
    broadcast_numbers(&f, "s", 9..=10).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=10));
    t.clock().advance(ms(3)).await;
    t.database().restore(&dump);
    foreign(&t, "new9").await;
    foreign(&t, "new10").await;
    let hold = t.faults().on(Operation::Anchors).hang();
    t.wire().cut();
    t.clock().advance(ms(400)).await;
    broadcast_numbers(&f, "s", 11..=11).await;
    assert!(said(&t, &mut s).await.is_empty());
    hold.release();
    let told = said_within(&t, &mut s, ms(20_000)).await;
    assert_eq!(told[0], "reset WentBack", "{told:?}");
    broadcast_numbers(&f, "s", 12..=12).await;
    assert_eq!(said_within(&t, &mut s, ms(1_000)).await, numbered(12..=12));
}

#[tokio::test(start_paused = true)]
async fn a_restore_during_an_outage_is_not_delivered_as_the_same_history_by_the_sweep() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=8).await;
    let dump = t.database().snapshot();
    broadcast_numbers(&f, "s", 9..=10).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=10));
    t.faults().on(Operation::Connect).refuse(ErrorKind::ConnectionLost);
    t.wire().cut();
    t.clock().advance(ms(3)).await;
    t.database().restore(&dump);
    for n in 9..=12 {
        foreign(&t, &format!("new{n}")).await;
    }
    assert_eq!(said_within(&t, &mut s, ms(3_000)).await, ["reset WentBack"]);
    foreign(&t, "13").await;
    assert_eq!(said_within(&t, &mut s, ms(3_000)).await, numbered(13..=13), "and the sweep goes on");
}

#[tokio::test(start_paused = true)]
async fn an_epoch_that_only_a_notification_names_is_no_reset() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=3).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=3));
    let real = t.database().messages("s")[2].clone();
    for (sequence, data) in [(1, Some("a lie")), (4, Some("a lie")), (9, None)] {
        let (id, epoch) = (real.id.0 + 1_000, real.channel_id.0 ^ 1);
        let data = data.map_or(String::new(), |data| format!(r#","data":"{data}""#));
        let lie = format!(r#"{{"id":{id},"channel_id":{epoch},"sequence":{sequence},"stream":"s"{data}}}"#);
        t.database().announce_raw(Naming::default().stream(&real.stream), lie);
        assert_eq!(said_within(&t, &mut s, ms(3_000)).await, numbered([]), "sequence {sequence}");
    }
    broadcast_numbers(&f, "s", 4..=4).await;
    assert_eq!(said(&t, &mut s).await, numbered(4..=4));
    assert_eq!((f.metrics_snapshot().resets_reported, f.metrics_snapshot().gaps_reported), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn who_is_behind_is_told_of_the_end() {
    for reading in [false, true] {
        let t = Testkit::new(1);
        let f = engine_with(&t, Config { catch_up_concurrency: 1, ..small(1) }).await;
        let (mut a, mut b) = (f.subscribe("s").await.unwrap(), f.subscribe("s").await.unwrap());
        assert!(said(&t, &mut a).await.is_empty() && said(&t, &mut b).await.is_empty());
        let hold = reading.then(|| t.faults().on(Operation::ReadAfter).hang());
        broadcast_numbers(&f, "s", 1..=3).await;
        t.clock().idle().await;
        if reading {
            poll_once(&mut a);
            t.clock().idle().await;
            poll_once(&mut b);
        }
        let shutdown = tokio::spawn(async move { f.shutdown(ms(1_000)).await });
        t.clock().advance(ms(1_000)).await;
        shutdown.await.unwrap();
        drop(hold);
        for s in [&mut a, &mut b] {
            assert_eq!(said_within(&t, s, ms(5_000)).await.last().unwrap(), "closed Shutdown");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cursor_of_a_deleted_stream_is_told_of_its_next_life() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    broadcast_numbers(&f, "s", 1..=3).await;
    let cursor = t.database().messages("s")[2].cursor();
    f.delete_stream("s").await.unwrap();
    let mut s = f.subscribe_from("s", Start::After(cursor)).await.unwrap();
    assert!(said(&t, &mut s).await.is_empty());
    broadcast_numbers(&f, "s", 1..=5).await;
    let mut expected = vec!["reset Recreated".to_owned()];
    expected.extend(numbered(1..=5));
    assert_eq!(said_within(&t, &mut s, ms(2_000)).await, expected);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_before_its_reset_is_told_it_again() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    broadcast_numbers(&f, "s", 1..=3).await;
    let cursor = t.database().messages("s")[2].cursor();
    f.delete_stream("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=1).await;
    let s = f.subscribe_from("s", Start::After(cursor)).await.unwrap();
    assert_eq!(s.cursor(), cursor);
    let mut s = f.subscribe_from("s", Start::After(s.cursor())).await.unwrap();
    assert_eq!(said(&t, &mut s).await, ["reset Recreated", "1:1"]);
}

#[tokio::test(start_paused = true)]
async fn a_set_ends_although_what_was_removed_from_it_waited_for_the_store() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    broadcast_numbers(&f, "s", 1..=1).await;
    let mut set = f.subscriptions();
    set.add("s", Start::Earliest).await.unwrap();
    let hold = t.faults().on(Operation::ReadAfter).hang();
    assert!(futures_util::FutureExt::now_or_never(set.next()).is_none());
    t.clock().idle().await;
    set.remove(&"s".parse().unwrap());
    drop(hold);
    f.shutdown(ms(1_000)).await;
    assert_eq!(set.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn who_comes_while_a_refused_unlisten_is_under_way_is_heard() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let hold = t.faults().on(Operation::Unlisten).hang();
    drop(f.subscribe("s").await.unwrap());
    t.clock().idle().await;
    let subscribing = tokio::spawn({
        let f = f.clone();
        async move { f.subscribe("s").await }
    });
    t.clock().idle().await;
    t.faults().on(Operation::Unlisten).fail(1, ErrorKind::Backend);
    hold.release();
    t.clock().advance(ms(100)).await;
    let mut s = subscribing.await.unwrap().unwrap();
    broadcast_numbers(&f, "s", 1..=1).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=1));
}
