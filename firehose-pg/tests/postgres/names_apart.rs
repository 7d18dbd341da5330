//! Queues, raw channels and streams of one name.

use std::time::Duration;

use firehose_core::{ErrorKind, Firehose, State};

use crate::engine::{engine, kill, next};
use crate::harness::{Shape, TestDatabase, eventually, run, within};

/// A queue and a stream of one name, each with something that only it may hear; then a sentinel, which must be next.
async fn apart(firehose: &Firehose, name: &str, first: i64) {
    let queue = firehose.queue(name).await.unwrap();
    let mut stream = firehose.subscribe(name).await.unwrap();
    for round in 0..2 {
        queue.push(format!("job {round}")).await.unwrap();
        let message = firehose.broadcast(name, format!("event {round}")).await.unwrap();
        assert_eq!(next(&mut stream).await, (message.sequence.0, format!("event {round}")));
        let job = within(10, queue.pop()).await.unwrap();
        assert_eq!(*job, format!("job {round}"));
        assert_eq!(message.sequence.0, first + round);
    }
}

async fn c64(db: TestDatabase, prefix: &str) {
    firehose_migrations::set(&db.orm().await, None, "prefix", prefix).await.unwrap();
    let firehose = engine(&db).await;
    assert_eq!(firehose.diagnostics().prefix, prefix);
    for refused in [format!("{prefix}:orders"), format!("{prefix}-bucket:1"), format!("{prefix}-queue:orders")] {
        assert_eq!(firehose.queue(&refused).await.unwrap_err().kind(), ErrorKind::InvalidName, "{refused}");
        assert_eq!(firehose.listen_raw(&refused).await.unwrap_err().kind(), ErrorKind::InvalidName, "{refused}");
        assert_eq!(firehose.notify(&refused, "x").await.unwrap_err().kind(), ErrorKind::InvalidName, "{refused}");
    }
    // Another installation's words are names like any other, for a queue as for a stream.
    let foreign = if prefix == "firehose" { "blue:orders" } else { "firehose:orders" };
    for name in ["orders", foreign] {
        apart(&firehose, name, 1).await;
    }

    // Open over a reconnect, too.
    let queue = firehose.queue("orders").await.unwrap();
    let mut stream = firehose.subscribe("orders").await.unwrap();
    assert!(kill(&db, "query LIKE '%LISTEN%'").await >= 1);
    let back = || async {
        (firehose.metrics_snapshot().reconnects_total > 0 && firehose.state() == State::Live).then_some(())
    };
    eventually("it listens again", back).await;
    queue.push("after").await.unwrap();
    firehose.broadcast("orders", "later").await.unwrap();
    assert_eq!(next(&mut stream).await, (3, "later".to_owned()));
    assert_eq!(within(10, queue.pop()).await.as_deref(), Some("after"));
    apart(&firehose, "orders", 4).await;
    firehose.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c64_queues_and_streams_of_one_name_do_not_meet() {
    run(Shape::Fresh, |db| c64(db, "firehose")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c64_nor_do_they_with_another_prefix() {
    run(Shape::Fresh, |db| c64(db, "blue")).await;
}
