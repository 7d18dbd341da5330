//! The engine on PostgreSQL: what only both together can show.

use std::time::Duration;

use firehose_core::{
    Config, Delivery, Error, ErrorKind, Event, Firehose, Layout, NewMessage, Sequence, Start, Subscription,
};
use firehose_pg::broadcast_in;
use sea_orm::{ConnectionTrait, TransactionTrait};

use crate::harness::{Shape, TestDatabase, both_shapes, eventually, run, within};

/// Quick to notice and to come back.
pub(crate) fn quick(db: &TestDatabase) -> Config {
    Config {
        reconnect_delay: Duration::from_millis(20),
        reconnect_max_delay: Duration::from_millis(200),
        sweep_interval: Duration::from_millis(200),
        ..db.config()
    }
}

pub(crate) async fn engine(db: &TestDatabase) -> Firehose {
    let config = quick(db);
    let backend = firehose_pg::connect(&config).await.unwrap();
    Firehose::builder(backend).config(config).start().await.unwrap()
}

/// The next message, as (sequence, data).
pub(crate) async fn next(subscription: &mut Subscription) -> (i64, String) {
    match within(10, subscription.next()).await {
        Some(Delivery::Message(message)) => (message.sequence.0, message.data.to_string()),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn kill(db: &TestDatabase, which: &str) -> i64 {
    db.number(&format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'firehose' AND {which}"
    ))
    .await
}

both_shapes! {
    async fn what_is_broadcast_arrives(db) {
        let (here, there) = (engine(&db).await, engine(&db).await);
        let mut live = here.subscribe("orders").await.unwrap();
        let mut all = there.subscribe_from("orders", Start::Earliest).await.unwrap();
        let long = "x".repeat(20_000);
        for data in ["1", "", &long, "ü"] {
            here.broadcast("orders", data).await.unwrap();
        }
        db.execute("SELECT firehose_broadcast('orders', 'from SQL')").await;
        for (at, data) in ["1", "", &long, "ü", "from SQL"].into_iter().enumerate() {
            let expected = (at as i64 + 1, data.to_owned());
            assert_eq!(next(&mut live).await, expected);
            assert_eq!(next(&mut all).await, expected);
        }
        for firehose in [here, there] {
            firehose.shutdown(Duration::from_secs(5)).await;
        }
        // A subscription still knows its engine, and that its store.
        drop((live, all));
        let ours = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'firehose'";
        let gone = || async { (db.number(ours).await == 0).then_some(()) };
        eventually("no session is left", gone).await;
    }

    async fn c08_what_nobody_announced_is_found_by_the_sweep(db) {
        let firehose = engine(&db).await;
        let mut live = firehose.subscribe("a").await.unwrap();
        db.execute("SELECT firehose_append('a', 'silent')").await;
        assert_eq!(next(&mut live).await, (1, "silent".to_owned()));
        let counted = || async { (firehose.metrics_snapshot().sweep_messages_found == 1).then_some(()) };
        eventually("it is counted", counted).await;
    }

    async fn c28_c30_a_callers_transaction_delivers_with_its_commit(db) {
        let (firehose, orm) = (engine(&db).await, db.orm().await);
        let mut live = firehose.subscribe("a").await.unwrap();
        let txn = orm.begin().await.unwrap();
        let _ = broadcast_in(&txn, "a", "rolled back").await.unwrap();
        txn.rollback().await.unwrap();
        let txn = orm.begin().await.unwrap();
        let _ = broadcast_in(&txn, "a", "committed").await.unwrap();
        // Someone who waits for the stream meanwhile comes after it.
        let waiting = firehose.broadcast("a", "after");
        let commit = async { txn.commit().await.unwrap() };
        let (after, ()) = within(10, async { tokio::join!(waiting, commit) }).await;
        let mut heard = [next(&mut live).await, next(&mut live).await];
        heard.sort();
        let sequences: Vec<i64> = heard.iter().map(|(sequence, _)| *sequence).collect();
        assert_eq!(sequences, [1, 2]);
        let after = after.unwrap().sequence;
        assert_eq!(heard[usize::try_from(after.0 - 1).unwrap()].1, "after");
        assert!(heard.iter().any(|(_, data)| data == "committed"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c01_what_was_broadcast_while_the_listener_was_down_arrives() {
    run(Shape::Fresh, |db| async move {
        let config = quick(&db);
        let (told, mut events) = tokio::sync::mpsc::unbounded_channel();
        let backend = firehose_pg::connect(&config).await.unwrap();
        let listening = Firehose::builder(backend)
            .config(config)
            .on_event(move |event| {
                if let Event::Reconnected { .. } = event {
                    told.send(()).unwrap_or_default();
                }
            })
            .start()
            .await
            .unwrap();
        let publishing = engine(&db).await;
        let mut live = listening.subscribe("a").await.unwrap();
        publishing.broadcast("a", "0").await.unwrap();
        assert_eq!(next(&mut live).await, (1, "0".to_owned()));
        assert!(kill(&db, "query LIKE 'LISTEN%'").await >= 1);
        for n in 1..=10 {
            publishing.broadcast("a", n.to_string()).await.unwrap();
        }
        for n in 1..=10 {
            assert_eq!(next(&mut live).await, (n + 1, n.to_string()));
        }
        within(10, events.recv()).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c03_a_subscriber_that_starts_under_full_speed_misses_nothing() {
    run(Shape::Fresh, |db| async move {
        let firehose = engine(&db).await;
        firehose.broadcast("a", "0").await.unwrap();
        let publish = async {
            for n in 1..600 {
                firehose.broadcast("a", n.to_string()).await.unwrap();
            }
        };
        let subscribe = async {
            for _ in 0..60 {
                let mut live = firehose.subscribe("a").await.unwrap();
                let start = live.start().sequence;
                for n in 1..=3 {
                    // The publisher may have ended by now.
                    if start.0 + n <= 600 {
                        assert_eq!(next(&mut live).await.0, start.0 + n);
                    }
                }
            }
        };
        within(40, async { tokio::join!(publish, subscribe) }).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_arrives_once_and_in_order_while_all_sessions_are_killed_again_and_again() {
    run(Shape::Fresh, |db| async move {
        const MESSAGES: i64 = 300;
        let (publishing, listening) = (engine(&db).await, engine(&db).await);
        let mut live = listening.subscribe("a").await.unwrap();
        let publish = async {
            for n in 1..=MESSAGES {
                let message = NewMessage::new("a", n.to_string()).unwrap().key(n.to_string()).unwrap();
                // Repeated until it is known to be stored; the key makes that safe.
                eventually("it is stored", || async { publishing.broadcast_message(message.clone()).await.ok() }).await;
            }
        };
        let hear = async {
            for n in 1..=MESSAGES {
                assert_eq!(next(&mut live).await, (n, n.to_string()));
            }
        };
        let killer = async {
            loop {
                kill(&db, "true").await;
                let pause = db.client().await;
                pause.batch_execute("SELECT pg_sleep(0.1)").await.unwrap();
            }
        };
        within(50, async {
            tokio::select! {
                _ = async { tokio::join!(publish, hear) } => {}
                () = killer => {}
            }
        })
        .await;
        assert_eq!(db.number("SELECT count(*) FROM firehose_messages").await, MESSAGES);
        let head = publishing.head("a").await.unwrap().unwrap();
        assert_eq!(head.sequence, Sequence(MESSAGES));
    })
    .await;
}

#[tokio::test]
async fn c65_a_layout_that_differs_from_the_databases_is_an_error_that_names_both() {
    run(Shape::Fresh, |db| async move {
        let config = Config { layout: Some(Layout::Buckets), ..quick(&db) };
        let backend = firehose_pg::connect(&config).await.unwrap();
        let e = Firehose::builder(backend).config(config).start().await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::SettingsMismatch);
        firehose_migrations::set(&db.orm().await, None, "layout", "buckets").await.unwrap();
        let firehose = engine(&db).await;
        let mut live = firehose.subscribe("a").await.unwrap();
        firehose.broadcast("a", "in a bucket").await.unwrap();
        assert_eq!(next(&mut live).await, (1, "in a bucket".to_owned()));
    })
    .await;
}

both_shapes! {
    async fn c30_c61_a_transaction_announces_what_it_committed_and_nothing_else(db) {
        let (orm, config) = (db.orm().await, Config { sweep_interval: Duration::from_secs(3_600), ..quick(&db) });
        let backend = firehose_pg::connect(&config).await.unwrap();
        let firehose = Firehose::builder(backend).config(config).start().await.unwrap();
        let mut live = firehose.subscribe("orders").await.unwrap();

        let failed = firehose_pg::transaction(&orm, &firehose, async |txn: &firehose_pg::Transaction| {
            txn.broadcast("orders", "never").await?;
            Err::<(), _>(Error::new(ErrorKind::Backend, "test", "changed its mind"))
        });
        assert_eq!(failed.await.unwrap_err().to_string(), "test: changed its mind");

        let value = firehose_pg::transaction(&orm, &firehose, async |txn: &firehose_pg::Transaction| {
            let savepoint = txn.begin().await.unwrap();
            let lost = broadcast_in(&savepoint, "orders", "rolled back").await?;
            savepoint.rollback().await.unwrap();
            assert_eq!(firehose.announce(lost).await?, 0);
            txn.execute_unprepared("CREATE TABLE mine (id int)").await.unwrap();
            txn.broadcast("orders", "1").await?;
            txn.broadcast_many([NewMessage::new("orders", "2")?, NewMessage::new("other", "1")?]).await?;
            Ok::<_, Error>(7)
        });
        assert_eq!(value.await.unwrap(), 7);
        assert_eq!(db.number("SELECT count(*) FROM mine").await, 0);
        for expected in [(1, "1".to_owned()), (2, "2".to_owned())] {
            assert_eq!(next(&mut live).await, expected, "announced, for no sweep comes in an hour");
        }
        firehose.shutdown(Duration::from_secs(5)).await;
    }
}
