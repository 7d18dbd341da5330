//! A network that goes silent under the store's pool, and comes back for new connections only: sqlx' own pool would not
//! come back with it. Deadlines are long here, so that none of them helps.

use std::time::Duration;

use firehose_core::{Backend, Blocked, Config, HeadDetail, MessageStore};
use firehose_pg::DatabaseUrl;

use crate::append::{name, new};
use crate::harness::{PASSWORD, Proxy, Shape, TestDatabase, run, waited, within};

/// After the network has healed, the store works within this many seconds: the deadlines are six times that.
const BOUND: u64 = 10;

async fn through(db: &TestDatabase, tls: &str) -> (Proxy, Backend) {
    let proxy = Proxy::to(db.cluster.port).await;
    let url = DatabaseUrl::new("127.0.0.1", proxy.port, &db.name).user("postgres").password(PASSWORD);
    let config = Config {
        database_url: Some(url.parameter("sslmode", tls).to_secret()),
        statement_timeout: Duration::from_secs(60),
        pool_size: 2,
        ..db.config()
    };
    let backend = firehose_pg::connect(&config).await.unwrap();
    assert!(backend.store.append(&[new("a", "1")], Blocked::Skip).await[0].is_ok());
    // Both places are taken by connections that work.
    two_reads(&*backend.store).await;
    // sqlx pings what is given back, which nothing frees from a silence but a deadline: not what is meant here.
    db.execute("SELECT pg_sleep(0.3)").await;
    (proxy, backend)
}

async fn two_reads(store: &dyn MessageStore) {
    let streams = [name("a")];
    let (one, two) = tokio::join!(store.heads(&streams, HeadDetail::Cheap), store.heads(&streams, HeadDetail::Full));
    assert!(one.unwrap()[0].is_some() && two.unwrap()[0].is_some());
}

/// On a connection in the clear, and over TLS, where closing waits for the other end.
async fn on_both<F: Future<Output = ()>>(test: impl Fn(TestDatabase, &'static str) -> F) {
    let plain = run(Shape::Fresh, |db| test(db, "disable"));
    let encrypted = run(Shape::Fresh, |db| test(db, "require"));
    tokio::join!(plain, encrypted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_that_were_given_up_in_the_silence_take_no_place_from_later_ones() {
    on_both(|db, tls| async move {
        let (proxy, backend) = through(&db, tls).await;
        let store = &*backend.store;
        proxy.black_out();
        // Two queries are in flight on the two connections when their callers lose patience.
        let given_up = waited(Duration::from_millis(300), two_reads(store)).await;
        assert!(given_up.is_none(), "nothing comes through");
        proxy.heal();
        within(BOUND, two_reads(store)).await;
        within(BOUND, two_reads(store)).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_that_went_silent_are_replaced_when_they_are_wanted() {
    on_both(|db, tls| async move {
        let (proxy, backend) = through(&db, tls).await;
        // As long as a connection is trusted unseen, and a little.
        db.execute("SELECT pg_sleep(1.2)").await;
        proxy.freeze();
        within(BOUND, two_reads(&*backend.store)).await;
        within(BOUND, two_reads(&*backend.store)).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_in_flight_go_on_with_the_new_pool_once_the_engine_saw_the_loss() {
    on_both(|db, tls| async move {
        let (proxy, backend) = through(&db, tls).await;
        let store = &*backend.store;
        proxy.black_out();
        // Two on the connections, two that wait for a place.
        let reads = async { tokio::join!(two_reads(store), two_reads(store)) };
        let mut reads = std::pin::pin!(reads);
        assert!(waited(Duration::from_millis(300), &mut reads).await.is_none());
        proxy.heal();
        store.recover().await.unwrap();
        within(BOUND, reads).await;
    })
    .await;
}
