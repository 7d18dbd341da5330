//! The store through a PgBouncer.

use std::time::Duration;

use firehose_core::{Config, Delivery, ErrorKind, Firehose};

use crate::harness::{PgBouncer, Pooling, Shape, TestDatabase, keeps_statements, run, within};

fn through(db: &TestDatabase, pooler: &PgBouncer) -> Config {
    Config { database_url: Some(pooler.url().to_secret()), ..db.config() }
}

async fn a_client_of(pooler: &PgBouncer) -> tokio_postgres::Client {
    let options: tokio_postgres::Config = pooler.url().to_secret().expose().parse().unwrap();
    let (client, connection) = options.connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// It can be broadcast and heard with `config`.
async fn works(config: Config) {
    let backend = firehose_pg::connect(&config).await.unwrap();
    let firehose = Firehose::builder(backend).config(config).start().await.unwrap();
    let mut live = firehose.subscribe("a").await.unwrap();
    let all = (0..200).map(|n| firehose.broadcast("a", n.to_string()));
    within(20, futures_util::future::try_join_all(all)).await.unwrap();
    for n in 0..200 {
        match within(10, live.next()).await {
            Some(Delivery::Message(message)) => assert_eq!(*message.data, n.to_string()),
            other => panic!("{other:?}"),
        }
    }
    firehose.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn c24_a_pooler_that_keeps_no_prepared_statements_is_named_at_the_start() {
    run(Shape::Fresh, |db| async move {
        let pooler = PgBouncer::before(&db, Pooling::Transaction);
        let config = through(&db, &pooler);
        let direct = Config { listen_url: Some(db.url().to_secret()), ..config.clone() };
        let refused = async || {
            for config in [&config, &direct, &config] {
                let e = within(10, firehose_pg::connect(config)).await.unwrap_err();
                assert_eq!((e.kind(), e.is_retryable()), (ErrorKind::Pooler, false), "{e:?}");
                assert!(
                    e.to_string().contains("a pooler on the way to the server keeps no prepared statements"),
                    "{e}"
                );
                let hint = e.hint().unwrap();
                for way in ["database_url", "listen_url", "session mode", "PgBouncer 1.21", "max_prepared_statements"] {
                    assert!(hint.contains(way), "{hint}");
                }
            }
        };
        // Its first client, and one of several that it has connections for already.
        refused().await;
        let others = [a_client_of(&pooler).await, a_client_of(&pooler).await, a_client_of(&pooler).await];
        for other in &others {
            other.batch_execute("BEGIN").await.unwrap();
        }
        refused().await;
        for other in &others {
            other.batch_execute("COMMIT").await.unwrap();
        }
        refused().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c24_poolers_that_keep_what_a_session_has_are_as_good_as_none() {
    run(Shape::Fresh, |db| async move {
        // No start-up parameter that a PgBouncer as its makers ship it would refuse.
        let pooler = PgBouncer::before(&db, Pooling::Session);
        works(through(&db, &pooler)).await;
        if keeps_statements() {
            let pooler = PgBouncer::before(&db, Pooling::TransactionKeepingStatements);
            works(Config { listen_url: Some(db.url().to_secret()), ..through(&db, &pooler) }).await;
        }
    })
    .await;
}
