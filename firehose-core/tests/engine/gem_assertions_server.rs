//! What the gem's tests of its server assert, 66 to 114, as far as no other test here says it: by its number, and by its
//! value here.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use firehose_testkit::{Operation, Testkit};

use super::*;

fn no_sweep() -> Config {
    Config { sweep_interval: Duration::from_secs(100_000), ..Config::default() }
}

#[tokio::test(start_paused = true)]
async fn gem_a066_at_the_cap_an_announcement_is_dropped_counted_and_grows_nothing() {
    let t = Testkit::new(1);
    let f = engine_with(&t, Config { max_command_queue_depth: 3, ..no_sweep() }).await;
    let hold = t.faults().on(Operation::Notify).hang();
    broadcast_numbers(&f, "s", 1..=1).await;
    t.clock().idle().await;
    broadcast_numbers(&f, "s", 2..=4).await;
    assert_eq!((f.metrics_snapshot().command_queue_depth, f.metrics_snapshot().commands_dropped), (3, 0));
    broadcast_numbers(&f, "s", 5..=5).await;
    let (depth, dropped) = (f.metrics_snapshot().command_queue_depth, f.metrics_snapshot().commands_dropped);
    assert_eq!((depth, dropped), (4, 1), "the fourth is the stream's mark");
    broadcast_numbers(&f, "s", 6..=100).await;
    assert_eq!((f.metrics_snapshot().command_queue_depth, f.metrics_snapshot().commands_dropped), (4, 96));
    drop(hold);
}

#[tokio::test(start_paused = true)]
async fn gem_a067_a069_listen_unlisten_and_shutdown_pass_a_full_queue() {
    let t = Testkit::new(1);
    let f = engine_with(&t, Config { max_command_queue_depth: 1, ..no_sweep() }).await;
    let old = f.subscribe("old").await.unwrap();
    let _hold = t.faults().on(Operation::Notify).hang();
    broadcast_numbers(&f, "s", 1..=100).await;
    assert!(f.metrics_snapshot().commands_dropped > 90);
    let _new = f.subscribe("new").await.unwrap();
    drop(old);
    t.clock().idle().await;
    let listens = |name: &str| t.wire().channels().contains(&Naming::default().stream(&name.parse().unwrap()));
    assert_eq!((listens("old"), listens("new")), (false, true));
    let shutdown = tokio::spawn(async move { f.shutdown(ms(50)).await });
    assert!(t.clock().advance_until(|| shutdown.is_finished(), ms(50)).await);
    assert!(!shutdown.await.unwrap().not_announced.is_empty());
}

#[tokio::test(start_paused = true)]
async fn gem_a070_unless_it_is_set_the_cap_is_so_high_that_a_burst_waits() {
    assert_eq!(Config::default().max_command_queue_depth, 65_536, "bounded, where the gem's was not");
    let t = Testkit::new(1);
    let f = engine_with(&t, no_sweep()).await;
    let _hold = t.faults().on(Operation::Notify).hang();
    broadcast_numbers(&f, "in flight", 1..=1).await;
    t.clock().idle().await;
    broadcast_numbers(&f, "s", 1..=1_000).await;
    let m = f.metrics_snapshot();
    assert_eq!((m.command_queue_depth, m.commands_dropped), (1_000, 0));
}

#[tokio::test(start_paused = true)]
async fn gem_a071_a072_what_an_engine_tells_of_itself_before_and_after_a_subscription() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let d = f.diagnostics();
    assert_eq!((d.pid, d.running, d.reason), (std::process::id(), true, None));
    assert_eq!((d.metrics.command_queue_depth, d.metrics.subscribed_channels, d.streams.len()), (0, 0, 0));
    let _s = f.subscribe("s").await.unwrap();
    let d = f.diagnostics();
    assert_eq!((d.state, d.metrics.supervisor_alive, d.metrics.subscribed_channels), (State::Live, 1, 1));
    assert_eq!(d.streams.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn gem_a076_a077_the_heartbeat_is_young_at_first_and_after_each_answer() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    assert_eq!(f.metrics_snapshot().seconds_since_heartbeat, 0.0);
    let _s = f.subscribe("s").await.unwrap();
    t.clock().advance(ms(1_250)).await;
    broadcast_numbers(&f, "s", 1..=1).await;
    t.clock().idle().await;
    assert_eq!(f.health().seconds_since_heartbeat, 0.0, "a notification is life");
    t.clock().advance(ms(1_250)).await;
    let _other = f.subscribe("other").await.unwrap();
    assert_eq!(f.health().seconds_since_heartbeat, 0.0, "and so is the answer to a LISTEN");
}

#[tokio::test(start_paused = true)]
async fn gem_a078_force_reconnect_without_a_connection_does_no_harm() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    t.faults().on(Operation::Connect).fail(1, ErrorKind::ConnectionLost);
    t.wire().cut();
    t.clock().idle().await;
    f.force_reconnect();
    t.clock().advance(Duration::from_secs(5)).await;
    assert_eq!((f.state(), t.wire().session_count()), (State::Live, 1));
    let publishes_only = Backend { listener: None, ..t.backend() };
    let f = Firehose::builder(publishes_only).clock(t.clock()).start().await.unwrap();
    f.force_reconnect();
    assert_eq!(f.broadcast("s", "x").await.unwrap().sequence, Sequence(1));
    f.shutdown(ms(100)).await;
    f.force_reconnect();
}

#[tokio::test(start_paused = true)]
async fn gem_a079_a108_f42_force_reconnect_from_any_thread_gives_a_new_session_that_hears() {
    let t = Testkit::new(1);
    let f = engine_with(&t, no_sweep()).await;
    let mut s = f.subscribe("s").await.unwrap();
    for n in 1..=3 {
        let asking = f.clone();
        std::thread::spawn(move || asking.force_reconnect()).join().unwrap();
        t.clock().advance(Duration::from_secs(5)).await;
        assert_eq!((f.state(), f.metrics_snapshot().reconnects_total), (State::Live, n as u64));
        assert_eq!(t.wire().session_count(), 1, "the old one is closed");
        broadcast_numbers(&f, "s", n..=n).await;
        assert_eq!(said(&t, &mut s).await, numbered(n..=n));
    }
}

#[test]
fn gem_a074_a082_attempts_are_unlimited_and_the_session_is_watched_unless_it_is_said() {
    let c = Config::default();
    assert_eq!((c.reconnect_attempts, c.watchdog_enabled), (None, true));
}

#[test]
fn gem_a084_a_dead_connection_is_known_to_the_kernel_within_two_minutes() {
    let c = Config::default();
    assert!(c.tcp_keepalives_idle + c.tcp_keepalives_interval * c.tcp_keepalives_count <= Duration::from_secs(120));
}

#[tokio::test(start_paused = true)]
async fn gem_a089_after_the_end_nothing_counts_as_alive() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    assert_eq!(f.metrics_snapshot().supervisor_alive, 1);
    f.shutdown(ms(100)).await;
    assert_eq!((f.metrics_snapshot().supervisor_alive, f.diagnostics().running), (0, false));
}

#[tokio::test(start_paused = true)]
async fn gem_a090_two_broadcasts_count_two_and_one_that_fails_none() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    broadcast_numbers(&f, "s", 1..=2).await;
    t.faults().on(Operation::Append).fail(1, ErrorKind::Permission);
    assert_eq!(f.broadcast("s", "x").await.unwrap_err().kind(), ErrorKind::Permission);
    assert_eq!(f.metrics_snapshot().broadcasts_total, 2);
}

#[tokio::test(start_paused = true)]
async fn gem_a092_an_on_metrics_that_panics_is_called_again() {
    let t = Testkit::new(1);
    let calls = Arc::new(Mutex::new(0));
    let counted = calls.clone();
    let builder = Firehose::builder(t.backend()).clock(t.clock());
    let f = builder
        .on_metrics(move |_| {
            *counted.lock().unwrap() += 1;
            panic!("in a callback");
        })
        .start()
        .await
        .unwrap();
    t.clock().advance(Duration::from_secs(45)).await;
    let calls = *calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    assert_eq!((calls, f.state()), (3, State::Live));
}

#[tokio::test(start_paused = true)]
async fn gem_a094_a_position_is_the_last_that_was_handed_out_whatever_the_order_of_arrival() {
    let t = Testkit::new(1);
    let f = engine_with(&t, Config { gap_grace: ms(5_000), ..no_sweep() }).await;
    let mut s = f.subscribe("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=1).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=1));
    t.wire().drop_all();
    broadcast_numbers(&f, "s", 2..=4).await;
    t.clock().idle().await;
    t.wire().heal();
    let stored = t.database().messages("s");
    let channel = Naming::default().stream(&"s".parse().unwrap());
    for (arrives, handed_out, position) in [(4, 2..2, 1), (2, 2..3, 2), (4, 3..3, 2), (3, 3..5, 4)] {
        t.database().announce_raw(channel.clone(), wire::encode(&stored[arrives - 1], 7_999));
        assert_eq!(said(&t, &mut s).await, numbered(handed_out), "{arrives} arrived");
        assert_eq!(s.cursor(), stored[position - 1].cursor());
    }
}

#[tokio::test(start_paused = true)]
async fn gem_a095_what_announces_nothing_moves_no_position() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    broadcast_numbers(&f, "s", 1..=1).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=1));
    let before = s.cursor();
    let channel = Naming::default().stream(&"s".parse().unwrap());
    for payload in
        ["no json", r#"{"sequence":99,"stream":"s","data":"x"}"#, r#"{"id":"7","channel_id":1,"sequence":2}"#]
    {
        t.database().announce_raw(channel.clone(), payload);
    }
    assert_eq!(said_within(&t, &mut s, ms(3_000)).await, numbered([]));
    assert_eq!(s.cursor(), before);
    broadcast_numbers(&f, "s", 2..=2).await;
    assert_eq!(said(&t, &mut s).await, numbered(2..=2));
}

#[tokio::test(start_paused = true)]
async fn gem_a097_a_first_start_is_no_reconnect_and_replays_nothing() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    broadcast_numbers(&f, "s", 1..=3).await;
    let mut s = f.subscribe("s").await.unwrap();
    assert_eq!(said_within(&t, &mut s, ms(3_000)).await, numbered([]));
    let m = f.metrics_snapshot();
    assert_eq!((m.reconnects_total, m.reconnects_current, m.replay_messages_delivered), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn gem_a100_as_many_connections_stand_in_as_there_are_and_not_one_more() {
    for (pool, calls) in [(0, 1), (1, 1), (3, 3)] {
        let t = Testkit::new(1);
        let f = engine_with(&t, Config { notify_pool_size: pool, ..no_sweep() }).await;
        // The probe has had its call.
        t.clock().idle().await;
        let hold = t.faults().on(Operation::Notify).hang();
        for n in 1..=8 {
            broadcast_numbers(&f, "s", n..=n).await;
            t.clock().advance(ms(1_000)).await;
            assert!(hold.waiting() <= calls, "{} calls for a pool of {pool}", hold.waiting());
        }
        assert_eq!(hold.waiting(), calls);
    }
}

#[tokio::test(start_paused = true)]
async fn gem_a104_fifty_callers_at_once_are_all_heard() {
    let t = Testkit::new(1);
    let f = engine_with(&t, no_sweep()).await;
    let mut s = f.subscribe("s").await.unwrap();
    let callers: Vec<_> = (0..50)
        .map(|n| {
            let f = f.clone();
            tokio::spawn(async move { f.broadcast("s", n.to_string()).await.unwrap().id })
        })
        .collect();
    let mut ids = BTreeSet::new();
    for caller in callers {
        ids.insert(caller.await.unwrap());
    }
    let mut heard = Vec::new();
    for _ in 0..50 {
        heard.push(s.next().await.unwrap().message().unwrap().id);
    }
    assert_eq!(heard, ids.into_iter().collect::<Vec<_>>(), "in order, where the gem promised any");
}

#[tokio::test(start_paused = true)]
async fn gem_a106_after_failures_on_every_connection_the_next_is_heard() {
    let t = Testkit::new(1);
    let f = engine_with(&t, Config { probe_interval: Duration::from_secs(3_600), ..no_sweep() }).await;
    let mut s = f.subscribe("s").await.unwrap();
    for (n, kind) in [ErrorKind::ConnectionLost, ErrorKind::Backend, ErrorKind::TooLarge].into_iter().enumerate() {
        t.faults().on(Operation::Notify).fail(4, kind);
        let sequence = n as i64 + 1;
        broadcast_numbers(&f, "s", sequence..=sequence).await;
        assert_eq!(said_within(&t, &mut s, ms(12_000)).await, numbered(sequence..=sequence), "{kind:?}");
        assert_eq!(f.metrics_snapshot().notify_failures, 4 * (n as u64 + 1));
    }
}

#[tokio::test(start_paused = true)]
async fn gem_a107_a_panic_in_the_task_that_hears_costs_its_listeners_nothing() {
    let t = Testkit::new(1);
    let f = engine_with(&t, no_sweep()).await;
    let mut s = f.subscribe("s").await.unwrap();
    t.faults().on(Operation::Connect).panic(1);
    t.faults().on(Operation::Listen).panic(1);
    t.wire().cut();
    t.clock().idle().await;
    broadcast_numbers(&f, "s", 1..=2).await;
    assert_eq!(said_within(&t, &mut s, ms(5_000)).await, numbered(1..=2), "without anyone asking for it");
    broadcast_numbers(&f, "s", 3..=3).await;
    assert_eq!(said(&t, &mut s).await, numbered(3..=3));
}

#[tokio::test(start_paused = true)]
async fn gem_a112_a114_after_a_shutdown_nothing_lives_and_nothing_is_revived() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    let mut s = f.subscribe("s").await.unwrap();
    f.shutdown(ms(1_000)).await;
    t.faults().clear_trace();
    for kind in [
        f.subscribe("s").await.unwrap_err().kind(),
        f.queue("q").await.unwrap_err().kind(),
        f.notify("q", "x").await.unwrap_err().kind(),
        f.broadcast("s", "x").await.unwrap_err().kind(),
    ] {
        assert_eq!(kind, ErrorKind::ShutDown, "a typed error, where the gem was silent");
    }
    assert_eq!(said(&t, &mut s).await, ["closed Shutdown"]);
    t.clock().advance(Duration::from_secs(60)).await;
    assert_eq!((t.faults().trace(), t.wire().session_count(), t.clock().pending_sleeps()), (vec![], 0, 0));
}
