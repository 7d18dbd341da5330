//! Faults and assertions of the gem that only a server can show, by their right outcome. The numbers are those of
//! `docs/gem.md`.

use std::time::Duration;

use firehose_core::{Config, Firehose, Start};
use futures_util::future::join_all;
use tokio_postgres::error::SqlState;

use crate::engine::{engine, next, quick};
use crate::gem::broadcast;
use crate::harness::{TestDatabase, both_shapes, eventually, within};

/// Only what is announced or replayed arrives: no sweep comes. Nobody pings, so that LISTEN is the last its session said.
async fn without_sweep(db: &TestDatabase) -> Firehose {
    let config = Config {
        sweep_interval: Duration::from_secs(3_600),
        watchdog_enabled: false,
        application_name: "listening".to_owned(),
        ..quick(db)
    };
    let backend = firehose_pg::connect(&config).await.unwrap();
    Firehose::builder(backend).config(config).start().await.unwrap()
}

/// Ends the session that listens, once there is one.
async fn kill_listener(db: &TestDatabase) {
    let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = 'listening' AND query LIKE 'LISTEN%'";
    eventually("a session that listens", || async { (db.number(sql).await > 0).then_some(()) }).await;
}

both_shapes! {
    async fn gem_f01_f04_what_terminated_connections_missed_is_replayed_although_the_server_was_there(db) {
        let (listening, publishing) = (without_sweep(&db).await, engine(&db).await);
        let mut live = listening.subscribe("a").await.unwrap();
        // Nothing was delivered since it began, and the server takes the next connection at once.
        for round in 0..10 {
            kill_listener(&db).await;
            for n in 1..=50 {
                publishing.broadcast("a", (round * 50 + n).to_string()).await.unwrap();
            }
            for n in 1..=50 {
                assert_eq!(next(&mut live).await, (round * 50 + n, (round * 50 + n).to_string()));
            }
            let again = || async { (listening.metrics_snapshot().reconnects_total > round as u64).then_some(()) };
            eventually("a session that follows", again).await;
        }
        assert_eq!(listening.metrics_snapshot().gaps_reported, 0);
    }

    async fn gem_f02_f03_thousands_that_nobody_announced_are_replayed_whole_and_once(db) {
        let firehose = without_sweep(&db).await;
        let mut live = firehose.subscribe("a").await.unwrap();
        for (round, messages) in [(0, 5_000), (1, 1_200)] {
            let first = round * 5_000;
            // This function stores and tells nobody.
            db.execute(&format!("SELECT count(*) FROM generate_series({}, {}) n, LATERAL firehose_append('a', n::text)", first + 1, first + messages)).await;
            kill_listener(&db).await;
            for n in first + 1..=first + messages {
                assert_eq!(next(&mut live).await, (n, n.to_string()));
            }
            let counted = || async {
                (firehose.metrics_snapshot().replay_messages_delivered == (first + messages) as u64).then_some(())
            };
            eventually("each is read once", counted).await;
        }
    }

    async fn gem_f23_first_broadcasts_to_new_streams_all_succeed_whoever_they_are_from(db) {
        let (one, other) = (engine(&db).await, engine(&db).await);
        let (mut gem, sql) = (db.client().await, db.client().await);
        for round in 0..20 {
            let stream = format!("new {round}");
            let ours = join_all([&one, &other, &one, &other].map(|f| f.broadcast(stream.as_str(), "ours")));
            let theirs = broadcast(&mut gem, &stream, "the gem's");
            let function = async { sql.query_one("SELECT sequence FROM firehose_append($1, 'SQL')", &[&stream]).await };
            let (ours, theirs, function) = within(10, async { tokio::join!(ours, theirs, function) }).await;
            let mut sequences: Vec<i64> = ours.into_iter().map(|stored| stored.unwrap().sequence.0).collect();
            sequences.extend([theirs, function.unwrap().get(0)]);
            sequences.sort_unstable();
            assert_eq!(sequences, [1, 2, 3, 4, 5, 6]);
        }
    }

    async fn gem_a013_a023_the_tables_refuse_and_fill_in_what_the_gem_relies_on(db) {
        let client = db.client().await;
        let channel = "INSERT INTO firehose_channels (name, created_at, updated_at) VALUES ($1, now(), now())
                       RETURNING id, name, sequence::bigint, messages_count::bigint";
        let row = client.query_one(channel, &[&"a"]).await.unwrap();
        let a: i64 = row.get(0);
        assert_eq!((row.get::<_, &str>(1), row.get::<_, i64>(2), row.get::<_, i64>(3)), ("a", 0, 0));
        let twice = client.query_one(channel, &[&"a"]).await.unwrap_err();
        assert_eq!(twice.code(), Some(&SqlState::UNIQUE_VIOLATION), "a second channel of the name");
        let b: i64 = client.query_one(channel, &[&"b"]).await.unwrap().get(0);

        let message = "INSERT INTO firehose_messages (channel_id, sequence, data) VALUES ($1, $2::text::bigint, $3)
                       RETURNING id, created_at IS NOT NULL";
        let mut last = 0;
        for (channel, sequence, data) in [(a, "1", "x"), (a, "2", ""), (b, "1", "🌍 世界"), (b, "2", r#"{"k":[1,"é"]}"#)] {
            let row = client.query_one(message, &[&channel, &sequence, &Some(data)]).await.unwrap();
            let id: i64 = row.get(0);
            assert!(id > last && row.get::<_, bool>(1), "ids rise, and the time is filled in");
            last = id;
            let read = "SELECT data, channel_id, sequence::bigint FROM firehose_messages WHERE id = $1";
            let row = client.query_one(read, &[&id]).await.unwrap();
            assert_eq!((row.get::<_, &str>(0), row.get::<_, i64>(1)), (data, channel));
            assert_eq!(row.get::<_, i64>(2).to_string(), sequence);
        }
        let again = client.query_one(message, &[&a, &"2", &Some("x")]).await.unwrap_err();
        assert_eq!(again.code(), Some(&SqlState::UNIQUE_VIOLATION), "a sequence twice in a channel");
        let null = client.query_one(message, &[&a, &"3", &None::<&str>]).await.unwrap_err();
        assert_eq!(null.code(), Some(&SqlState::NOT_NULL_VIOLATION));
        let orphan = client.query_one(message, &[&(a + b + 1_000), &"1", &Some("x")]).await.unwrap_err();
        assert_eq!(orphan.code(), Some(&SqlState::FOREIGN_KEY_VIOLATION));
        client.execute("DELETE FROM firehose_channels WHERE id = $1", &[&a]).await.unwrap();
        assert_eq!(db.number("SELECT count(*) FROM firehose_messages").await, 2, "a channel's messages go with it");
    }

    async fn gem_a018_a_message_has_the_time_of_its_storing_to_the_microsecond(db) {
        let (firehose, client) = (engine(&db).await, db.client().await);
        let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        let before: i64 = client.query_one(now, &[]).await.unwrap().get(0);
        let message = firehose.broadcast("a", "x").await.unwrap();
        let after: i64 = client.query_one(now, &[]).await.unwrap().get(0);
        let at = message.created_at.unwrap().0;
        assert!((before..=after).contains(&at), "{before} {at} {after}");
        let mut from = firehose.subscribe_from("a", Start::Earliest).await.unwrap();
        let read = within(10, from.next()).await.unwrap().message().unwrap().created_at;
        assert_eq!(read, message.created_at, "and it is the same for who reads it later");
    }
}

#[cfg(feature = "cli")]
mod killed {
    use firehose_core::Delivery;
    use serde_json::Value;
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::harness::{Running, Shape, run};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn gem_f10_f15_a_publisher_killed_at_any_instant_loses_nothing_that_it_acknowledged() {
        run(Shape::Fresh, |db| async move {
            let firehose = engine(&db).await;
            let mut live = firehose.subscribe("a").await.unwrap();
            let mut due = 1;
            for round in 0..6 {
                let mut publisher = Running::start(&db, &["publish", "a", "--stdin", "--json"]);
                let mut input = publisher.input.take().unwrap();
                let feeding = tokio::spawn(async move {
                    // Far more than it gets to store; the pipe breaks with it.
                    let lines: String = (0..200_000).map(|n| format!("{n}\n")).collect();
                    drop(input.write_all(lines.as_bytes()).await);
                });
                let mut acknowledged = 0;
                for _ in 0..=round * 40 {
                    acknowledged = publisher.json().await["sequence"].as_i64().unwrap();
                }
                publisher.signal("KILL");
                // What it had written before it died was acknowledged too.
                let (code, out, _) = publisher.end(20).await;
                assert_eq!(code, None, "a signal ended it");
                let complete = out.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
                acknowledged =
                    complete.filter_map(|place| place["sequence"].as_i64()).next_back().unwrap_or(acknowledged);
                feeding.await.unwrap();
                // An append that was at the server when it died may commit yet.
                let ended = || async {
                    let ours = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                                AND application_name = 'firehose' AND query LIKE '%INSERT%' AND state = 'active'";
                    (db.number(ours).await == 0).then_some(())
                };
                eventually("its appends have ended", ended).await;
                let stored = db.number("SELECT coalesce(max(sequence), 0) FROM firehose_messages").await;
                assert!(stored >= acknowledged, "{acknowledged} were acknowledged, {stored} are stored");
                assert_eq!(db.number("SELECT count(*) FROM firehose_messages").await, stored, "and there is no hole");
                // All that is stored is delivered, announced or not: what nobody announced, the sweep finds.
                while due <= stored {
                    match within(10, live.next()).await {
                        Some(Delivery::Message(message)) => assert_eq!(message.sequence.0, due),
                        other => panic!("{other:?}"),
                    }
                    due += 1;
                }
            }
        })
        .await;
    }
}
