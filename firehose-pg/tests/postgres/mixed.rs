//! A store of somebody else's with the transport of PostgreSQL: two processes on one file, whose notifications travel by
//! the server.

use std::sync::Arc;
use std::time::Duration;

use firehose_core::{Backend, Config, Firehose, Start};
use firehose_examples::SqliteStore;

use crate::harness::{Shape, run, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_ones_own_works_with_this_transport() {
    run(Shape::Fresh, |db| async move {
        let folder = tempfile::tempdir().unwrap();
        // The sweep finds what nobody announces: an hour away, all that arrives was notified.
        let config = Config { sweep_interval: Duration::from_secs(3_600), ..db.config() };
        let mut engines = Vec::new();
        for _ in 0..2 {
            let store = Arc::new(SqliteStore::open(folder.path().join("orders.db")).await.unwrap());
            let backend = Backend { store, ..firehose_pg::connect(&config).await.unwrap() };
            engines.push(Firehose::builder(backend).config(config.clone()).start().await.unwrap());
        }
        let mut orders = engines[1].subscribe("orders").await.unwrap();
        let long = "x".repeat(20_000);
        for data in ["paid", &long, "ü"] {
            engines[0].broadcast("orders", data).await.unwrap();
        }
        for (n, data) in [(1, "paid"), (2, &long), (3, "ü")] {
            let delivery = within(10, orders.next()).await.unwrap();
            let message = delivery.message().unwrap();
            assert_eq!((message.sequence.0, &*message.data), (n, data));
        }
        let mut all = engines[0].subscribe_from("orders", Start::Earliest).await.unwrap();
        assert_eq!(within(10, all.next()).await.unwrap().message().unwrap().sequence.0, 1);
        assert_eq!(db.number("SELECT count(*) FROM firehose_messages").await, 0, "the server holds none of them");
        for engine in engines {
            engine.shutdown(Duration::from_secs(5)).await;
        }
    })
    .await;
}
