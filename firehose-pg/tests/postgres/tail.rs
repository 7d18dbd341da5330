//! `firehose tail`, as a person or a script runs it.

use serde_json::json;

use crate::harness::{Running, Shape, TestDatabase, both_shapes, cut, eventually, run};

async fn broadcast(db: &TestDatabase, stream: &str, data: &str) {
    db.execute(&format!("SELECT firehose_broadcast('{stream}', '{data}')")).await;
}

both_shapes! {
    async fn it_prints_what_publish_stores(db) {
        let mut tail = Running::tail(&db, &["a", "b", "a", "--json"]).await;
        for (stream, data) in [("a", "1"), ("b", "zwei\n\"2\""), ("c", "not heard"), ("a", "3")] {
            let (code, out, err) = Running::start(&db, &["publish", stream, data, "--json"]).end(20).await;
            assert_eq!((code, out.len(), err.len()), (Some(0), 1, 0));
            if stream == "c" {
                continue;
            }
            let stored: serde_json::Value = serde_json::from_str(&out[0]).unwrap();
            let line = tail.line().await;
            let mut heard: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert!(heard["at"].as_i64().unwrap() > 1_700_000_000_000_000, "{line}");
            assert!(heard["cursor"].as_str().unwrap().starts_with('f'), "{line}");
            assert_eq!(heard["data"], json!(data));
            let keys = ["\"id\":", ",\"channel_id\":", ",\"sequence\":", ",\"stream\":", ",\"data\":", ",\"at\":", ",\"cursor\":"];
            let places: Vec<_> = keys.iter().map(|key| line.find(key).expect(key)).collect();
            assert!(places.is_sorted(), "the payload's order: {line}");
            for key in ["data", "at", "cursor"] {
                heard.as_object_mut().unwrap().remove(key);
            }
            assert_eq!(heard, stored);
        }
        tail.terminate().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_lives_through_lost_connections_with_nothing_lost_or_doubled() {
    run(Shape::Fresh, |db| async move {
        let admin = db.client().await;
        let mut tail = Running::tail(&db, &["a", "b", "--json"]).await;
        for round in 0..20 {
            for n in 1..=5 {
                let data = round * 5 + n;
                admin.batch_execute(&format!("SELECT firehose_broadcast('a', '{data}')")).await.unwrap();
                admin.batch_execute(&format!("SELECT firehose_broadcast('b', '{data}')")).await.unwrap();
                if n == 3 {
                    eventually("a session to cut", async || (cut(&admin).await > 0).then_some(())).await;
                }
            }
        }
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for _ in 0..200 {
            let line = tail.json().await;
            let of = if line["stream"] == json!("a") { &mut a } else { &mut b };
            of.push((line["sequence"].as_i64().unwrap(), line["data"].as_str().unwrap().parse::<i64>().unwrap()));
        }
        let all: Vec<_> = (1..=100).map(|n| (n, n)).collect();
        assert_eq!((&a, &b), (&all, &all));
        // Nothing else was on its way: this is the next line.
        broadcast(&db, "b", "101").await;
        assert_eq!(tail.json().await["sequence"], json!(101));
        tail.terminate().await;
    })
    .await;
}

#[tokio::test]
async fn it_goes_on_where_a_token_says() {
    run(Shape::Fresh, |db| async move {
        broadcast(&db, "a", "before").await;
        let mut tail = Running::tail(&db, &["a", "b", "--json"]).await;
        broadcast(&db, "a", "1").await;
        let of_line = tail.json().await["cursor"].as_str().unwrap().to_owned();
        broadcast(&db, "b", "2").await;
        assert_eq!(tail.json().await["data"], json!("2"));
        let at_end = tail.terminate().await;
        broadcast(&db, "a", "3").await;
        broadcast(&db, "c", "not in the token").await;

        let mut tail = Running::tail(&db, &["a", "b", "c", "--json", "--from", &at_end]).await;
        assert_eq!(tail.json().await["data"], json!("3"));
        broadcast(&db, "c", "4").await;
        assert_eq!(tail.json().await["data"], json!("4"));
        tail.terminate().await;

        let mut tail = Running::tail(&db, &["b", "--json", "--from", &of_line]).await;
        let second = tail.json().await;
        assert_eq!(second["data"], json!("2"));
        tail.terminate().await;

        let id = (second["id"].as_i64().unwrap() - 1).to_string();
        for from in ["earliest", &id] {
            let mut tail = Running::tail(&db, &["b", "--json", "--from", from]).await;
            assert_eq!(tail.json().await["data"], json!("2"), "{from}");
            tail.terminate().await;
        }
        let quiet = Running::tail(&db, &["a", "--json"]).await.terminate().await;
        broadcast(&db, "a", "5").await;
        let mut tail = Running::tail(&db, &["a", "--json", "--from", &quiet]).await;
        assert_eq!(tail.json().await["data"], json!("5"), "a token of a tail that printed nothing");
        tail.terminate().await;
    })
    .await;
}

#[tokio::test]
async fn a_flood_is_printed_whole() {
    run(Shape::Fresh, |db| async move {
        db.execute("SELECT firehose_append('a', 'x') FROM generate_series(1, 1000)").await;
        let mut tail = Running::tail(&db, &["a", "--json", "--from", "earliest"]).await;
        for sequence in 1..=1000 {
            assert_eq!(tail.json().await["sequence"], json!(sequence));
        }
        tail.terminate().await;
    })
    .await;
}

#[tokio::test]
async fn gaps_and_resets_are_told() {
    run(Shape::Fresh, |db| async move {
        for n in 1..=4 {
            broadcast(&db, "a", &n.to_string()).await;
        }
        let mut tail = Running::tail(&db, &["a", "--json", "--from", "earliest"]).await;
        let token = tail.json().await["cursor"].as_str().unwrap().to_owned();
        drop(tail);
        db.execute("DELETE FROM firehose_messages WHERE sequence IN (2, 3)").await;
        let mut tail = Running::tail(&db, &["a", "--json", "--from", &token]).await;
        assert_eq!(tail.line().await, r#"{"type":"gap","stream":"a","from":2,"to":3,"reason":"trimmed"}"#);
        assert_eq!(tail.json().await["sequence"], json!(4));
        tail.terminate().await;

        db.execute("DELETE FROM firehose_channels").await;
        broadcast(&db, "a", "of another life").await;
        let epoch = db.number("SELECT id FROM firehose_channels").await;
        let mut tail = Running::tail(&db, &["a", "--json", "--from", &token]).await;
        let reset = format!(r#"{{"type":"reset","stream":"a","epoch":{epoch},"head":1,"reason":"recreated"}}"#);
        assert_eq!(tail.line().await, reset);
        assert_eq!(tail.json().await["data"], json!("of another life"));
        tail.terminate().await;

        let mut plain = Running::tail(&db, &["a", "--from", &token]).await;
        assert_eq!(plain.line().await, format!("-- reset: a epoch:{epoch} head:1 (recreated)"));
        let line = plain.line().await;
        assert!(line.starts_with('[') && line.ends_with(" a seq:1 of another life"), "{line}");
        plain.terminate().await;
    })
    .await;
}

#[tokio::test]
async fn a_signal_ends_it_well_even_where_nobody_reads() {
    run(Shape::Fresh, |db| async move {
        let tail = Running::tail(&db, &["a"]).await;
        tail.signal("INT");
        let (code, out, err) = tail.end(5).await;
        assert_eq!((code, out), (Some(0), vec![]), "{err:?}");

        // More than a pipe holds: the first line only shows that the rest is on its way.
        let mut stalled = Running::tail(&db, &["a", "--json"]).await;
        db.execute("SELECT firehose_append('a', repeat('x', 100000)) FROM generate_series(1, 50)").await;
        broadcast(&db, "a", "and now").await;
        stalled.line().await;
        stalled.signal("TERM");
        assert_eq!(stalled.exit_code(5).await, Some(0));
        let token = stalled.said("--from ").await;
        let mut tail = Running::tail(&db, &["a", "--json", "--from", &token]).await;
        while tail.json().await["sequence"] != json!(51) {}
        tail.terminate().await;
    })
    .await;
}

#[tokio::test]
async fn a_reader_that_goes_away_is_no_error() {
    run(Shape::Fresh, |db| async move {
        let mut tail = Running::tail(&db, &["a", "--json"]).await;
        drop(tail.out.take());
        broadcast(&db, "a", "x").await;
        assert_eq!(tail.end(10).await.0, Some(0));
    })
    .await;
}

#[tokio::test]
async fn wrong_use_is_an_error() {
    run(Shape::Fresh, |db| async move {
        let wrong = [
            &["tail", "a", "--from", "fnonsense"][..],
            &["tail", "a", "--from", "yesterday"],
            &["tail", "a", "b", "--from", "7"],
            &["tail"],
        ];
        for arguments in wrong {
            let (code, out, err) = Running::start(&db, arguments).end(10).await;
            assert_eq!((code, out), (Some(2), vec![]), "{arguments:?}: {err:?}");
        }
    })
    .await;
}
