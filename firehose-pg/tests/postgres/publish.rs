//! `firehose publish`, as a person or a script runs it.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use firehose_pg::DatabaseUrl;

use crate::harness::{PASSWORD, Proxy, Running, Shape, TestDatabase, cut, eventually, run};
use crate::recovery::{SLOW, sleeping};

/// What it wrote to standard output and standard error, where it ended as expected.
async fn publish(db: &TestDatabase, code: i32, arguments: &[&str], input: &[u8]) -> (Vec<String>, String) {
    let mut command = Running::start(db, &[&["publish"], arguments].concat());
    // One that refuses its arguments does not read.
    let _ = command.input.as_mut().unwrap().write_all(input).await;
    let (ended, out, err) = command.end(20).await;
    let err = err.join("\n");
    assert_eq!(ended, Some(code), "{arguments:?}: {out:?} {err}");
    (out, err)
}

fn sequences(out: &[String]) -> Vec<i64> {
    out.iter().map(|line| serde_json::from_str::<Value>(line).unwrap()["sequence"].as_i64().unwrap()).collect()
}

async fn kinds_of_rows(db: &TestDatabase) -> (i64, i64) {
    let wrong = "SELECT count(*) FROM firehose_messages WHERE data <> 'line ' || sequence";
    (db.number("SELECT count(*) FROM firehose_messages").await, db.number(wrong).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c68_ten_thousand_lines_are_stored_once_and_in_order_through_twenty_cuts() {
    run(Shape::Fresh, |db| async move {
        let (admin, holder) = (db.client().await, db.client().await);
        let mut command = Running::start(&db, &["publish", "orders", "--stdin", "--json"]);
        let mut stored = Vec::new();
        for chunk in 0..20 {
            // Once, a cut hits an append for certain: one that waits for someone's transaction.
            if chunk == 10 {
                let hold = "BEGIN; SELECT FROM firehose_channels WHERE name = 'orders' FOR UPDATE";
                holder.batch_execute(hold).await.unwrap();
            }
            let lines: String = (chunk * 500 + 1..=chunk * 500 + 500).map(|n| format!("line {n}\n")).collect();
            command.input.as_mut().unwrap().write_all(lines.as_bytes()).await.unwrap();
            if chunk == 10 {
                let waits = "SELECT FROM pg_stat_activity WHERE datname = current_database()
                             AND application_name = 'firehose' AND wait_event_type = 'Lock'";
                eventually("an append that waits", async || {
                    (!admin.query(waits, &[]).await.unwrap().is_empty()).then_some(())
                })
                .await;
            }
            eventually("a session to cut", async || (cut(&admin).await > 0).then_some(())).await;
            if chunk == 10 {
                holder.batch_execute("COMMIT").await.unwrap();
            }
            // The next cut is to find an append under way, not the pause after this one.
            for _ in 0..500 {
                stored.push(command.line().await);
            }
        }
        let (code, out, err) = command.end(20).await;
        assert_eq!((code, out), (Some(0), vec![]), "{err:?}");
        assert!(err.iter().any(|line| line.ends_with("trying again")), "{err:?}");
        assert_eq!(kinds_of_rows(&db).await, (10_000, 0), "line n is sequence n");
        assert_eq!(db.number("SELECT sequence FROM firehose_channels").await, 10_000);
        assert_eq!(sequences(&stored), (1..=10_000).collect::<Vec<i64>>());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_committed_without_an_answer_is_not_stored_again() {
    run(Shape::Fresh, |db| async move {
        db.execute(SLOW).await;
        let proxy = Proxy::to(db.cluster.port).await;
        let url = DatabaseUrl::new("127.0.0.1", proxy.port, &db.name).user("postgres").password(PASSWORD);
        let mut command =
            Running::start(&db, &["publish", "a", "--stdin", "--json", "--database-url", url.to_secret().expose()]);
        command.input.as_mut().unwrap().write_all(b"1\nslow\n3\n").await.unwrap();
        sleeping(&db).await;
        // The statement is at the server, and commits there; its answer never comes.
        proxy.freeze();
        let (code, out, err) = command.end(20).await;
        assert_eq!((code, sequences(&out)), (Some(0), vec![1, 2, 3]), "{err:?}");
        assert!(err.iter().any(|line| line.ends_with("trying again")), "{err:?}");
        assert_eq!(db.number("SELECT count(*) FROM firehose_messages").await, 3);
    })
    .await;
}

#[tokio::test]
async fn a_key_makes_a_repeat_harmless() {
    run(Shape::Adopted, |db| async move {
        let (first, _) = publish(&db, 0, &["a \"b\"", "x", "--key", "k", "--json"], b"").await;
        let (again, _) = publish(&db, 0, &["a \"b\"", "another", "--key", "k", "--json"], b"").await;
        assert_eq!(first, again);
        let id = db.number("SELECT id FROM firehose_messages").await;
        let channel_id = db.number("SELECT id FROM firehose_channels").await;
        let row = format!(r#"{{"id":{id},"channel_id":{channel_id},"sequence":1,"stream":"a \"b\""}}"#);
        assert_eq!(first, [row], "the keys in this order");

        let (first, _) = publish(&db, 0, &["b", "--stdin", "--key", "k", "--json"], b"1\n2\n").await;
        let (again, _) = publish(&db, 0, &["b", "--stdin", "--key", "k", "--json"], b"1\n2\n3\n").await;
        assert_eq!((&again[..2], sequences(&again)), (&first[..], vec![1, 2, 3]));
        publish(&db, 2, &["b", "x", "--key", ""], b"").await;
        publish(&db, 2, &["b", "--stdin", "--key", &"k".repeat(255)], b"").await;
    })
    .await;
}

#[tokio::test]
async fn each_line_is_a_message_as_it_is() {
    run(Shape::Fresh, |db| async move {
        let (out, _) = publish(&db, 0, &["a", "--stdin"], b"\n  b \r\n\xc3\xbc").await;
        assert_eq!(out, ["3 messages stored, the last one with sequence 3 and id 3"]);
        let all: String = db
            .client()
            .await
            .query_one("SELECT string_agg(data, '|' ORDER BY id) FROM firehose_messages", &[])
            .await
            .unwrap()
            .get(0);
        assert_eq!(all, "|  b \r|ü");
        assert_eq!(publish(&db, 0, &["a", "--stdin"], b"").await.0, ["0 messages stored"]);
        publish(&db, 0, &["a", ""], b"").await;
        publish(&db, 0, &["a", "-5"], b"").await;
        assert_eq!(db.number("SELECT count(*) FROM firehose_messages WHERE data IN ('', '-5')").await, 3);
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_stored_is_named_and_ends_it() {
    run(Shape::Fresh, |db| async move {
        for (bad, what) in [(&b"\xff"[..], "line 3: not UTF-8 at byte 0"), (b"a\0", "line 3: a NUL at byte 1")] {
            let input = [b"1\n2\n", bad, b"\n4\n"].concat();
            let (out, err) = publish(&db, 2, &["a", "--stdin", "--json"], &input).await;
            assert_eq!(out.len(), 2, "those before it");
            assert!(err.contains(what) && err.contains("2 messages stored"), "{err}");
        }
        let long = "x".repeat((1 << 20) + 1);
        let (_, err) = publish(&db, 2, &["a", "--stdin"], long.as_bytes()).await;
        assert!(err.contains("line 1: over 1048576 bytes"), "{err}");
        assert_eq!(db.number("SELECT count(*) FROM firehose_messages").await, 4);
        db.execute("CREATE ROLE blind LOGIN").await;
        let url = db.url().user("blind").to_secret();
        publish(&db, 2, &["a", "x", "--database-url", url.expose()], b"").await;
    })
    .await;
}

#[tokio::test]
async fn wrong_use_and_unreachable_are_told_apart() {
    run(Shape::Fresh, |db| async move {
        for wrong in [&["a"][..], &[], &["a", "x", "--stdin"], &["", "x"]] {
            publish(&db, 2, wrong, b"").await;
        }
        let secret = "postgres://u:hunter2@127.0.0.1:1/d";
        for arguments in
            [&["publish", "a", "x", "--database-url", secret][..], &["tail", "a", "--database-url", secret]]
        {
            let (code, out, err) = Running::start(&db, arguments).end(20).await;
            assert_eq!((code, out), (Some(3), vec![]), "{err:?}");
            assert!(!err.concat().contains("hunter2"), "{err:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn it_stores_on_without_a_reader_of_its_output() {
    run(Shape::Fresh, |db| async move {
        let mut command = Running::start(&db, &["publish", "a", "--stdin", "--json"]);
        let mut input = command.input.take().unwrap();
        input.write_all(b"line 1\n").await.unwrap();
        assert_eq!(command.json().await["sequence"], json!(1));
        drop(command.out.take());
        for n in 2..=3 {
            input.write_all(format!("line {n}\n").as_bytes()).await.unwrap();
        }
        drop(input);
        assert_eq!(command.end(10).await.0, Some(0));
        assert_eq!(kinds_of_rows(&db).await, (3, 0));
    })
    .await;
}
