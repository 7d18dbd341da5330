//! A primary and the standby that streams from it: one URL with both, in either order, before and after a failover.

use std::time::Duration;

use firehose_core::{Backend, Blocked, Config, Delivery, ErrorKind, Firehose, NewMessage};

use crate::append::new;
use crate::harness::{Cluster, eventually, within};

/// Both servers in one URL; a moment's patience, and quick to come back.
fn either(first: &Cluster, second: &Cluster, attributes: &str) -> Config {
    let url = format!(
        "postgres:///postgres?user=postgres&host={},{}&port={},{}&target_session_attrs={attributes}",
        first.folder.display(),
        second.folder.display(),
        first.port,
        second.port
    );
    Config {
        database_url: Some(url.into()),
        reconnect_delay: Duration::from_millis(20),
        reconnect_max_delay: Duration::from_millis(200),
        sweep_interval: Duration::from_millis(200),
        ..Config::default()
    }
}

/// How many sessions of ours a server has.
async fn ours(server: &Cluster) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'firehose'";
    server.client("postgres").await.query_one(sql, &[]).await.unwrap().get(0)
}

async fn caught_up(primary: &Cluster) {
    let behind = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()";
    let client = primary.client("postgres").await;
    let look = || async { (client.query_one(behind, &[]).await.unwrap().get::<_, i64>(0) == 1).then_some(()) };
    eventually("the standby has all", look).await;
}

/// The next message's data; anything else is wrong.
async fn next(live: &mut firehose_core::Subscription) -> (i64, String) {
    match within(20, live.next()).await {
        Some(Delivery::Message(message)) => (message.sequence.0, message.data.to_string()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c21_a_live_standby_is_refused_and_after_its_promotion_the_engine_goes_on_there() {
    let (primary, standby) = tokio::task::spawn_blocking(Cluster::pair).await.unwrap();
    firehose_pg::migrate(&either(&standby, &primary, "any")).await.unwrap();
    caught_up(&primary).await;

    let alone = Config { database_url: Some(standby.url("postgres").to_secret()), ..Config::default() };
    let e = firehose_pg::connect(&alone).await.unwrap_err();
    assert_eq!((e.kind(), e.is_retryable()), (ErrorKind::Standby, true), "{e}");
    assert!(e.to_string().contains(&standby.folder.display().to_string()), "it says which: {e}");

    for attributes in ["any", "primary", "read-write"] {
        for config in [either(&primary, &standby, attributes), either(&standby, &primary, attributes)] {
            let backend: Backend = firehose_pg::connect(&config).await.unwrap();
            assert!(backend.store.append(&[new("warm", attributes)], Blocked::Skip).await[0].is_ok());
            let session = backend.listener.as_ref().unwrap().connect().await.unwrap();
            assert!(ours(&primary).await >= 3, "{attributes}");
            // Who was refused there goes in the server's own time.
            eventually("nobody is on the standby", || async { (ours(&standby).await == 0).then_some(()) }).await;
            session.control.close().await;
        }
    }

    let config = either(&primary, &standby, "any");
    let backend = firehose_pg::connect(&config).await.unwrap();
    let firehose = Firehose::builder(backend).config(config).start().await.unwrap();
    let mut live = firehose.subscribe("orders").await.unwrap();
    for n in 1..=5 {
        firehose.broadcast("orders", n.to_string()).await.unwrap();
        assert_eq!(next(&mut live).await, (n, n.to_string()));
    }
    caught_up(&primary).await;
    tokio::task::spawn_blocking(|| primary.crash()).await.unwrap();
    // Nobody takes writes now; then the standby does.
    let e = within(15, firehose.broadcast("orders", "lost")).await.unwrap_err();
    assert!(e.is_retryable() || e.kind() == ErrorKind::OutcomeUnknown, "{e:?}");
    standby.client("postgres").await.batch_execute("SELECT pg_promote()").await.unwrap();
    for n in 6..=10 {
        let message = NewMessage::new("orders", n.to_string()).unwrap().key(n.to_string()).unwrap();
        eventually("it is stored", || async { firehose.broadcast_message(message.clone()).await.ok() }).await;
        // The same history goes on: no reset, no gap.
        assert_eq!(next(&mut live).await, (n, n.to_string()));
    }
    assert!(ours(&standby).await >= 2);
    firehose.shutdown(Duration::from_secs(5)).await;
}
