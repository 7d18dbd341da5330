//! Retention by the engine, on a server: whoever wrote the stream, and without anybody waiting for it.

use std::time::Duration;

use firehose_core::{Backend, Config, Error, ErrorKind, Firehose, Retain, Scope, Sequence};

use crate::gem;
#[cfg(feature = "cli")]
use crate::harness::Running;
use crate::harness::{TestDatabase, both_shapes, eventually, within};

/// Trims often, and what is a moment old.
fn config(db: &TestDatabase) -> Config {
    Config { retention_interval: Duration::from_millis(50), retention_min_age: Duration::ZERO, ..db.config() }
}

/// An engine that only publishes.
async fn engine(db: &TestDatabase) -> Firehose {
    engine_with(db, config(db)).await
}

async fn engine_with(db: &TestDatabase, config: Config) -> Firehose {
    let backend = firehose_pg::connect(&config).await.unwrap();
    let backend = Backend { listener: None, ..backend };
    let builder = Firehose::builder(backend).config(config).on_error(|report| panic!("{}", report.error));
    within(10, builder.start()).await.unwrap_or_else(|e: Error| panic!("{e} ({})", db.name))
}

async fn keep(db: &TestDatabase, threshold: &str) {
    firehose_migrations::set(&db.orm().await, None, "cleanup_threshold", threshold).await.unwrap();
}

/// How many messages of a stream there are, and what its row says.
async fn left(db: &TestDatabase, stream: &str) -> (i64, i64, i64) {
    let sql = "SELECT (SELECT count(*) FROM firehose_messages m WHERE m.channel_id = ch.id),
        ch.messages_count::bigint, ch.sequence::bigint FROM firehose_channels ch WHERE name = $1";
    let row = db.client().await.query_one(sql, &[&stream]).await.unwrap();
    (row.get(0), row.get(1), row.get(2))
}

async fn eventually_left(db: &TestDatabase, stream: &str, expected: (i64, i64, i64)) {
    eventually(&format!("{stream} has {expected:?}"), || async { (left(db, stream).await == expected).then_some(()) })
        .await;
}

both_shapes! {
    async fn c51_each_stream_keeps_its_newest_and_the_size_levels_off(db) {
        let fill = "INSERT INTO firehose_channels (name, sequence, messages_count, created_at, updated_at)
              VALUES ('many', 100000, 100000, now(), now()), ('few', 3, 3, now(), now());
            INSERT INTO firehose_messages (channel_id, sequence, data, created_at)
              SELECT ch.id, n, 'x', clock_timestamp() AT TIME ZONE 'utc'
              FROM firehose_channels ch, generate_series(1, ch.sequence) n";
        db.execute(fill).await;
        let firehose = engine(&db).await;
        eventually_left(&db, "many", (100, 100, 100_000)).await;
        assert_eq!(left(&db, "few").await, (3, 3, 3));
        assert_eq!(firehose.metrics_snapshot().messages_trimmed, 99_900);
        for round in 1..=3 {
            for _ in 0..50 {
                firehose.broadcast("many", "x").await.unwrap();
            }
            eventually_left(&db, "many", (100, 100, 100_000 + 50 * round)).await;
        }
        firehose.shutdown(Duration::from_secs(5)).await;
    }

    async fn c69_streams_of_a_trigger_and_of_the_gem_are_trimmed(db) {
        db.execute(
            "CREATE TABLE orders (id int);
             CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
               'BEGIN PERFORM firehose_append(''trigger'', new.id::text); RETURN new; END';
             CREATE TRIGGER tell AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION tell();
             INSERT INTO orders SELECT generate_series(1, 150)",
        )
        .await;
        let mut client = db.client().await;
        for n in 0..110 {
            gem::broadcast(&mut client, "gem", &n.to_string()).await;
        }
        let firehose = engine(&db).await;
        eventually_left(&db, "trigger", (100, 100, 150)).await;
        eventually_left(&db, "gem", (100, 100, 110)).await;
        assert_eq!(gem::broadcast(&mut client, "gem", "goes on").await, 111);
        firehose.shutdown(Duration::from_secs(5)).await;
    }

    async fn publishers_never_wait_for_a_trim(db) {
        keep(&db, "5").await;
        let publisher = engine_with(&db, Config { retention_interval: Duration::from_secs(3_600), ..config(&db) }).await;
        for _ in 0..20 {
            publisher.broadcast("s", "x").await.unwrap();
        }
        // A trim stands in the middle of its work, for as long as somebody holds a message that is to go.
        let holder = db.client().await;
        holder.batch_execute("BEGIN; SELECT FROM firehose_messages WHERE sequence = 3 FOR UPDATE").await.unwrap();
        let trimmer = engine(&db).await;
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND wait_event_type = 'Lock' AND query LIKE '%due AS MATERIALIZED%'";
        eventually("a trim that waits", || async { (db.number(waits).await == 1).then_some(()) }).await;
        for n in 21..=40 {
            let stored = within(10, publisher.broadcast("s", "while it stands still")).await.unwrap();
            assert_eq!(stored.sequence, Sequence(n));
            within(10, publisher.broadcast("other", "x")).await.unwrap();
        }
        db.execute("SELECT firehose_append('s', 'from SQL')").await;
        assert_eq!(db.number(waits).await, 1, "it stood still all the time");
        holder.batch_execute("COMMIT").await.unwrap();
        eventually_left(&db, "s", (5, 5, 41)).await;
        eventually_left(&db, "other", (5, 5, 20)).await;
        trimmer.shutdown(Duration::from_secs(5)).await;
        publisher.shutdown(Duration::from_secs(5)).await;
    }

    async fn sequences_never_fall_and_counts_are_right_beside_publishers(db) {
        keep(&db, "0").await;
        let (one, other) = (engine(&db).await, engine(&db).await);
        let first = one.broadcast("s", "1").await.unwrap();
        for n in 2..=300 {
            let publisher = if n % 3 == 0 { &one } else { &other };
            let stored = within(10, publisher.broadcast("s", n.to_string())).await.unwrap();
            assert_eq!((stored.sequence, stored.channel_id), (Sequence(n), first.channel_id));
        }
        eventually_left(&db, "s", (0, 0, 300)).await;
        let trimmed = one.metrics_snapshot().messages_trimmed + other.metrics_snapshot().messages_trimmed;
        assert_eq!(trimmed, 300, "each by one of them");
        assert_eq!(db.number("SELECT count(*) FROM firehose_channels").await, 1);
        let head = one.head("s").await.unwrap().unwrap();
        assert_eq!((head.sequence, head.epoch, head.oldest), (Sequence(300), first.channel_id, None));
        assert_eq!(one.broadcast("s", "301").await.unwrap().sequence, Sequence(301));
        one.shutdown(Duration::from_secs(5)).await;
        other.shutdown(Duration::from_secs(5)).await;
    }

    async fn a_trim_leaves_no_lock_behind_when_its_process_stands_still(db) {
        keep(&db, "5").await;
        let config = Config { statement_timeout: Duration::from_millis(700), ..config(&db) };
        let backend = firehose_pg::connect(&config).await.unwrap();
        db.execute("SELECT firehose_append('s', 'x') FROM generate_series(1, 20)").await;
        let holder = db.client().await;
        holder.batch_execute("BEGIN; SELECT FROM firehose_messages WHERE sequence = 3 FOR UPDATE").await.unwrap();
        let retain = Retain { messages: Some(5), ..Default::default() };
        let trim = backend.store.trim(Scope::All, retain, 100);
        let e = within(10, trim).await.unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::Timeout(_) | ErrorKind::Backend), "{e:?}");
        let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
        eventually("the end of the trim", || async { (db.number(locks).await == 0).then_some(()) }).await;
        holder.batch_execute("COMMIT").await.unwrap();
        let trimmed = within(10, backend.store.trim(Scope::All, retain, 100)).await.unwrap();
        assert_eq!(trimmed.messages, 15);
    }

    async fn an_operators_word_counts_without_a_restart(db) {
        keep(&db, "none").await;
        let firehose = engine(&db).await;
        db.execute("SELECT firehose_append('s', 'x') FROM generate_series(1, 240)").await;
        keep(&db, "230").await;
        eventually_left(&db, "s", (230, 230, 240)).await;
        keep(&db, "7").await;
        eventually_left(&db, "s", (7, 7, 240)).await;
        firehose.shutdown(Duration::from_secs(5)).await;
    }
}

#[cfg(feature = "cli")]
both_shapes! {
    async fn the_commands_publish_and_tail_never_trim(db) {
        keep(&db, "5").await;
        db.execute("SELECT firehose_append('s', 'x') FROM generate_series(1, 50)").await;
        db.execute("UPDATE firehose_messages SET created_at = created_at - interval '1 day'").await;
        let often = [("FIREHOSE_RETENTION_INTERVAL", "1ms"), ("FIREHOSE_RETENTION_MIN_AGE", "0s")];
        let mut tail = Running::start_with(&db, &["tail", "s", "--from", "earliest"], &often);
        assert!(tail.line().await.ends_with("seq:1 x"));
        let publish = Running::start_with(&db, &["publish", "s", "last"], &often);
        assert_eq!(publish.end(20).await.0, Some(0));
        while !tail.line().await.ends_with("seq:51 last") {}
        tail.terminate().await;
        assert_eq!(left(&db, "s").await, (51, 51, 51));
        // The same keys make an engine trim.
        let firehose = engine(&db).await;
        eventually_left(&db, "s", (5, 5, 51)).await;
        firehose.shutdown(Duration::from_secs(5)).await;
    }
}
