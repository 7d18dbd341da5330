//! A server that refuses to LISTEN.

use std::time::Duration;

use firehose_core::{Config, ErrorKind, Firehose};
use firehose_pg::DatabaseUrl;

use crate::engine::{next, quick};
use crate::harness::{PASSWORD, Proxy, Shape, run, within};
use crate::leak::Watched;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c22_a_listen_that_the_server_refuses_is_a_typed_error_and_leaves_nothing() {
    run(Shape::Fresh, |db| async move {
        let proxy = Proxy::to(db.cluster.port).await;
        let url = DatabaseUrl::new("127.0.0.1", proxy.port, &db.name).user("postgres").password(PASSWORD);
        let listen_url = url.parameter("sslmode", "disable").to_secret();
        let config = Config { listen_url: Some(listen_url), ..quick(&db) };
        let (backend, watched) = Watched::wrap(firehose_pg::connect(&config).await.unwrap());
        let firehose = Firehose::builder(backend).config(config).start().await.unwrap();
        let mut before = firehose.subscribe("before").await.unwrap();

        // From now on the word on the wire is one that the server does not know.
        proxy.misspell_listen(true);
        for _ in 0..3 {
            let e = within(10, firehose.subscribe("refused")).await.unwrap_err();
            assert_eq!((e.kind(), e.operation()), (ErrorKind::Backend, "listen"), "{e:?}");
            assert!(e.to_string().contains("SQLSTATE 42601"), "{e}");
            let names: Vec<_> = firehose.diagnostics().streams.into_iter().map(|s| s.stream.to_string()).collect();
            assert_eq!(names, ["before"], "no registration is left");
            assert_eq!(watched.registered().await.len(), 2, "and the probe's");
        }
        // The session lives, and others are not drawn in.
        firehose.broadcast("before", "1").await.unwrap();
        assert_eq!(next(&mut before).await, (1, "1".to_owned()));
        assert_eq!((firehose.metrics_snapshot().reconnects_total, watched.sessions()), (0, 1));

        proxy.misspell_listen(false);
        let mut after = firehose.subscribe("refused").await.unwrap();
        firehose.broadcast("refused", "2").await.unwrap();
        assert_eq!(next(&mut after).await, (1, "2".to_owned()));
        assert_eq!(watched.registered().await.len(), 3);
        firehose.shutdown(Duration::from_secs(5)).await;
    })
    .await;
}
