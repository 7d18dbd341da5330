//! Announcements: a bounded queue, and what is made up for.

use firehose_testkit::{Operation, Testkit};

use super::*;

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_counted_and_made_up_for() {
    let t = Testkit::new(1);
    let config =
        Config { max_command_queue_depth: 10, sweep_interval: Duration::from_secs(3_600), ..Config::default() };
    let f = engine_with(&t, config).await;
    let mut s = f.subscribe("s").await.unwrap();
    let hold = t.faults().on(Operation::Notify).hang();
    broadcast_numbers(&f, "s", 1..=1).await;
    t.clock().idle().await;
    broadcast_numbers(&f, "s", 2..=50).await;
    assert_eq!(f.metrics_snapshot().commands_dropped, 39);
    hold.release();
    assert_eq!(said_within(&t, &mut s, ms(1_000)).await, numbered(1..=50), "without any sweep");
}

#[tokio::test(start_paused = true)]
async fn a_failed_announcement_is_repeated_without_a_sweep() {
    let t = Testkit::new(1);
    let f = engine_with(&t, Config { sweep_interval: Duration::from_secs(3_600), ..Config::default() }).await;
    let mut s = f.subscribe("s").await.unwrap();
    t.faults().on(Operation::Notify).fail(3, ErrorKind::ConnectionLost);
    broadcast_numbers(&f, "s", 1..=5).await;
    assert_eq!(said_within(&t, &mut s, ms(1_000)).await, numbered(1..=5));
    assert_eq!(f.metrics_snapshot().notify_failures, 3);
}

#[tokio::test(start_paused = true)]
async fn c63_another_process_hears_at_once_while_this_one_has_no_listener() {
    let t = Testkit::new(1);
    let other = engine(&t).await;
    let mut s = other.subscribe("s").await.unwrap();
    let here = t.process();
    let f = Firehose::builder(here.backend()).clock(t.clock()).start().await.unwrap();
    here.faults().on(Operation::Connect).refuse(ErrorKind::ConnectionLost);
    here.cut();
    t.clock().idle().await;
    assert!(matches!(f.state(), State::Reconnecting { .. }));
    broadcast_numbers(&f, "s", 1..=3).await;
    assert_eq!(said(&t, &mut s).await, numbered(1..=3));
}

#[tokio::test(start_paused = true)]
async fn c61_a_receipt_announces_what_is_visible_and_nothing_else() {
    let t = Testkit::new(1);
    let f = engine_with(&t, Config { sweep_interval: Duration::from_secs(3_600), ..Config::default() }).await;
    broadcast_numbers(&f, "s", 1..=1).await;
    let mut s = f.subscribe("s").await.unwrap();
    let mut rolled_back = t.database().begin();
    let id = rolled_back.append("s", "never").await.unwrap().id;
    rolled_back.rollback();
    assert_eq!(f.announce(Receipt::new(vec![id])).await.unwrap(), 0);
    let mut open = t.database().begin();
    let id = open.append("s", "2").await.unwrap().id;
    assert_eq!(f.announce(Receipt::new(vec![id])).await.unwrap(), 0, "before its commit");
    assert_eq!(said_within(&t, &mut s, ms(100)).await, Vec::<String>::new());
    open.commit().unwrap();
    assert_eq!(f.announce(Receipt::new(vec![id])).await.unwrap(), 1);
    assert_eq!(f.announce(Receipt::new(vec![id])).await.unwrap(), 1, "again is harmless");
    assert_eq!(said_within(&t, &mut s, ms(100)).await, numbered(2..=2));
}

#[tokio::test(start_paused = true)]
async fn another_connection_stands_in_for_a_call_that_stalls() {
    let t = Testkit::new(1);
    let stalls = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = stalls.clone();
    let f = Firehose::builder(t.backend())
        .config(Config { sweep_interval: Duration::from_secs(3_600), notify_pool_size: 2, ..Config::default() })
        .clock(t.clock())
        .on_error(move |e| heard.lock().unwrap().push((e.stage, e.error.kind())))
        .start()
        .await
        .unwrap();
    let mut s = f.subscribe("s").await.unwrap();
    t.faults().on(Operation::Notify).delay(ms(60_000));
    broadcast_numbers(&f, "s", 1..=1).await;
    t.clock().idle().await;
    t.faults().heal();
    broadcast_numbers(&f, "s", 2..=3).await;
    assert_eq!(
        said_within(&t, &mut s, ms(900)).await,
        numbered([]),
        "one call at a time, as long as it may yet answer"
    );
    assert_eq!(said_within(&t, &mut s, ms(300)).await, numbered(1..=3), "the first is read from the store");
    broadcast_numbers(&f, "s", 4..=5).await;
    assert_eq!(said(&t, &mut s).await, numbered(4..=5), "and the next do not wait a second each");
    assert_eq!(*stalls.lock().unwrap(), [(Stage::Announce, ErrorKind::Timeout(Step::Notify))]);
}

#[tokio::test(start_paused = true)]
async fn a_deep_queue_is_told_once() {
    let t = Testkit::new(1);
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = told.clone();
    let f = Firehose::builder(t.backend())
        .clock(t.clock())
        .on_event(move |e| {
            if let Event::Backlog { waiting } = e {
                heard.lock().unwrap().push(*waiting);
            }
        })
        .start()
        .await
        .unwrap();
    let hold = t.faults().on(Operation::Notify).hang();
    let many = || (0..12_000).map(|n| NewMessage::new("s", n.to_string()).unwrap());
    for result in f.broadcast_many(many()).await {
        result.unwrap();
    }
    assert_eq!(told.lock().unwrap().len(), 1);
    assert!(told.lock().unwrap()[0] >= 10_000);
    hold.release();
    t.faults().heal();
    t.clock().advance(ms(5_000)).await;
    assert_eq!(f.metrics_snapshot().command_queue_depth, 0);
    let _hold = t.faults().on(Operation::Notify).hang();
    for result in f.broadcast_many(many()).await {
        result.unwrap();
    }
    assert_eq!(told.lock().unwrap().len(), 2, "and again when it grew again");
}
