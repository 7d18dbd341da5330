//! Faults 12 to 24 of the gem: what could go wrong with a broadcast, by its right outcome.

use firehose_testkit::{Operation, Phase, Testkit};

use super::*;

fn no_sweep() -> Config {
    Config { sweep_interval: Duration::from_secs(100_000), ..Config::default() }
}

fn count(t: &Testkit, operation: Operation) -> usize {
    t.faults().trace().iter().filter(|e| e.is(operation, Phase::Started)).count()
}

#[tokio::test(start_paused = true)]
async fn gem_f12_a_transaction_that_rolls_back_tells_nobody_and_takes_no_sequence() {
    let t = Testkit::new(1);
    let f = engine_with(&t, no_sweep()).await;
    let mut s = f.subscribe("s").await.unwrap();
    let mut open = t.database().begin();
    let ids = [open.append("s", "never").await.unwrap().id, open.append("s", "nor this").await.unwrap().id];
    t.clock().advance(ms(100)).await;
    open.rollback();
    assert_eq!(f.announce(Receipt::new(ids.to_vec())).await.unwrap(), 0, "a receipt of what is not there");
    assert_eq!(said_within(&t, &mut s, ms(1_000)).await, numbered([]));
    broadcast_numbers(&f, "s", 1..=1).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=1));
    assert_eq!(f.metrics_snapshot().resets_reported, 0);
}

#[tokio::test(start_paused = true)]
async fn gem_f13_an_oversized_message_announced_before_its_commit_is_delivered_after_it() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=1).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=1));
    let mut open = t.database().begin();
    let long = "x".repeat(20_000);
    let message = open.append("s", long.as_str()).await.unwrap();
    let payload = wire::encode(&message, 7_999);
    assert!(payload.len() < 200, "it goes without its data");
    t.database().announce_raw(Naming::default().stream(&message.stream), payload);
    assert_eq!(said_within(&t, &mut s, ms(5_000)).await, numbered([]), "it is not there yet");
    open.commit().unwrap();
    let told = said_within(&t, &mut s, ms(1_000)).await;
    assert_said(&told, &[format!("2:{long}")], "within a sweep of its commit, whole, and no gap before it");
}

#[tokio::test(start_paused = true)]
async fn gem_f14_a_stream_that_a_transaction_holds_costs_its_own_callers_a_bounded_wait_and_others_none() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut open = t.database().begin();
    open.append("held", "theirs").await.unwrap();
    let caller = tokio::spawn({
        let f = f.clone();
        async move { f.broadcast("held", "ours").await.unwrap_err() }
    });
    t.clock().idle().await;
    for n in 1..=256 {
        let stream = format!("free{}", n % 26);
        let began = t.clock().now();
        f.broadcast(stream, "x").await.unwrap();
        assert_eq!(t.clock().now().since(began), Duration::ZERO, "no wait at all");
    }
    let bound = Config::default().statement_timeout;
    assert!(t.clock().advance_until(|| caller.is_finished(), bound).await, "longer than {bound:?}");
    let error = caller.await.unwrap();
    assert!(matches!(error.kind(), ErrorKind::Timeout(Step::Append) | ErrorKind::StreamBlocked), "{error}");
    open.commit().unwrap();
    let stored: Vec<_> = t.database().messages("held").iter().map(|m| m.data.to_string()).collect();
    assert_eq!(stored, ["theirs"], "who was told that it failed finds nothing stored later");
    assert_eq!(f.broadcast("held", "again").await.unwrap().sequence, Sequence(2));
}

#[tokio::test(start_paused = true)]
async fn gem_f15_a_process_that_dies_between_commit_and_announcement_loses_nothing() {
    let t = Testkit::new(1);
    let other = engine(&t).await;
    let mut s = other.subscribe("s").await.unwrap();
    let process = t.process();
    let f = Firehose::builder(process.backend()).clock(t.clock()).start().await.unwrap();
    let hold = process.faults().on(Operation::Notify).hang();
    broadcast_numbers(&f, "s", 1..=3).await;
    // It goes without a word: its notifications never leave.
    f.shutdown(Duration::ZERO).await;
    drop((f, hold));
    assert_eq!(said(&t, &mut s).await, numbered([]));
    assert_eq!(said_within(&t, &mut s, ms(1_000)).await, numbered(1..=3), "within sweep_interval");
}

#[tokio::test(start_paused = true)]
async fn gem_f16_nothing_that_fails_after_the_commit_fails_the_broadcast() {
    for (what, fault) in [("refused", 0), ("too large", 1), ("panic", 2), ("hang", 3)] {
        let t = Testkit::new(1);
        let builder = Firehose::builder(t.backend()).clock(t.clock());
        let f = builder.on_error(|_| panic!("a reporter that raises")).start().await.unwrap();
        let mut s = f.subscribe("s").await.unwrap();
        let mut hold = None;
        match fault {
            0 => t.faults().on(Operation::Notify).refuse(ErrorKind::ConnectionLost),
            1 => t.faults().on(Operation::Notify).refuse(ErrorKind::TooLarge),
            2 => t.faults().on(Operation::Notify).panic(u64::MAX / 2),
            _ => hold = Some(t.faults().on(Operation::Notify).hang()),
        }
        broadcast_numbers(&f, "s", 1..=20).await;
        assert_eq!(t.database().messages("s").len(), 20, "{what}: each once");
        assert_eq!(f.metrics_snapshot().broadcasts_total, 20, "{what}");
        assert_eq!(said_within(&t, &mut s, ms(1_000)).await, numbered(1..=20), "{what}: the sweep delivers");
        drop(hold);
    }
    // The longest name that there is leaves room for a payload.
    let t = Testkit::new(1);
    let f = engine_with(&t, Config { notify_max_bytes: 7_000, ..no_sweep() }).await;
    let name = "\u{1}".repeat(1_024);
    let mut s = f.subscribe(name.as_str()).await.unwrap();
    f.broadcast(name.as_str(), "x".repeat(6_990)).await.unwrap();
    assert_eq!(said(&t, &mut s).await.len(), 1);
    assert_eq!(f.metrics_snapshot().notify_failures, 0);
}

#[tokio::test(start_paused = true)]
async fn gem_f18_many_callers_share_few_appends_and_few_announcements() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let callers: Vec<_> = (0..64)
        .map(|caller| {
            let f = f.clone();
            tokio::spawn(async move {
                for n in 0..50 {
                    f.broadcast(format!("s{}", caller % 8), format!("{caller}/{n}")).await.unwrap();
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    t.clock().idle().await;
    let m = f.metrics_snapshot();
    assert_eq!(m.broadcasts_total, 3_200);
    assert!(m.append_batches <= 200 && m.notify_batches <= 200, "{} appends, {}", m.append_batches, m.notify_batches);
    assert_eq!((count(&t, Operation::ReadAfter), count(&t, Operation::GetMany)), (0, 0), "publishing reads nothing");
}

#[tokio::test(start_paused = true)]
async fn gem_f19_sixteen_producers_are_heard_in_order_over_connections_that_race() {
    let t = Testkit::new(5);
    let (here, there) = (engine(&t).await, engine(&t).await);
    let (mut mine, mut theirs) = (here.subscribe("s").await.unwrap(), there.subscribe("s").await.unwrap());
    t.wire().delay_between(ms(0), ms(40));
    let producers: Vec<_> = (0..16)
        .map(|p| {
            let (f, clock) = (if p % 2 == 0 { here.clone() } else { there.clone() }, t.clock());
            tokio::spawn(async move {
                for n in 0..60 {
                    f.broadcast("s", format!("{p}/{n}")).await.unwrap();
                    let next = clock.now() + ms(1 + p);
                    clock.sleep_until(next).await;
                }
            })
        })
        .collect();
    t.clock().advance(ms(2_000)).await;
    for producer in producers {
        producer.await.unwrap();
    }
    let stored: Vec<_> = t.database().messages("s").iter().map(|m| format!("{}:{}", m.sequence, m.data)).collect();
    assert_eq!(stored.len(), 960);
    assert_said(&said_within(&t, &mut mine, ms(100)).await, &stored, "here");
    assert_said(&said_within(&t, &mut theirs, ms(100)).await, &stored, "there");
    assert!(here.metrics_snapshot().out_of_order_held > 100, "they did race");
}

#[tokio::test(start_paused = true)]
async fn gem_f20_publishing_does_not_hang_on_the_listener() {
    let t = Testkit::new(1);
    let other = engine_with(&t, no_sweep()).await;
    let mut s = other.subscribe("s").await.unwrap();
    let process = t.process();
    let f = Firehose::builder(process.backend()).clock(t.clock()).start().await.unwrap();
    let hang = process.faults().on(Operation::Connect).hang();
    process.cut();
    for n in 1..=40 {
        // Into the longest pause between two attempts.
        t.clock().advance(ms(1_000)).await;
        let began = t.clock().now();
        broadcast_numbers(&f, "s", n..=n).await;
        assert_eq!(said(&t, &mut s).await, numbered(n..=n));
        assert_eq!(t.clock().now().since(began), Duration::ZERO, "returned and heard at once");
    }
    assert!(matches!(f.state(), State::Reconnecting { .. }));
    drop(hang);
}

#[tokio::test(start_paused = true)]
async fn gem_f21_markup_stays_inline() {
    let t = Testkit::new(1);
    let f = engine_with(&t, no_sweep()).await;
    let mut s = f.subscribe("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=1).await;
    said(&t, &mut s).await;
    t.faults().clear_trace();
    for unit in ["<", ">", "&", "\u{2028}"] {
        f.broadcast("s", unit.repeat(2_500)).await.unwrap();
    }
    assert_eq!(said(&t, &mut s).await.len(), 4);
    assert_eq!(count(&t, Operation::ReadAfter), 0, "no subscriber reads for them");
}

#[tokio::test(start_paused = true)]
async fn gem_f22_a_limit_that_the_server_would_refuse_is_refused_at_start() {
    for (bytes, well) in [(6_999, false), (7_000, true), (7_999, true), (8_000, false)] {
        let t = Testkit::new(1);
        let config = Config { notify_max_bytes: bytes, ..Config::default() };
        let started = Firehose::builder(t.backend()).config(config).clock(t.clock()).start().await;
        match started {
            Ok(_) => assert!(well, "{bytes}"),
            Err(error) => {
                assert!(!well, "{bytes}: {error}");
                assert_eq!(error.kind(), ErrorKind::Config);
                let said = error.to_string();
                assert!(said.contains(&format!("notify_max_bytes = {bytes}: 7000 to 7999")), "{said}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn gem_f23_first_broadcasts_to_one_new_stream_all_succeed() {
    let t = Testkit::new(1);
    let engines = [engine(&t).await, engine(&t).await, engine(&t).await];
    let first: Vec<_> = (0..60)
        .map(|n| {
            let f = engines[n % 3].clone();
            tokio::spawn(async move { f.broadcast(format!("new{}", n / 6), "first").await.unwrap().sequence.0 })
        })
        .collect();
    let mut sequences = Vec::new();
    for one in first {
        sequences.push(one.await.unwrap());
    }
    for of_one in sequences.chunks_mut(6) {
        of_one.sort_unstable();
        assert_eq!(of_one, [1, 2, 3, 4, 5, 6]);
    }
    assert_eq!(t.database().stream_count(), 10);
}

#[tokio::test(start_paused = true)]
async fn gem_f24_the_longest_name_is_as_good_as_any_and_one_byte_more_is_a_typed_error() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let longest = "é".repeat(512);
    let mut s = f.subscribe(longest.as_str()).await.unwrap();
    broadcast_numbers(&f, &longest, 1..=2).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=2));
    let error = f.broadcast(format!("{longest}x"), "1").await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::InvalidName, Outcome::NotDone));
    assert_eq!(t.database().stream_count(), 1);
}
