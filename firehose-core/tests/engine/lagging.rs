//! Who does not keep up, and the policies for it.

use std::sync::{Arc, Mutex};

use firehose_core::*;
use firehose_testkit::Testkit;

use super::*;

type Events = Arc<Mutex<Vec<Event>>>;

async fn with_events(testkit: &Testkit, config: Config) -> (Firehose, Events) {
    let events = Events::default();
    let heard = events.clone();
    let builder = Firehose::builder(testkit.backend()).config(config).clock(testkit.clock()).seed(7);
    let firehose = builder.on_event(move |e| heard.lock().unwrap().push(e.clone())).start().await.unwrap();
    (firehose, events)
}

fn small() -> Config {
    Config { subscriber_buffer: 10, ..Config::default() }
}

fn lags(events: &Events) -> Vec<(i64, i64, Lag)> {
    let lag = |e: &Event| match e {
        Event::Lagged { from, to, lag, .. } => Some((from.0, to.0, *lag)),
        _ => None,
    };
    events.lock().unwrap().iter().filter_map(lag).collect()
}

#[tokio::test(start_paused = true)]
async fn c46_who_drops_what_is_oldest_gets_a_gap_and_the_newest() {
    let t = Testkit::new(1);
    let (f, events) = with_events(&t, small()).await;
    let mut s = f.subscribe_from("s", Lag::DropOldest).await.unwrap();
    let mut other = f.subscribe("s").await.unwrap();
    assert_eq!(said(&t, &mut s).await, numbered([]));
    broadcast_numbers(&f, "s", 1..=35).await;
    t.clock().idle().await;
    let mut expected = vec!["gap 1-25".to_owned()];
    expected.extend(numbered(26..=35));
    assert_eq!(said(&t, &mut s).await, expected);
    assert_eq!(lags(&events), [(1, 35, Lag::DropOldest)]);
    let gap = |e: &Event| matches!(e, Event::Gap(gap) if gap.reason == GapReason::DropOldest && gap.exact);
    assert!(events.lock().unwrap().iter().any(gap));
    assert_said(&said_within(&t, &mut other, ms(100)).await, &numbered(1..=35), "another policy beside it");
    broadcast_numbers(&f, "s", 36..=37).await;
    assert_eq!(said(&t, &mut s).await, numbered(36..=37));
}

#[tokio::test(start_paused = true)]
async fn c46_who_is_cut_off_for_lagging_is_told_so_and_keeps_nothing() {
    let t = Testkit::new(1);
    let (f, events) = with_events(&t, small()).await;
    let mut s = f.subscribe_from("s", Lag::Disconnect).await.unwrap();
    broadcast_numbers(&f, "s", 1..=1).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=1));
    let cursor = s.cursor();
    broadcast_numbers(&f, "s", 2..=20).await;
    t.clock().idle().await;
    assert_eq!(said(&t, &mut s).await, ["closed Lagged"]);
    assert_eq!(s.next().await, None);
    assert_eq!(lags(&events), [(2, 20, Lag::Disconnect)]);
    let mut again = f.subscribe_from("s", Start::After(cursor)).await.unwrap();
    assert_said(&said_within(&t, &mut again, ms(100)).await, &numbered(2..=20), "its cursor is good");
}

#[tokio::test(start_paused = true)]
async fn a_long_start_is_no_lag() {
    let t = Testkit::new(1);
    let f = engine_with(&t, small()).await;
    broadcast_numbers(&f, "s", 1..=200).await;
    for lag in [Lag::DropOldest, Lag::Disconnect] {
        let options = SubscribeOptions::from(Start::Earliest).with_lag(lag);
        let mut s = f.subscribe_from("s", options).await.unwrap();
        assert_said(&said_within(&t, &mut s, ms(100)).await, &numbered(1..=200), "all of it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_of_a_set_that_is_cut_off_leaves_it_and_the_others_stay() {
    let t = Testkit::new(1);
    let f = engine_with(&t, small()).await;
    let mut set = f.subscriptions();
    set.add_many([("a", SubscribeOptions::from(Lag::Disconnect)), ("b", Lag::CatchUp.into())]).await.unwrap();
    broadcast_numbers(&f, "a", 1..=1).await;
    assert_eq!(tell(&set.next().await.unwrap().1), "1:1");
    broadcast_numbers(&f, "a", 2..=30).await;
    broadcast_numbers(&f, "b", 1..=30).await;
    t.clock().idle().await;
    let mut seen = Vec::new();
    while seen.len() < 31 {
        let (stream, delivery) = set.next().await.unwrap();
        seen.push(format!("{stream} {}", tell(&delivery)));
    }
    assert_eq!(seen.iter().filter(|s| *s == "a closed Lagged").count(), 1);
    assert_eq!(seen.iter().filter(|s| s.starts_with("b ")).count(), 30);
    assert_eq!(set.streams().map(StreamName::as_str).collect::<Vec<_>>(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn many_streams_are_added_in_few_round_trips_and_all_or_none() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut set = f.subscriptions();
    let names: Vec<String> = (0..2_500).map(|n| format!("s{n}")).collect();
    set.add_many(names.iter().map(|name| (name.as_str(), Start::Now))).await.unwrap();
    assert_eq!((set.len(), f.metrics_snapshot().subscribed_channels), (2_500, 2_500));
    let calls =
        |operation| t.faults().trace().iter().filter(|e| e.is(operation, firehose_testkit::Phase::Started)).count();
    let (listens, heads) = (calls(firehose_testkit::Operation::Listen), calls(firehose_testkit::Operation::Heads));
    assert!(listens <= 5 && heads <= 30, "{listens} LISTENs and {heads} reads of heads");
    let mut other = f.subscriptions();
    let error = other.add_many([("x", Start::Now), ("", Start::Now)]).await.unwrap_err();
    assert_eq!((error.kind(), other.len()), (ErrorKind::InvalidName, 0));
    let absurd = Start::After(Cursor::at(None, Sequence(-1)));
    let error = other.add_many([("x", Start::Now), ("y", absurd)]).await.unwrap_err();
    t.clock().idle().await;
    assert_eq!((error.kind(), other.len()), (ErrorKind::InvalidCursor, 0));
    assert_eq!(f.metrics_snapshot().subscribed_channels, 2_500, "nothing is left of it");
}

#[tokio::test(start_paused = true)]
async fn c59_a_phantom_of_the_gem_is_found_even_if_the_real_one_was_never_announced() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    broadcast_numbers(&f, "s", 1..=1).await;
    let mut s = f.subscribe("s").await.unwrap();
    let mut open = t.database().begin();
    let phantom = open.append("s", "phantom").await.unwrap();
    let channel = Naming::default().stream(&"s".parse().unwrap());
    let payload = format!(
        r#"{{"id":{},"channel_id":{},"sequence":2,"stream":"s","data":"phantom"}}"#,
        phantom.id, phantom.channel_id
    );
    t.database().announce_raw(channel, payload);
    open.rollback();
    assert_eq!(said(&t, &mut s).await, ["2:phantom"]);
    t.wire().drop_next(1);
    broadcast_numbers(&f, "s", 2..=4).await;
    assert_eq!(said_within(&t, &mut s, ms(2_100)).await, ["3:3", "4:4", "reset Replaced", "2:2", "3:3", "4:4"]);
}

#[tokio::test(start_paused = true)]
async fn gem_99_without_replay_an_outage_is_one_exact_gap() {
    let t = Testkit::new(1);
    let config = Config { replay_on_reconnect: false, sweep_interval: ms(60_000), ..Config::default() };
    let (f, events) = with_events(&t, config).await;
    let mut s = f.subscribe("s").await.unwrap();
    let mut fresh = f.subscribe("new").await.unwrap();
    broadcast_numbers(&f, "s", 1..=2).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=2));
    t.faults().on(firehose_testkit::Operation::Connect).fail(2, ErrorKind::Refused);
    t.wire().cut();
    broadcast_numbers(&f, "s", 3..=7).await;
    broadcast_numbers(&f, "new", 1..=2).await;
    t.clock().advance(ms(10_000)).await;
    broadcast_numbers(&f, "s", 8..=8).await;
    assert_eq!(said(&t, &mut s).await, ["gap 3-7", "8:8"]);
    assert_eq!(said(&t, &mut fresh).await, ["gap 1-2"]);
    let off = |e: &&Event| matches!(e, Event::Gap(gap) if gap.reason == GapReason::ReplayOff);
    assert_eq!(events.lock().unwrap().iter().filter(off).count(), 2);
}
