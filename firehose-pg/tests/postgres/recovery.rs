//! Connections that die or go silent, plans that go stale, roles with strange defaults.

use std::time::Duration;

use firehose_core::{
    Backend, Blocked, Config, ErrorKind, HeadDetail, MessageId, NewMessage, Outcome, PageLimit, Position, Retain,
    Scope, Sequence, Step,
};
use firehose_pg::DatabaseUrl;

use crate::append::{keyed, name, new};
use crate::harness::{PASSWORD, Proxy, Shape, TestDatabase, both_shapes, eventually, run, within};
use crate::transport::{channel, heard, notification, session};

/// Makes rows with the data `slow` take a while, so that something can happen under them.
pub(crate) const SLOW: &str = "
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.7); RETURN NEW; END $$;
CREATE TRIGGER slow BEFORE INSERT ON firehose_messages FOR EACH ROW WHEN (NEW.data = 'slow') EXECUTE FUNCTION slow();";

const SLEEPING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";

pub(crate) async fn sleeping(db: &TestDatabase) {
    eventually("the append is under way", || async { (db.number(SLEEPING).await > 0).then_some(()) }).await;
}

async fn through(db: &TestDatabase, proxy: &Proxy, tls: &str) -> Backend {
    let url = DatabaseUrl::new("127.0.0.1", proxy.port, &db.name).user("postgres").password(PASSWORD);
    let config = Config {
        database_url: Some(url.parameter("sslmode", tls).to_secret()),
        statement_timeout: Duration::from_millis(1_000),
        pool_size: 2,
        ..db.config()
    };
    firehose_pg::connect(&config).await.unwrap()
}

both_shapes! {
    async fn a_backend_killed_in_the_middle_is_an_unknown_outcome(db) {
        db.execute(SLOW).await;
        let store = db.backend().await.store;
        assert!(store.append(&[new("a", "1")], Blocked::Skip).await[0].is_ok());
        let entries = [keyed("a", "slow", "k"), new("b", "x")];
        let append = store.append(&entries, Blocked::Skip);
        let kill = async {
            sleeping(&db).await;
            db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()").await;
        };
        let (results, ()) = within(10, async { tokio::join!(append, kill) }).await;
        for result in &results {
            let e = result.as_ref().unwrap_err();
            assert_eq!((e.kind(), e.outcome()), (ErrorKind::OutcomeUnknown, Outcome::Unknown), "57P01 proves nothing");
            assert!(!e.is_retryable());
        }
        // The next one opens another connection, and a key makes the repeat safe.
        let first = store.append(&entries, Blocked::Wait).await;
        let again = store.append(&entries[..1], Blocked::Wait).await;
        assert_eq!(first[0].as_ref().unwrap().sequence, Sequence(2));
        assert_eq!(first[0].as_ref().unwrap(), again[0].as_ref().unwrap());
    }

    async fn idle_connections_that_were_killed_are_not_used(db) {
        let store = db.backend().await.store;
        for round in 1..=3 {
            let results = store.append(&[new("a", "x")], Blocked::Skip).await;
            assert_eq!(results[0].as_ref().unwrap().sequence, Sequence(round));
            store.heads(&[name("a")], HeadDetail::Cheap).await.unwrap();
            db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()").await;
            let gone = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'firehose'";
            eventually("they are gone", || async { (db.number(gone).await == 0).then_some(()) }).await;
            // The pool notices with its first statement only, and repeats what only reads.
            store.heads(&[name("a")], HeadDetail::Cheap).await.unwrap();
        }
    }

    async fn c66_columns_widened_under_live_statements(db) {
        let store = db.backend().await.store;
        let orm = db.orm().await;
        let use_it = |n: usize| {
            let store = store.clone();
            async move {
                let stored = store.append(&[keyed("a", "x", &format!("k{n}")), new(&format!("s{}", n % 9), "y")], Blocked::Wait).await;
                let id = stored[0].as_ref().map_err(|e| e.replicate())?.id;
                stored[1].as_ref().map_err(|e| e.replicate())?;
                store.append(&[keyed("a", "x", &format!("k{n}"))], Blocked::Wait).await.remove(0)?;
                store.heads(&[name("a")], HeadDetail::Full).await?;
                store.read_after(&[(name("a"), Position::Id(id))], PageLimit { rows: 10, bytes: 1_000 }).await?;
                store.read_before(&name("a"), Position::Id(MessageId(1)), PageLimit { rows: 10, bytes: 1_000 }).await?;
                store.get_many(&[id]).await?;
                store.anchors(&[stored[0].as_ref().map_err(|e| e.replicate())?.cursor()]).await?;
                store.trim(Scope::All, Retain { messages: Some(50), ..Retain::default() }, 10).await?;
                Ok::<(), firehose_core::Error>(())
            }
        };
        let mut running = tokio::task::JoinSet::new();
        for n in 0..50 {
            running.spawn(use_it(n));
        }
        while let Some(done) = running.join_next().await {
            done.unwrap().unwrap();
        }
        for n in 50..100 {
            running.spawn(use_it(n));
        }
        firehose_migrations::widen(&orm, None).await.unwrap();
        // A result's own type changes: the server refuses the plans of the statements that give it.
        db.execute("ALTER TABLE firehose_messages ALTER COLUMN data TYPE varchar").await;
        for n in 100..150 {
            running.spawn(use_it(n));
        }
        while let Some(done) = within(30, running.join_next()).await {
            done.unwrap().unwrap();
        }
    }

    async fn c67_a_role_with_strange_defaults(db) {
        let role = format!("strange_{}", db.name);
        db.execute(&format!(
            "CREATE ROLE {role} LOGIN SUPERUSER; CREATE SCHEMA odd;
             ALTER ROLE {role} SET default_transaction_isolation = 'serializable';
             ALTER ROLE {role} SET default_transaction_read_only = on;
             ALTER ROLE {role} SET search_path = 'odd';
             ALTER ROLE {role} SET timezone = 'Asia/Kolkata'"
        ))
        .await;
        let url = db.url().user(&role).to_secret();
        let config = Config { database_url: Some(url), schema: Some("public".to_owned()), ..db.config() };
        let backend = firehose_pg::connect(&config).await.unwrap();
        let store = &backend.store;
        let mut running = tokio::task::JoinSet::new();
        for n in 0..40 {
            let store = store.clone();
            running.spawn(async move {
                let entries: Vec<NewMessage> = (0..10).map(|m| new(["a", "b", "c"][(n + m) % 3], "x")).collect();
                let results = store.append(&entries, Blocked::Wait).await;
                results.iter().for_each(|r| assert!(r.is_ok(), "{r:?}"));
                store.heads(&[name("a")], HeadDetail::Full).await.unwrap();
            });
        }
        while let Some(done) = within(20, running.join_next()).await {
            done.unwrap();
        }
        assert_eq!(db.number("SELECT count(*) FROM firehose_messages").await, 400);
        let off = "SELECT count(*) FROM firehose_messages WHERE abs(extract(epoch FROM created_at - (now() AT TIME ZONE 'utc'))) > 60";
        assert_eq!(db.number(off).await, 0, "times are UTC");
        let young = Retain { messages: Some(0), min_age: Duration::from_secs(60), ..Retain::default() };
        assert_eq!(store.trim(Scope::All, young, 1_000).await.unwrap().messages, 0, "and are compared as such");
        store.trim(Scope::All, Retain { messages: Some(1), ..Retain::default() }, 1_000).await.unwrap();
        assert!(store.delete_stream(&name("a")).await.unwrap().is_some());
        let client = db.client().await;
        let utc = format!("SET ROLE {role}; SET search_path = odd; SET timezone = 'Asia/Kolkata'; SELECT public.firehose_broadcast('b', 'from SQL')");
        client.batch_execute(&utc).await.unwrap();
        assert_eq!(db.number(off).await, 0);
        let mut session = session(&backend).await;
        session.control.listen(&[channel("a")]).await.unwrap();
        backend.notifier.notify(&[notification("a", "x")]).await.unwrap();
        assert_eq!(heard(&mut session).await.1, "x");
        drop((session, client, backend));
        db.execute(&format!("ALTER ROLE {role} NOLOGIN")).await;
    }
}

/// What sqlx' own pool never gets over: every later acquire would time out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pool_recovers_from_a_network_that_went_silent() {
    let plain = run(Shape::Fresh, |db| recovers(db, "disable"));
    let encrypted = run(Shape::Fresh, |db| recovers(db, "require"));
    tokio::join!(plain, encrypted);
}

async fn recovers(db: TestDatabase, tls: &str) {
    db.execute(SLOW).await;
    let proxy = Proxy::to(db.cluster.port).await;
    let backend = through(&db, &proxy, tls).await;
    let store = &backend.store;
    assert!(store.append(&[new("a", "1")], Blocked::Skip).await[0].is_ok());
    for told in [true, false] {
        store.heads(&[name("a")], HeadDetail::Cheap).await.unwrap();
        assert!(store.append(&[new("a", "x")], Blocked::Skip).await[0].is_ok());
        proxy.freeze();
        let streams = [name("a")];
        let reads =
            async { tokio::join!(store.heads(&streams, HeadDetail::Cheap), store.heads(&streams, HeadDetail::Cheap)) };
        if told {
            // The engine noticed: nobody waits for a deadline.
            store.recover().await.unwrap();
            let (one, two) = within(10, reads).await;
            one.unwrap();
            two.unwrap();
        } else {
            let (one, two) = within(10, reads).await;
            // Of the two places one may be free, and then opens a connection that works.
            let failed = [one, two].into_iter().filter_map(Result::err).collect::<Vec<_>>();
            assert!(!failed.is_empty());
            for e in failed {
                assert!(matches!(e.kind(), ErrorKind::Timeout(Step::Heads)), "{e:?}");
                assert!(e.is_retryable());
            }
            store.heads(&streams, HeadDetail::Cheap).await.unwrap();
        }
    }
    // A write in flight: nobody knows; and the next one finds another connection.
    let results = within(10, store.append(&[new("a", "x")], Blocked::Skip)).await;
    let e = results[0].as_ref().unwrap_err();
    assert_eq!((e.kind(), e.outcome()), (ErrorKind::Timeout(Step::Append), Outcome::Unknown));
    assert!(within(10, store.append(&[new("a", "x")], Blocked::Skip)).await[0].is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c35_a_key_finds_what_was_committed_without_an_answer() {
    run(Shape::Fresh, |db| async move {
        db.execute(SLOW).await;
        let proxy = Proxy::to(db.cluster.port).await;
        let backend = through(&db, &proxy, "prefer").await;
        let entry = [keyed("a", "slow", "k")];
        assert!(backend.store.append(&[new("a", "1")], Blocked::Skip).await[0].is_ok());
        let cut = async {
            sleeping(&db).await;
            // The statement is at the server, and commits there; its answer never comes.
            proxy.freeze();
        };
        let (results, ()) = within(10, async { tokio::join!(backend.store.append(&entry, Blocked::Skip), cut) }).await;
        assert_eq!(results[0].as_ref().unwrap_err().outcome(), Outcome::Unknown);
        let stored = "SELECT count(*) FROM firehose_messages WHERE key = 'k'";
        eventually("it is committed", || async { (db.number(stored).await == 1).then_some(()) }).await;
        let again = within(10, backend.store.append(&entry, Blocked::Wait)).await;
        assert_eq!(again[0].as_ref().unwrap().sequence, Sequence(2));
        assert_eq!(db.number("SELECT count(*) FROM firehose_messages").await, 2, "one row");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c09_a_listening_session_that_went_silent_answers_no_ping() {
    run(Shape::Fresh, |db| async move {
        let proxy = Proxy::to(db.cluster.port).await;
        let backend = through(&db, &proxy, "prefer").await;
        let old = session(&backend).await;
        old.control.listen(&[channel("a")]).await.unwrap();
        proxy.freeze();
        let e = within(10, old.control.ping()).await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Timeout(Step::Listen));
        let e = within(10, old.control.listen(&[channel("b")])).await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Timeout(Step::Listen));
        // c11: a notification in flight does not hang either, and the next one goes out.
        let sent = within(10, backend.notifier.notify(&[notification("a", "x")])).await;
        let mut next = session(&backend).await;
        next.control.listen(&[channel("a")]).await.unwrap();
        drop(sent);
        within(10, backend.notifier.notify(&[notification("a", "y")])).await.unwrap();
        assert_eq!(heard(&mut next).await.1, "y");
    })
    .await;
}
