//! What is older than it has to be, and more than is kept, goes by itself; and nothing else.

use std::sync::{Arc, Mutex};

use firehose_testkit::{Operation, Phase, Testkit};

use super::*;

/// Keeps so many messages a stream, however young they are.
fn keeps(t: &Testkit, threshold: u64) -> Config {
    t.database().set_settings(Settings::default().with_cleanup_threshold(CleanupThreshold::Newest(threshold)));
    Config { retention_min_age: Duration::ZERO, ..Config::default() }
}

fn left(t: &Testkit, stream: &str) -> Vec<i64> {
    t.database().messages(stream).iter().map(|m| m.sequence.0).collect()
}

/// What another writer's transaction stores, in one piece.
async fn foreign(t: &Testkit, stream: &str, messages: i64) {
    let mut txn = t.database().begin();
    for n in 1..=messages {
        txn.append(stream, n.to_string()).await.unwrap();
    }
    txn.commit().unwrap();
}

/// A turn, whenever it begins.
const TURN: Duration = Duration::from_secs(11);

#[tokio::test(start_paused = true)]
async fn c33_what_is_trimmed_to_nothing_goes_on_with_the_next_number() {
    let t = Testkit::new(1);
    let config = keeps(&t, 0);
    let f = engine_with(&t, config).await;
    let mut s = f.subscribe("s").await.unwrap();
    let first = f.broadcast("s", "1").await.unwrap();
    broadcast_numbers(&f, "s", 2..=7).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=7));
    t.clock().advance(TURN).await;
    assert_eq!(left(&t, "s"), [] as [i64; 0]);
    assert_eq!(t.database().stream_count(), 1, "threshold 0 leaves the stream's row (gem fault 50)");
    let next = f.broadcast("s", "8").await.unwrap();
    assert_eq!((next.sequence, next.channel_id), (Sequence(8), first.channel_id));
    assert_eq!(said(&t, &mut s).await, ["8:8"], "no gap and no reset to who had it all");
}

#[tokio::test(start_paused = true)]
async fn c51_each_stream_keeps_its_own_newest_and_the_size_levels_off() {
    let t = Testkit::new(1);
    let config = keeps(&t, 100);
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = events.clone();
    let on_event = move |e: &Event| heard.lock().unwrap().push(e.clone());
    let f = Firehose::builder(t.backend()).config(config).clock(t.clock()).seed(7).on_event(on_event);
    let f = f.start().await.unwrap();
    foreign(&t, "many", 100_000).await;
    foreign(&t, "few", 3).await;
    t.clock().advance(TURN).await;
    assert_eq!(left(&t, "many"), (99_901..=100_000).collect::<Vec<_>>());
    assert_eq!(left(&t, "few"), [1, 2, 3]);
    assert_eq!(f.metrics_snapshot().messages_trimmed, 99_900);
    let [Event::Trimmed { messages, steps, .. }] = events.lock().unwrap()[..] else { panic!("{events:?}") };
    assert_eq!((messages, steps), (99_900, 20), "20 steps of 5,000, in one turn");
    for _ in 0..10 {
        foreign(&t, "many", 1_000).await;
        t.clock().advance(TURN).await;
        assert_eq!((left(&t, "many").len(), left(&t, "few").len()), (100, 3));
    }
    assert_eq!(events.lock().unwrap().len(), 11, "a turn without work tells nothing");
}

#[tokio::test(start_paused = true)]
async fn c69_what_only_others_write_is_trimmed_by_an_engine_that_hears_nothing() {
    let t = Testkit::new(1);
    let backend = Backend { listener: None, ..t.backend() };
    let f = Firehose::builder(backend).config(keeps(&t, 5)).clock(t.clock()).seed(7).start().await.unwrap();
    foreign(&t, "theirs", 20).await;
    t.clock().advance(TURN).await;
    assert_eq!(left(&t, "theirs"), [16, 17, 18, 19, 20]);
    drop(f);
}

#[tokio::test(start_paused = true)]
async fn it_trims_while_there_is_no_session_and_not_after_the_end() {
    let t = Testkit::new(1);
    let f = engine_with(&t, keeps(&t, 5)).await;
    t.faults().on(Operation::Connect).refuse(ErrorKind::ConnectionLost);
    t.wire().cut();
    t.clock().advance(ms(10)).await;
    assert!(matches!(f.state(), State::Reconnecting { .. }));
    foreign(&t, "s", 20).await;
    t.clock().advance(TURN).await;
    assert_eq!(left(&t, "s").len(), 5);
    f.shutdown(ms(100)).await;
    foreign(&t, "s", 20).await;
    t.clock().advance(Duration::from_secs(60)).await;
    assert_eq!(left(&t, "s").len(), 25);
    assert_eq!(t.clock().pending_sleeps(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_young_stays_whatever_its_number() {
    let t = Testkit::new(1);
    let config = Config { retention_min_age: Duration::from_secs(120), ..keeps(&t, 0) };
    let f = engine_with(&t, config).await;
    foreign(&t, "s", 10).await;
    t.clock().advance(Duration::from_secs(60)).await;
    foreign(&t, "s", 10).await;
    t.clock().advance(Duration::from_secs(59)).await;
    assert_eq!(left(&t, "s").len(), 20, "the oldest are 119 s old");
    t.clock().advance(TURN).await;
    assert_eq!(left(&t, "s"), (11..=20).collect::<Vec<_>>());
    t.clock().advance(Duration::from_secs(60)).await;
    assert_eq!(left(&t, "s"), [] as [i64; 0]);
    drop(f);
}

#[tokio::test(start_paused = true)]
async fn what_is_old_goes_although_few_are_there() {
    let t = Testkit::new(1);
    t.database().set_settings(Settings::default().with_cleanup_threshold(CleanupThreshold::Everything));
    let hour = Duration::from_secs(3_600);
    let f = engine_with(&t, Config { retention_max_age: Some(hour), ..Config::default() }).await;
    foreign(&t, "s", 3).await;
    t.clock().advance(hour / 2).await;
    foreign(&t, "s", 2).await;
    t.clock().advance(hour / 2).await;
    assert_eq!(left(&t, "s").len(), 5);
    t.clock().advance(TURN).await;
    assert_eq!(left(&t, "s"), [4, 5]);
    drop(f);
}

#[tokio::test(start_paused = true)]
async fn with_no_limit_the_store_is_not_even_asked() {
    let t = Testkit::new(1);
    t.database().set_settings(Settings::default().with_cleanup_threshold(CleanupThreshold::Everything));
    let f = engine(&t).await;
    foreign(&t, "s", 200).await;
    t.clock().advance(Duration::from_secs(3_600)).await;
    assert_eq!(left(&t, "s").len(), 200);
    assert!(!t.faults().trace().iter().any(|entry| entry.operation == Operation::Trim));
    drop(f);
}

/// What the gem's own tests of its clean-up assert, each by its right outcome here.
#[tokio::test(start_paused = true)]
async fn the_gems_assertions_10_11_and_32_to_42() {
    for (what, messages, threshold, first_left) in [
        ("10: below the threshold nothing goes", 4, 5, 1),
        ("11: of 6 with threshold 5 the newest 5 stay", 6, 5, 2),
        ("32: of 10, 5 stay", 10, 5, 6),
        ("33: the newest stay", 6, 3, 4),
        ("34: as many as the threshold: nothing goes", 5, 5, 1),
        ("35: fewer: nothing goes", 3, 5, 1),
        ("38: threshold 1 keeps exactly the newest", 10, 1, 10),
        ("39: a threshold above the count keeps all", 10, 1_000, 1),
        ("41: threshold 0 removes every message; the stream's row stays here", 10, 0, 11),
    ] {
        let t = Testkit::new(1);
        let f = engine_with(&t, keeps(&t, threshold)).await;
        broadcast_numbers(&f, "s", 1..=messages).await;
        // 40: three runs leave the same as one.
        for _ in 0..3 {
            t.clock().advance(TURN).await;
            assert_eq!(left(&t, "s"), (first_left..=messages).collect::<Vec<_>>(), "{what}");
        }
        // 42: what comes after a clean-up stays, and so far as nothing more is due, so does what was there.
        broadcast_numbers(&f, "s", messages + 1..=messages + 3).await;
        assert_eq!(left(&t, "s"), (first_left..=messages + 3).collect::<Vec<_>>(), "{what}");
        let names: Vec<_> = t.database().streams();
        assert_eq!(names, [StreamName::new("s").unwrap()], "36: no stream is made");
    }
}

/// The gem enqueues a clean-up job with each broadcast above the threshold (its fault 17).
#[tokio::test(start_paused = true)]
async fn how_often_is_trimmed_does_not_hang_on_how_much_is_broadcast() {
    let t = Testkit::new(1);
    let f = engine_with(&t, keeps(&t, 5)).await;
    for n in 0..600 {
        f.broadcast("s", n.to_string()).await.unwrap();
        t.clock().advance(ms(100)).await;
    }
    let calls = t.faults().trace().iter().filter(|e| e.is(Operation::Trim, Phase::Started)).count();
    assert!((5..=7).contains(&calls), "{calls} calls in a minute");
    assert!(left(&t, "s").len() <= 5 + 101, "{}", left(&t, "s").len());
}

#[tokio::test(start_paused = true)]
async fn two_engines_at_once_and_one_does_the_work() {
    let t = Testkit::new(1);
    let config = keeps(&t, 5);
    let mut engines = Vec::new();
    for seed in [1, 2] {
        let process = t.process();
        let engine = Firehose::builder(process.backend()).config(config.clone()).clock(t.clock()).seed(seed);
        let engine = engine.on_error(|report| panic!("{}", report.error)).start().await.unwrap();
        engines.push((process, engine));
    }
    foreign(&t, "s", 20).await;
    let hold = t.faults().on(Operation::Trim).hang();
    assert!(t.clock().advance_until(|| hold.waiting() == 2, TURN).await, "both are at it");
    hold.release();
    t.clock().advance(ms(1)).await;
    assert_eq!(left(&t, "s"), [16, 17, 18, 19, 20]);
    let mut trimmed: Vec<u64> = engines.iter().map(|(_, f)| f.metrics_snapshot().messages_trimmed).collect();
    trimmed.sort_unstable();
    assert_eq!(trimmed, [0, 15]);
    foreign(&t, "s", 20).await;
    t.clock().advance(TURN).await;
    assert_eq!(left(&t, "s"), [36, 37, 38, 39, 40], "either goes on");
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_starts_together_does_not_trim_together() {
    let t = Testkit::new(1);
    let mut engines = Vec::new();
    for seed in 0..20 {
        let f = Firehose::builder(t.backend()).config(keeps(&t, 5)).clock(t.clock()).seed(seed).start().await;
        engines.push(f.unwrap());
    }
    t.clock().advance(Duration::from_secs(10)).await;
    let calls: Vec<u128> = t
        .faults()
        .trace()
        .iter()
        .filter(|entry| entry.is(Operation::Trim, Phase::Started))
        .map(|entry| entry.at.since_origin().as_millis() / 1_000)
        .collect();
    assert_eq!(calls.len(), 20, "each once in the first interval");
    let busiest = (0..10).map(|second| calls.iter().filter(|at| **at == second).count()).max().unwrap();
    assert!(busiest <= 6, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn who_is_behind_gets_a_gap_with_the_exact_range() {
    let t = Testkit::new(1);
    let f = engine_with(&t, Config { subscriber_buffer: 4, ..keeps(&t, 5) }).await;
    let mut slow = f.subscribe("s").await.unwrap();
    let mut late = f.subscribe_from("s", Start::Earliest).await.unwrap();
    broadcast_numbers(&f, "s", 1..=2).await;
    assert_eq!(said(&t, &mut slow).await, numbered(1..=2));
    let token = slow.cursor();
    broadcast_numbers(&f, "s", 3..=20).await;
    t.clock().advance(TURN).await;
    assert_eq!(left(&t, "s"), [16, 17, 18, 19, 20]);
    let expected = |gap: &str| [vec![gap.to_owned()], numbered(16..=20)].concat();
    assert_eq!(said_within(&t, &mut slow, ms(1_000)).await, expected("gap 3-15"));
    assert_eq!(said_within(&t, &mut late, ms(1_000)).await, expected("gap 1-15"));
    let mut resumed = f.subscribe_from("s", Start::After(token)).await.unwrap();
    assert_eq!(said_within(&t, &mut resumed, ms(1_000)).await, expected("gap 3-15"));
    broadcast_numbers(&f, "s", 21..=21).await;
    assert_eq!(said(&t, &mut slow).await, ["21:21"]);
}

#[tokio::test(start_paused = true)]
async fn a_failing_trim_is_told_with_its_stage_and_tried_again() {
    let t = Testkit::new(1);
    let stages = Arc::new(Mutex::new(Vec::new()));
    let told = stages.clone();
    let on_error = move |report: &ErrorReport<'_>| told.lock().unwrap().push((report.stage, report.error.kind()));
    let f = Firehose::builder(t.backend()).config(keeps(&t, 5)).clock(t.clock()).seed(7).on_error(on_error);
    let f = f.start().await.unwrap();
    foreign(&t, "s", 20).await;
    t.faults().on(Operation::Trim).fail(2, ErrorKind::ConnectionLost);
    t.clock().advance(Duration::from_secs(20)).await;
    assert_eq!(stages.lock().unwrap().clone(), vec![(Stage::Retention, ErrorKind::ConnectionLost); 2]);
    assert_eq!(left(&t, "s").len(), 20);
    t.clock().advance(TURN).await;
    assert_eq!(left(&t, "s").len(), 5);

    // One that hangs ends at the deadline of a call, and delays neither the sweep nor publishing.
    foreign(&t, "s", 20).await;
    let hold = t.faults().on(Operation::Trim).hang();
    assert!(t.clock().advance_until(|| hold.waiting() == 1, TURN).await);
    let mut live = f.subscribe("s").await.unwrap();
    t.wire().drop_next(1);
    f.broadcast("s", "while it hangs").await.unwrap();
    assert_eq!(said_within(&t, &mut live, ms(1_100)).await, ["41:while it hangs"]);
    t.clock().advance(Duration::from_secs(9)).await;
    assert_eq!(stages.lock().unwrap().last(), Some(&(Stage::Retention, ErrorKind::Timeout(Step::Trim))));
    hold.release();
    t.clock().advance(TURN).await;
    assert_eq!(left(&t, "s").len(), 5);
}

#[tokio::test(start_paused = true)]
async fn what_went_before_a_failure_is_told() {
    let t = Testkit::new(1);
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = events.clone();
    let on_event = move |e: &Event| heard.lock().unwrap().push(e.clone());
    let f = Firehose::builder(t.backend()).config(keeps(&t, 0)).clock(t.clock()).seed(7).on_event(on_event);
    let f = f.start().await.unwrap();
    foreign(&t, "s", 12_000).await;
    let trimmed = || f.metrics_snapshot().messages_trimmed;
    assert!(t.clock().advance_until(|| trimmed() == 5_000, TURN).await, "a step has its budget");
    t.faults().on(Operation::Trim).fail(1, ErrorKind::ConnectionLost);
    t.clock().advance(ms(100)).await;
    assert_eq!(left(&t, "s").len(), 7_000);
    let [Event::Trimmed { messages: 5_000, steps: 1, .. }] = events.lock().unwrap()[..] else { panic!("{events:?}") };
}

#[tokio::test(start_paused = true)]
async fn a_threshold_that_was_changed_counts_at_once_and_a_contradiction_trims_nothing() {
    let t = Testkit::new(1);
    let config = Config { cleanup_threshold: Some(CleanupThreshold::Newest(5)), ..keeps(&t, 5) };
    let stages = Arc::new(Mutex::new(Vec::new()));
    let told = stages.clone();
    let on_error = move |report: &ErrorReport<'_>| told.lock().unwrap().push((report.stage, report.error.kind()));
    let named = Firehose::builder(t.backend()).config(config).clock(t.clock()).seed(7).on_error(on_error);
    let named = named.start().await.unwrap();
    foreign(&t, "s", 20).await;
    keeps(&t, 10);
    t.clock().advance(TURN).await;
    assert_eq!(left(&t, "s").len(), 20, "nothing goes in doubt");
    assert_eq!(stages.lock().unwrap()[0], (Stage::Retention, ErrorKind::SettingsMismatch));
    assert_eq!(named.trim("s").await.unwrap_err().kind(), ErrorKind::SettingsMismatch);

    let follows = engine_with(&t, keeps(&t, 10)).await;
    t.clock().advance(TURN).await;
    assert_eq!(left(&t, "s").len(), 10);
    keeps(&t, 15);
    foreign(&t, "s", 20).await;
    t.clock().advance(TURN).await;
    assert_eq!(left(&t, "s").len(), 15, "of the moment, not of its start");
    drop(follows);
}

#[tokio::test(start_paused = true)]
async fn an_engine_without_retention_trims_only_when_it_is_told_to() {
    let t = Testkit::new(1);
    let f = Firehose::builder(t.backend()).config(keeps(&t, 5)).clock(t.clock()).seed(7).without_retention();
    let f = f.start().await.unwrap();
    foreign(&t, "s", 12_000).await;
    foreign(&t, "other", 12).await;
    t.clock().advance(Duration::from_secs(60)).await;
    assert_eq!(left(&t, "s").len(), 12_000);
    assert!(!t.faults().trace().iter().any(|entry| entry.operation == Operation::Trim));

    let trim = tokio::spawn({
        let f = f.clone();
        async move { f.trim("s").await }
    });
    t.clock().advance(ms(100)).await;
    assert_eq!(trim.await.unwrap().unwrap(), 11_995, "in steps, all of it");
    assert_eq!((left(&t, "s").len(), left(&t, "other").len()), (5, 12), "only the named stream");
    assert_eq!(f.trim("s").await.unwrap(), 0, "again leaves the same");
    assert_eq!(f.trim("nobody").await.unwrap(), 0);
    assert_eq!(t.database().stream_count(), 2, "and makes no stream");
    assert_eq!(f.trim("").await.unwrap_err().kind(), ErrorKind::InvalidName);
    t.faults().on(Operation::Trim).fail(1, ErrorKind::ConnectionLost);
    assert_eq!(f.trim("s").await.unwrap_err().kind(), ErrorKind::ConnectionLost);
    f.shutdown(ms(100)).await;
    assert_eq!(f.trim("s").await.unwrap_err().kind(), ErrorKind::ShutDown);
}
