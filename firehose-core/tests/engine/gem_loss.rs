//! Faults 1 to 11 of the gem: what it lost on the way to its subscribers, by their right outcome. Sweeps are switched off
//! where a replay alone has to do it.

use std::sync::{Arc, Mutex};

use firehose_testkit::{Operation, Phase, Process, Testkit};

use super::*;

/// No sweep comes: what arrives was announced, or replayed.
fn no_sweep() -> Config {
    Config { sweep_interval: Duration::from_secs(100_000), ..Config::default() }
}

/// A process that listens, whose session can be cut alone.
async fn listening(t: &Testkit, config: Config) -> (Process, Firehose) {
    let process = t.process();
    let builder = Firehose::builder(process.backend()).config(config).clock(t.clock()).seed(3);
    (process, builder.start().await.unwrap())
}

fn replayed(f: &Firehose) -> u64 {
    f.metrics_snapshot().replay_messages_delivered
}

#[tokio::test(start_paused = true)]
async fn gem_f01_a_loss_whose_first_attempt_succeeds_is_replayed() {
    let t = Testkit::new(1);
    let publisher = engine(&t).await;
    let config = Config { reconnect_delay: ms(10), reconnect_max_delay: ms(50), ..no_sweep() };
    let (process, f) = listening(&t, config).await;
    let mut s = f.subscribe("s").await.unwrap();
    // Nothing is heard for 8 s, as when the consumer is busy; the connection is ended meanwhile.
    t.wire().drop_all();
    broadcast_numbers(&publisher, "s", 1..=500).await;
    t.clock().advance(ms(8_000)).await;
    t.wire().heal();
    process.cut();
    t.clock().idle().await;
    let m = f.metrics_snapshot();
    assert_eq!((f.state(), m.reconnects_total, m.reconnects_current), (State::Live, 1, 0), "the first attempt did it");
    assert_said(&said_within(&t, &mut s, ms(100)).await, &numbered(1..=500), "all of it");
    assert_eq!(replayed(&f), 500);
    // Ten more, at 200 messages a second.
    let publishing = tokio::spawn({
        let (clock, publisher) = (t.clock(), publisher.clone());
        async move {
            for n in 501..=2_500 {
                broadcast_numbers(&publisher, "s", n..=n).await;
                let next = clock.now() + ms(5);
                clock.sleep_until(next).await;
            }
        }
    });
    for _ in 0..10 {
        t.clock().advance(ms(950)).await;
        process.cut();
    }
    t.clock().advance(ms(1_000)).await;
    publishing.await.unwrap();
    assert_said(&said_within(&t, &mut s, ms(100)).await, &numbered(501..=2_500), "through ten cuts");
    assert_eq!(f.metrics_snapshot().reconnects_total, 11);
    assert_eq!(f.metrics_snapshot().gaps_reported, 0);
}

#[tokio::test(start_paused = true)]
async fn gem_f02_a_replay_goes_on_until_nothing_is_missing() {
    let t = Testkit::new(1);
    let publisher = engine(&t).await;
    let (process, f) = listening(&t, no_sweep()).await;
    let mut s = f.subscribe("s").await.unwrap();
    process.faults().on(Operation::Connect).fail(2, ErrorKind::ConnectionLost);
    process.cut();
    broadcast_numbers(&publisher, "s", 1..=5_000).await;
    t.clock().advance(ms(10_000)).await;
    assert_eq!(f.state(), State::Live);
    assert_said(&said_within(&t, &mut s, ms(100)).await, &numbered(1..=5_000), "5,000 missed");
    assert_eq!(replayed(&f), 5_000);
}

#[tokio::test(start_paused = true)]
async fn gem_f03_a_replay_moves_the_position_as_delivery_does() {
    let t = Testkit::new(1);
    let publisher = engine(&t).await;
    let (process, f) = listening(&t, no_sweep()).await;
    let mut s = f.subscribe("s").await.unwrap();
    let outage = async |messages: std::ops::Range<i64>| {
        process.faults().on(Operation::Connect).fail(1, ErrorKind::ConnectionLost);
        process.cut();
        broadcast_numbers(&publisher, "s", messages).await;
        t.clock().advance(Duration::from_secs(40)).await;
        assert_eq!(f.state(), State::Live);
    };
    outage(1..1_501).await;
    assert_said(&said(&t, &mut s).await, &numbered(1..=1_500), "the first outage");
    outage(1_501..1_501).await;
    assert_said(&said(&t, &mut s).await, &[], "a second one in which nothing was missed");
    outage(1_501..3_001).await;
    broadcast_numbers(&publisher, "s", 3_001..=3_001).await;
    outage(3_002..3_003).await;
    assert_said(&said(&t, &mut s).await, &numbered(1_501..=3_002), "a live message between two outages skips nothing");
    assert_eq!(replayed(&f), 1_500 + 1_500 + 1, "and nothing was read twice");
}

#[tokio::test(start_paused = true)]
async fn gem_f04_a_stream_without_a_live_message_since_it_was_subscribed_is_replayed() {
    let t = Testkit::new(1);
    let publisher = engine(&t).await;
    broadcast_numbers(&publisher, "old", 1..=3).await;
    let (process, f) = listening(&t, no_sweep()).await;
    let (mut old, mut new) = (f.subscribe("old").await.unwrap(), f.subscribe("new").await.unwrap());
    process.faults().on(Operation::Connect).fail(1, ErrorKind::ConnectionLost);
    process.cut();
    broadcast_numbers(&publisher, "old", 4..=13).await;
    broadcast_numbers(&publisher, "new", 1..=10).await;
    t.clock().advance(ms(3_000)).await;
    assert_eq!(said(&t, &mut old).await, numbered(4..=13));
    assert_eq!(said(&t, &mut new).await, numbered(1..=10));
    // The process goes, and another one takes its cursors up, as text.
    let cursors = [old.cursor().to_string(), new.cursor().to_string()];
    f.shutdown(ms(1_000)).await;
    broadcast_numbers(&publisher, "old", 14..=20).await;
    broadcast_numbers(&publisher, "new", 11..=11).await;
    let (_, f) = listening(&t, no_sweep()).await;
    for ((stream, cursor), expected) in [("old", &cursors[0]), ("new", &cursors[1])].into_iter().zip([14..=20, 11..=11])
    {
        let mut s = f.subscribe_from(stream, Start::After(cursor.parse().unwrap())).await.unwrap();
        assert_eq!(said(&t, &mut s).await, numbered(expected), "{stream}");
    }
}

#[tokio::test(start_paused = true)]
async fn gem_f05_a_lost_notification_is_noticed_by_the_next_one_while_the_connection_lives() {
    let t = Testkit::new(1);
    let f = engine_with(&t, no_sweep()).await;
    let mut s = f.subscribe("s").await.unwrap();
    for n in [1, 4, 7] {
        broadcast_numbers(&f, "s", n..=n).await;
        t.clock().idle().await;
        t.wire().drop_next(2);
        broadcast_numbers(&f, "s", n + 1..=n + 2).await;
        t.clock().idle().await;
    }
    broadcast_numbers(&f, "s", 10..=10).await;
    assert_eq!(said_within(&t, &mut s, ms(50)).await, numbered(1..=10), "without a reconnect and without a sweep");
    assert_eq!(f.metrics_snapshot().reconnects_total, 0);
}

#[tokio::test(start_paused = true)]
async fn gem_f06_what_arrived_early_does_not_move_the_position_past_what_was_lost() {
    let t = Testkit::new(1);
    let (_, f) = listening(&t, Config { gap_grace: ms(5_000), ..no_sweep() }).await;
    let publisher = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    broadcast_numbers(&publisher, "s", 1..=9).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=9));
    let ninth = s.cursor();
    t.wire().drop_next(1);
    broadcast_numbers(&publisher, "s", 10..=10).await;
    t.clock().idle().await;
    broadcast_numbers(&publisher, "s", 11..=11).await;
    assert_eq!(said(&t, &mut s).await, numbered([]), "11 is here, 10 was in flight");
    assert_eq!(s.cursor(), ninth);
    t.wire().cut();
    assert_eq!(said_within(&t, &mut s, ms(100)).await, numbered(10..=11));
    assert_eq!(s.cursor().sequence, Sequence(11));
}

#[tokio::test(start_paused = true)]
async fn gem_f07_a_payload_that_is_no_object_costs_nobody_anything() {
    let t = Testkit::new(1);
    let other = engine(&t).await;
    let f = engine_with(&t, no_sweep()).await;
    let mut s = f.subscribe("s").await.unwrap();
    let queue = f.queue("jobs").await.unwrap();
    let mut sequence = 0;
    for poison in ["42", "null", "true", "[1,2]", "\"x\"", "{}", "{\"id\":1}", ""] {
        t.database().announce_raw(Naming::default().stream(&"s".parse().unwrap()), poison);
        queue.push(poison).await.unwrap();
        for _ in 0..10 {
            sequence += 1;
            broadcast_numbers(&other, "s", sequence..=sequence).await;
        }
        assert_eq!(said(&t, &mut s).await, numbered(sequence - 9..=sequence), "after {poison:?}, at once");
        assert_eq!(queue.pop().await.as_deref(), Some(poison), "a queue's content is its users' own");
    }
    let m = f.metrics_snapshot();
    assert_eq!((m.payloads_ignored, m.reconnects_total, m.notifies_received), (8, 0, 8 + 8 + 80));
}

#[tokio::test(start_paused = true)]
async fn gem_f08_a_slow_handler_delays_only_itself_and_costs_no_session() {
    let t = Testkit::new(1);
    let f =
        engine_with(&t, Config { watchdog_interval: ms(500), watchdog_deadline: ms(2_000), ..Config::default() }).await;
    let seen = Arc::new(Mutex::new(Vec::<i64>::new()));
    let (clock, heard) = (t.clock(), seen.clone());
    let _guard = f
        .on("s", move |m| {
            let (clock, heard) = (clock.clone(), heard.clone());
            async move {
                // The first takes longer than every deadline there is.
                if m.sequence == Sequence(1) {
                    let until = clock.now() + Duration::from_secs(90);
                    clock.sleep_until(until).await;
                }
                heard.lock().unwrap().push(m.sequence.0);
            }
        })
        .await
        .unwrap();
    let mut quick = f.subscribe("s").await.unwrap();
    for n in 1..=31 {
        broadcast_numbers(&f, "s", n..=n).await;
        assert_eq!(said(&t, &mut quick).await, numbered(n..=n));
        t.clock().advance(ms(1_000)).await;
    }
    assert!(seen.lock().unwrap().is_empty(), "still at the first");
    t.clock().advance(Duration::from_secs(60)).await;
    assert_eq!(*seen.lock().unwrap(), (1..=31).collect::<Vec<i64>>(), "none is lost");
    let m = f.metrics_snapshot();
    assert_eq!((f.state(), m.watchdog_kicks, m.reconnects_total), (State::Live, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn gem_f09_an_error_in_the_replay_of_some_streams_stops_no_other_and_is_made_up_for() {
    for failing in [Operation::Anchors, Operation::Heads, Operation::ReadAfter] {
        let t = Testkit::new(1);
        let publisher = engine(&t).await;
        let (process, f) = listening(&t, Config::default()).await;
        let names: Vec<String> = (0..200).map(|n| format!("s{n}")).collect();
        let mut all = Vec::new();
        for name in &names {
            all.push(f.subscribe(name.as_str()).await.unwrap());
        }
        process.faults().on(Operation::Connect).fail(1, ErrorKind::ConnectionLost);
        process.cut();
        for name in &names {
            broadcast_numbers(&publisher, name, 1..=3).await;
        }
        // One call of those that the replay takes.
        process.faults().on(failing).fail(1, ErrorKind::Backend);
        t.clock().advance(ms(4_000)).await;
        let failed = t.faults().trace().iter().filter(|e| e.is(failing, Phase::Failed(ErrorKind::Backend))).count();
        assert_eq!(failed, 1, "{failing}");
        for s in &mut all {
            assert_eq!(said(&t, s).await, numbered(1..=3), "{failing}: {}", s.stream());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn gem_f09_the_streams_of_other_pages_do_not_even_wait() {
    let t = Testkit::new(1);
    let publisher = engine(&t).await;
    let (process, f) = listening(&t, no_sweep()).await;
    let names: Vec<String> = (0..200).map(|n| format!("s{n}")).collect();
    let mut all = Vec::new();
    for name in &names {
        all.push(f.subscribe(name.as_str()).await.unwrap());
    }
    process.cut();
    t.wire().drop_all();
    for name in &names {
        broadcast_numbers(&publisher, name, 1..=1).await;
    }
    t.wire().heal();
    process.faults().on(Operation::ReadAfter).fail(1, ErrorKind::Backend);
    process.cut();
    t.clock().advance(Duration::from_secs(5)).await;
    let mut had = 0;
    for s in &mut all {
        had += said(&t, s).await.len();
    }
    assert!((100..200).contains(&had), "{had} of 200: one read of some failed, the others were served");
}

#[tokio::test(start_paused = true)]
async fn gem_f10_what_a_restart_could_not_announce_is_told_and_reaches_everyone() {
    let t = Testkit::new(1);
    let other = engine(&t).await;
    let mut theirs = other.subscribe("s").await.unwrap();
    let (process, f) = listening(&t, Config::default()).await;
    let _stalled = process.faults().on(Operation::Notify).hang();
    broadcast_numbers(&f, "s", 1..=200).await;
    let began = t.clock().now();
    let shutdown = tokio::spawn(async move { f.shutdown(ms(2_000)).await });
    assert!(t.clock().advance_until(|| shutdown.is_finished(), ms(2_000)).await, "within its deadline");
    let receipt = shutdown.await.unwrap();
    let told: Vec<i64> = receipt.not_announced.iter().map(|(_, cursor)| cursor.sequence.0).collect();
    assert_eq!((told, receipt.not_stored), ((1..=200).collect::<Vec<_>>(), 0), "each of them is in the receipt");
    let within = ms(1_000).saturating_sub(t.clock().now().since(began));
    assert_said(&said_within(&t, &mut theirs, within).await, &numbered(1..=200), "by the sweep of others");
    assert_eq!(other.metrics_snapshot().sweep_messages_found, 200);
}

#[tokio::test(start_paused = true)]
async fn gem_f11_a_broadcast_after_the_end_is_an_error_and_stores_nothing() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    broadcast_numbers(&f, "s", 1..=1).await;
    f.shutdown(ms(1_000)).await;
    let error = f.broadcast("s", "2").await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::ShutDown, Outcome::NotDone));
    let many = f.broadcast_many([NewMessage::new("s", "3").unwrap(), NewMessage::new("t", "1").unwrap()]).await;
    assert!(many.iter().all(|r| r.as_ref().is_err_and(|e| e.kind() == ErrorKind::ShutDown)));
    t.clock().advance(ms(5_000)).await;
    assert_eq!((t.database().messages("s").len(), t.database().stream_count()), (1, 1));
    assert_eq!(f.metrics_snapshot().broadcasts_total, 1);
}
