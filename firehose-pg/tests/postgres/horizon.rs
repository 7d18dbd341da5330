//! A transaction that stays open and has nothing to do with what is delivered.

use std::time::Duration;

use firehose_core::{Clock, Config, Firehose, SystemClock};

use crate::engine::{next, quick};
use crate::harness::{Shape, full, run, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c29_an_unrelated_open_transaction_delays_no_delivery_on_other_streams() {
    run(Shape::Fresh, |db| async move {
        // What is announced comes by its notification, and what is not by the sweep; each with an engine that has only it.
        let by_hint = Config { sweep_interval: Duration::from_secs(3_600), ..quick(&db) };
        let by_sweep = quick(&db);
        let mut engines = Vec::new();
        for config in [by_hint, by_sweep] {
            let backend = firehose_pg::connect(&config).await.unwrap();
            engines.push(Firehose::builder(backend).config(config).start().await.unwrap());
        }
        let [hinted, swept] = &engines[..] else { unreachable!() };
        let mut announced = hinted.subscribe("announced").await.unwrap();
        let mut silent = swept.subscribe("silent").await.unwrap();
        let mut held = swept.subscribe("held").await.unwrap();

        // It wrote, and so holds back every horizon there is in the server.
        let mut other = db.client().await;
        let open = other.transaction().await.unwrap();
        open.batch_execute("CREATE TABLE theirs (id int); INSERT INTO theirs VALUES (1)").await.unwrap();
        open.batch_execute("SELECT firehose_broadcast('held', 'late')").await.unwrap();
        let clock = SystemClock::new();
        let stays_open = if full() { Duration::from_secs(60) } else { Duration::from_secs(1) };
        let mut n = 0;
        while n < 20 || clock.now().since_origin() < stays_open {
            n += 1;
            hinted.broadcast("announced", n.to_string()).await.unwrap();
            assert_eq!(within(10, next(&mut announced)).await, (n, n.to_string()), "by its notification");
            db.execute(&format!("SELECT firehose_append('silent', '{n}')")).await;
            assert_eq!(within(10, next(&mut silent)).await, (n, n.to_string()), "by the sweep");
        }
        // It was open all the time, and what it wrote comes with its commit.
        open.commit().await.unwrap();
        assert_eq!(next(&mut held).await, (1, "late".to_owned()));
    })
    .await;
}
