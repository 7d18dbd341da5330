//! G4, starts from everywhere, and what a start says of a history that is not the one it knew.

use firehose_testkit::{Operation, Testkit};

use super::*;

#[tokio::test(start_paused = true)]
async fn now_begins_after_what_was_broadcast_before() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    broadcast_numbers(&f, "s", 1..=3).await;
    let mut s = f.subscribe("s").await.unwrap();
    assert_eq!(s.start().sequence, Sequence(3));
    broadcast_numbers(&f, "s", 4..=5).await;
    assert_eq!(said(&t, &mut s).await, numbered(4..=5));
}

#[tokio::test(start_paused = true)]
async fn earliest_begins_with_the_oldest_that_is_retained() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    broadcast_numbers(&f, "s", 1..=6).await;
    t.database().trim_to("s", Sequence(2));
    let mut s = f.subscribe_from("s", Start::Earliest).await.unwrap();
    broadcast_numbers(&f, "s", 7..=7).await;
    assert_eq!(said(&t, &mut s).await, numbered(3..=7));
}

#[tokio::test(start_paused = true)]
async fn c34_a_cursor_gives_exactly_the_later_messages_each_time() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    broadcast_numbers(&f, "s", 1..=5).await;
    let mut s = f.subscribe_from("s", Start::Earliest).await.unwrap();
    s.next().await;
    let Some(Delivery::Message(second)) = s.next().await else { panic!() };
    let cursor: Cursor = second.cursor().to_string().parse().unwrap();
    assert_eq!(s.cursor(), cursor);
    for _ in 0..3 {
        let mut again = f.subscribe_from("s", Start::After(cursor)).await.unwrap();
        assert_eq!(said(&t, &mut again).await, numbered(3..=5));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cursor_before_what_is_retained_is_told_the_exact_gap() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    broadcast_numbers(&f, "s", 1..=8).await;
    let cursor = t.database().messages("s")[1].cursor();
    t.database().trim_to("s", Sequence(5));
    let mut s = f.subscribe_from("s", Start::After(cursor)).await.unwrap();
    let mut expected = vec!["gap 3-5".to_owned()];
    expected.extend(numbered(6..=8));
    assert_eq!(said(&t, &mut s).await, expected);
    assert_eq!(f.metrics_snapshot().gaps_reported, 1);
}

#[tokio::test(start_paused = true)]
async fn everything_after_a_cursor_may_be_gone() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    broadcast_numbers(&f, "s", 1..=8).await;
    let cursor = t.database().messages("s")[1].cursor();
    t.database().trim_to("s", Sequence(8));
    let mut s = f.subscribe_from("s", Start::After(cursor)).await.unwrap();
    broadcast_numbers(&f, "s", 9..=9).await;
    assert_eq!(said(&t, &mut s).await, ["gap 3-8", "9:9"]);
}

#[tokio::test(start_paused = true)]
async fn c32_a_cursor_of_an_earlier_life_is_reset_to_the_first_message() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    broadcast_numbers(&f, "s", 1..=5).await;
    let cursor = t.database().messages("s")[4].cursor();
    f.delete_stream("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=7).await;
    let mut s = f.subscribe_from("s", Start::After(cursor)).await.unwrap();
    let mut expected = vec!["reset Recreated".to_owned()];
    expected.extend(numbered(1..=7));
    assert_eq!(said(&t, &mut s).await, expected);
    assert_eq!(f.metrics_snapshot().resets_reported, 1);
}

#[tokio::test(start_paused = true)]
async fn c60_a_cursor_of_a_lost_history_is_reset_to_the_head() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    broadcast_numbers(&f, "s", 1..=80).await;
    let dump = t.database().snapshot();
    broadcast_numbers(&f, "s", 81..=100).await;
    let cursor = t.database().messages("s")[99].cursor();
    f.shutdown(ms(100)).await;
    t.database().restore(&dump);
    t.clock().advance(ms(5_000)).await;
    let f = engine(&t).await;
    broadcast_numbers(&f, "s", 81..=110).await;
    let mut s = f.subscribe_from("s", Start::After(cursor)).await.unwrap();
    broadcast_numbers(&f, "s", 111..=111).await;
    assert_eq!(said(&t, &mut s).await, ["reset WentBack", "111:111"], "never its own 101");
}

#[tokio::test(start_paused = true)]
async fn an_id_is_a_cursor_too_and_never_a_reset() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    f.broadcast("other", "x").await.unwrap();
    broadcast_numbers(&f, "s", 1..=5).await;
    let ids: Vec<MessageId> = t.database().messages("s").iter().map(|m| m.id).collect();
    let mut s = f.subscribe_from("s", Start::AfterId(ids[2])).await.unwrap();
    assert_eq!(said(&t, &mut s).await, numbered(4..=5));
    let other = t.database().messages("other")[0].id;
    let mut s = f.subscribe_from("s", Start::AfterId(other)).await.unwrap();
    assert_eq!(said(&t, &mut s).await, numbered(1..=5), "fault 55: an id of another stream is no gap");
    t.database().trim_to("s", Sequence(3));
    let mut s = f.subscribe_from("s", Start::AfterId(ids[0])).await.unwrap();
    assert_eq!(said(&t, &mut s).await, ["gap 1-3 at most", "4:4", "5:5"]);
    let mut s = f.subscribe_from("s", Start::AfterId(MessageId(i64::MAX))).await.unwrap();
    broadcast_numbers(&f, "s", 6..=6).await;
    assert_eq!(said(&t, &mut s).await, numbered(6..=6));
}

#[tokio::test(start_paused = true)]
async fn c06_a_stream_that_never_had_a_message_is_delivered_after_a_cut() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("new").await.unwrap();
    assert_eq!(s.start(), Cursor::BEGINNING);
    t.wire().cut();
    broadcast_numbers(&f, "new", 1..=1).await;
    assert_eq!(said_within(&t, &mut s, ms(3_000)).await, numbered(1..=1), "and it is no reset");
}

#[tokio::test(start_paused = true)]
async fn c02_what_is_broadcast_while_listen_is_under_way_is_delivered_once() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let publisher = engine(&t).await;
    broadcast_numbers(&publisher, "s", 1..=2).await;
    let hold = t.faults().on(Operation::Listen).hang();
    let subscribing = tokio::spawn({
        let f = f.clone();
        async move { f.subscribe_from("s", Start::Earliest).await.unwrap() }
    });
    t.clock().idle().await;
    broadcast_numbers(&publisher, "s", 3..=4).await;
    hold.release();
    let mut s = subscribing.await.unwrap();
    broadcast_numbers(&publisher, "s", 5..=5).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=5));
    let trace = t.faults().trace();
    // Of this stream: the probe listens too.
    let channel = Naming::default().stream(&"s".parse().unwrap()).to_string();
    let at = |what: Operation, about: &str| {
        let done = |e: &firehose_testkit::Traced| e.is(what, firehose_testkit::Phase::Done);
        trace.iter().position(|e| done(e) && e.about.iter().any(|a| a == about)).unwrap()
    };
    let (listen, heads) = (at(Operation::Listen, &channel), at(Operation::Heads, "s"));
    assert!(listen < heads && heads < at(Operation::ReadAfter, "s"), "{trace:?}");
}

#[tokio::test(start_paused = true)]
async fn c02_the_start_is_fixed_after_the_listen_so_that_nothing_above_it_needs_a_sweep() {
    let t = Testkit::new(1);
    let f = engine_with(&t, Config { sweep_interval: Duration::from_secs(3_600), ..Config::default() }).await;
    let publisher = engine(&t).await;
    broadcast_numbers(&publisher, "s", 1..=2).await;
    t.clock().idle().await;
    for (paused, last) in [(Operation::Listen, 3), (Operation::Heads, 4)] {
        let hold = t.faults().on(paused).hang();
        let subscribing = tokio::spawn({
            let f = f.clone();
            async move { f.subscribe("s").await.unwrap() }
        });
        t.clock().idle().await;
        // Nothing follows it: who begins below it, without having heard it, waits for a sweep.
        broadcast_numbers(&publisher, "s", last..=last).await;
        t.clock().idle().await;
        hold.release();
        assert!(t.clock().advance_until(|| subscribing.is_finished(), ms(100)).await, "{paused}");
        let mut s = subscribing.await.unwrap();
        let above = s.start().sequence.0 + 1;
        assert_eq!(said_within(&t, &mut s, ms(100)).await, numbered(above..=last), "from {}", s.start());
    }
}

#[tokio::test(start_paused = true)]
async fn c03_a_thousand_starts_beside_a_publisher_at_full_speed() {
    let t = Testkit::new(1);
    let (f, publisher) = (engine(&t).await, engine(&t).await);
    let publishing = tokio::spawn(async move {
        for n in 1..=3_000_i64 {
            publisher.broadcast("s", n.to_string()).await.unwrap();
        }
        publisher
    });
    let mut begun = Vec::new();
    for _ in 0..1_000 {
        begun.push(f.subscribe("s").await.unwrap());
    }
    let _publisher = publishing.await.unwrap();
    for mut s in begun {
        let first = s.start().sequence.0 + 1;
        assert_said(&said(&t, &mut s).await, &numbered(first..=3_000), "from its head");
    }
}

#[tokio::test(start_paused = true)]
async fn c11_a_subscribe_that_cannot_listen_ends_in_time_and_leaves_nothing() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let _hold = t.faults().on(Operation::Listen).hang();
    let config = Config::default();
    let subscribing = tokio::spawn({
        let f = f.clone();
        async move { f.subscribe("s").await.unwrap_err() }
    });
    t.clock().advance(config.subscribe_timeout).await;
    assert_eq!(subscribing.await.unwrap().kind(), ErrorKind::Timeout(Step::Listen));
    assert_eq!(f.metrics_snapshot().subscribed_channels, 0);
}

#[tokio::test(start_paused = true)]
async fn c22_a_refused_listen_is_a_typed_error() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    t.clock().idle().await;
    t.faults().on(Operation::Listen).fail(1, ErrorKind::Backend);
    assert_eq!(f.subscribe("s").await.unwrap_err().kind(), ErrorKind::Backend);
    let mut s = f.subscribe("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=1).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=1));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_only_publishes_says_so() {
    let t = Testkit::new(1);
    let backend = Backend { listener: None, ..t.backend() };
    let f = Firehose::builder(backend).clock(t.clock()).start().await.unwrap();
    assert_eq!(f.subscribe("s").await.unwrap_err().kind(), ErrorKind::NotSupported);
    t.clock().idle().await;
    assert_eq!(f.state(), State::Live);
    assert_eq!(f.broadcast("s", "x").await.unwrap().sequence, Sequence(1));
}

#[tokio::test(start_paused = true)]
async fn history_goes_backwards_page_by_page_and_head_tells_the_end() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    assert_eq!(f.head("s").await.unwrap(), None);
    broadcast_numbers(&f, "s", 1..=5).await;
    assert_eq!(f.head("s").await.unwrap().unwrap().sequence, Sequence(5));
    let newest = f.history("s", Before::NOW, 2).await.unwrap();
    assert_eq!(newest.iter().map(|m| m.sequence.0).collect::<Vec<_>>(), [4, 5]);
    let older = f.history("s", Before(newest[0].cursor()), 10).await.unwrap();
    assert_eq!(older.iter().map(|m| m.sequence.0).collect::<Vec<_>>(), [1, 2, 3]);
}
