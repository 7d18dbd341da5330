//! G1, and what publishing refuses.

use firehose_testkit::{Operation, Testkit};

use super::*;
use firehose_core::ErrorKind as K;

#[tokio::test(start_paused = true)]
async fn a_broadcast_that_returned_is_stored() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let m = f.broadcast("orders", "paid").await.unwrap();
    assert_eq!((m.sequence, m.data.as_ref(), m.stream.as_str()), (Sequence(1), "paid", "orders"));
    assert!(m.created_at.is_some());
    assert_eq!(t.database().messages("orders"), [m]);
    assert_eq!(f.metrics_snapshot().broadcasts_total, 1);
}

#[tokio::test(start_paused = true)]
async fn all_that_waits_is_one_append() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let many = (1..=500).map(|n| NewMessage::new(format!("s{}", n % 5), n.to_string()).unwrap());
    let results = f.broadcast_many(many).await;
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(f.metrics_snapshot().append_batches, 1);
    let stored: Vec<String> = t.database().messages("s1").into_iter().map(|m| m.data.to_string()).collect();
    let expected: Vec<String> = (1..=500).filter(|n| n % 5 == 1).map(|n| n.to_string()).collect();
    assert_eq!(stored, expected, "in the order in which they were accepted");
}

#[tokio::test(start_paused = true)]
async fn bad_input_is_refused_before_anything_is_done() {
    let t = Testkit::new(1);
    let f = engine_with(&t, Config { max_message_bytes: 10, ..Config::default() }).await;
    let kinds = [
        f.broadcast("", "x").await.unwrap_err().kind(),
        f.broadcast("a\0b", "x").await.unwrap_err().kind(),
        f.broadcast("x".repeat(1025), "x").await.unwrap_err().kind(),
        f.broadcast("a", "x\0").await.unwrap_err().kind(),
        f.broadcast("a", "x".repeat(11)).await.unwrap_err().kind(),
        f.subscribe("").await.unwrap_err().kind(),
        f.queue("firehose:orders").await.unwrap_err().kind(),
        f.notify("a", "x\0").await.unwrap_err().kind(),
        f.notify("a", "x".repeat(8_000)).await.unwrap_err().kind(),
        f.subscribe_from("a", Start::After(Cursor::at(None, Sequence(-5)))).await.unwrap_err().kind(),
        f.history("a", Before(Cursor::at(Some(Epoch(-1)), Sequence(1))), 5).await.unwrap_err().kind(),
    ];
    let expected = [
        K::InvalidName,
        K::InvalidName,
        K::InvalidName,
        K::InvalidData,
        K::TooLarge,
        K::InvalidName,
        K::InvalidName,
        K::InvalidData,
        K::TooLarge,
        K::InvalidCursor,
        K::InvalidCursor,
    ];
    assert_eq!(kinds, expected);
    assert_eq!(t.database().stream_count(), 0);
    assert_eq!(f.metrics_snapshot().subscribed_channels, 0, "no registration is left");
    assert!(f.broadcast("a", "").await.is_ok(), "empty data is data");
}

#[tokio::test(start_paused = true)]
async fn a_contradiction_in_the_configuration_is_told_at_start() {
    let t = Testkit::new(1);
    let bad = Config { catch_up_concurrency: 0, ..Config::default() };
    let start = Firehose::builder(t.backend()).config(bad).clock(t.clock()).start().await;
    assert_eq!(start.unwrap_err().kind(), ErrorKind::Config);
}

#[tokio::test(start_paused = true)]
async fn c65_two_layouts_are_an_error_that_names_both() {
    let t = Testkit::new(1);
    let config = Config { layout: Some(Layout::Buckets), ..Config::default() };
    let e = Firehose::builder(t.backend()).config(config).clock(t.clock()).start().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::SettingsMismatch);
    assert_eq!(e.to_string(), "start: layout is Buckets in the configuration and PerStream in the database");
}

#[tokio::test(start_paused = true)]
async fn c65_every_setting_that_both_name_must_agree() {
    let t = Testkit::new(1);
    t.database().set_settings(Settings::default().with_gem(false).with_cleanup_threshold(CleanupThreshold::Everything));
    let start = async |config: Config| Firehose::builder(t.backend()).config(config).clock(t.clock()).start().await;
    let none = Some(CleanupThreshold::Everything);
    let same = start(Config { gem: Some(false), cleanup_threshold: none, ..Config::default() }).await.unwrap();
    same.shutdown(Duration::ZERO).await;
    let gem = start(Config { gem: Some(true), ..Config::default() }).await.unwrap_err();
    assert_eq!(gem.to_string(), "start: gem is true in the configuration and false in the database");
    let threshold = Some(CleanupThreshold::Newest(100));
    let e = start(Config { cleanup_threshold: threshold, ..Config::default() }).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::SettingsMismatch);
    let said = "start: cleanup_threshold is Newest(100) in the configuration and Everything in the database";
    assert_eq!(e.to_string(), said);
}

#[tokio::test(start_paused = true)]
async fn too_many_waiting_broadcasts_are_refused_at_once() {
    let t = Testkit::new(1);
    let f = engine_with(&t, Config { max_waiting_broadcasts: 10, ..Config::default() }).await;
    let hold = t.faults().on(Operation::Append).hang();
    let results = {
        let many = f.broadcast_many((0..25).map(|n| NewMessage::new("s", n.to_string()).unwrap()));
        let waiting = tokio::spawn({
            let f = f.clone();
            async move { f.broadcast("first", "x").await }
        });
        t.clock().idle().await;
        let release = async {
            t.clock().idle().await;
            hold.release();
        };
        let (results, ()) = tokio::join!(many, release);
        waiting.await.unwrap().unwrap();
        results
    };
    let kinds: Vec<_> = results.iter().map(|r| r.as_ref().err().map(Error::kind)).collect();
    assert_eq!(kinds.iter().filter(|k| k.is_none()).count(), 10);
    assert!(kinds[10..].iter().all(|k| *k == Some(ErrorKind::Overloaded)), "{kinds:?}");
}

#[tokio::test(start_paused = true)]
async fn c58_a_blocked_stream_waits_alone() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut foreign = t.database().begin();
    foreign.append("held", "theirs").await.unwrap();
    let held = tokio::spawn({
        let f = f.clone();
        async move { f.broadcast("held", "ours").await.unwrap().sequence }
    });
    t.clock().idle().await;
    for n in 1..=20 {
        assert_eq!(f.broadcast("free", "x").await.unwrap().sequence, Sequence(n));
    }
    assert!(!held.is_finished());
    foreign.commit().unwrap();
    assert_eq!(held.await.unwrap(), Sequence(2));
}

#[tokio::test(start_paused = true)]
async fn c35_an_unknown_outcome_is_told_as_one_and_a_key_makes_it_safe_to_repeat() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    t.faults().on(Operation::Append).lose_answer(1);
    let message = || NewMessage::new("s", "x").unwrap().key("payment-7").unwrap();
    let e = f.broadcast_message(message()).await.unwrap_err();
    assert_eq!(e.outcome(), Outcome::Unknown);
    let again = f.broadcast_message(message()).await.unwrap();
    assert_eq!((again.sequence, t.database().messages("s").len()), (Sequence(1), 1));
}

#[tokio::test(start_paused = true)]
async fn what_was_rolled_back_is_repeated_by_itself() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    t.faults().on(Operation::Append).fail(2, ErrorKind::ConnectionLost);
    assert_eq!(f.broadcast("s", "x").await.unwrap().sequence, Sequence(1));
    t.faults().on(Operation::Append).fail(10, ErrorKind::ConnectionLost);
    let e = f.broadcast("s", "y").await.unwrap_err();
    assert_eq!((e.kind(), e.outcome()), (ErrorKind::ConnectionLost, Outcome::NotDone));
}

#[tokio::test(start_paused = true)]
async fn what_goes_again_keeps_the_order_of_acceptance() {
    for blocked in [false, true] {
        let t = Testkit::new(1);
        let f = engine(&t).await;
        let mut foreign = t.database().begin();
        if blocked {
            foreign.lock_stream("s").await.unwrap();
        } else {
            t.faults().on(Operation::Append).fail(2, ErrorKind::ConnectionLost);
        }
        let many = |range: std::ops::Range<i64>| range.map(|n| NewMessage::new("s", n.to_string()).unwrap());
        let (first, later) = (f.clone(), f.clone());
        let first = tokio::spawn(async move { first.broadcast_many(many(1..6)).await });
        t.clock().idle().await;
        let later = tokio::spawn(async move { later.broadcast_many(many(6..9)).await });
        t.clock().idle().await;
        foreign.rollback();
        for stored in first.await.unwrap().into_iter().chain(later.await.unwrap()) {
            let stored = stored.unwrap();
            assert_eq!(stored.sequence.to_string(), *stored.data, "blocked: {blocked}");
        }
        assert_eq!(t.database().messages("s").len(), 8);
    }
}

#[tokio::test(start_paused = true)]
async fn an_append_without_an_answer_ends_at_its_deadline_with_its_step() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let _hold = t.faults().on(Operation::Append).hang();
    let waiting = tokio::spawn({
        let f = f.clone();
        async move { f.broadcast("s", "x").await.unwrap_err() }
    });
    t.clock().advance(Duration::from_secs(10)).await;
    let e = waiting.await.unwrap();
    assert_eq!((e.kind(), e.outcome()), (ErrorKind::Timeout(Step::Append), Outcome::Unknown));
    assert_eq!(e.to_string(), "broadcast: storing did not end within 10s");
}

#[tokio::test(start_paused = true)]
async fn a_broadcast_that_is_dropped_after_its_first_poll_is_stored() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    {
        let broadcast = f.broadcast("s", "x");
        assert!(futures_util::FutureExt::now_or_never(broadcast).is_none());
    }
    t.clock().idle().await;
    assert_eq!(t.database().messages("s").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_costs_one_batch() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    t.faults().on(Operation::Append).panic(1);
    assert_eq!(f.broadcast("s", "x").await.unwrap_err().kind(), ErrorKind::Backend);
    assert_eq!(f.broadcast("s", "y").await.unwrap().sequence, Sequence(1));
}
