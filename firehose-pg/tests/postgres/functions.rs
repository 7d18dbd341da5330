//! The SQL functions: publishing from any language, in the caller's transaction.

use firehose_core::{Blocked, Epoch, Layout, Message, MessageId, Naming, Sequence, Timestamp, wire};

use crate::append::{keyed, name, new};
use crate::harness::{Shape, both_shapes, eventually, run, within};
use crate::transport::{channel, heard, notification, session};

both_shapes! {
    async fn append_stores_counts_and_gives_the_row(db) {
        let (client, store) = (db.client().await, db.backend().await.store);
        assert!(store.append(&[keyed("a", "ours", "k")], Blocked::Skip).await[0].is_ok());
        let call = "SELECT id, channel_id, sequence FROM firehose_append($1, $2, $3)";
        let row = client.query_one(call, &[&"a", &"theirs", &None::<&str>]).await.unwrap();
        assert_eq!(row.get::<_, i64>(2), 2);
        let read = store.get_many(&[MessageId(row.get(0))]).await.unwrap();
        assert_eq!((&*read[0].data, read[0].channel_id.0), ("theirs", row.get::<_, i64>(1)));
        let known = client.query_one(call, &[&"a", &"x", &Some("k")]).await.unwrap();
        assert_eq!(known.get::<_, i64>(2), 1, "a known key gives the row it gave before");
        let named = "SELECT sequence FROM firehose_append(data => 'x', stream => 'a', key => 'l')";
        assert_eq!(db.number(named).await, 3);
        let ours = store.append(&[keyed("a", "y", "l")], Blocked::Skip).await;
        assert_eq!(ours[0].as_ref().unwrap().sequence, Sequence(3), "keys are shared");
        assert_eq!(db.number("SELECT messages_count::bigint FROM firehose_channels WHERE name = 'a'").await, 3);
        for bad in ["'', 'x'", "NULL, 'x'", "repeat('x', 1025), 'x'", "'a', NULL", "'a', 'x', ''", "'a', 'x', repeat('k', 256)"] {
            assert!(client.batch_execute(&format!("SELECT firehose_append({bad})")).await.is_err(), "{bad}");
        }
        db.number("SELECT sequence FROM firehose_append(repeat('é', 512), '', repeat('k', 255))").await;
    }

    async fn a_key_that_is_used_at_the_same_time_waits_and_finds_it(db) {
        let (one, two) = (db.client().await, db.client().await);
        one.batch_execute("BEGIN; SELECT firehose_append('a', '1', 'k')").await.unwrap();
        let waiting = two.query_one("SELECT sequence, id FROM firehose_append('a', '2', 'k')", &[]);
        let commit = async {
            let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
            eventually("it waits", || async { (db.number(waits).await > 0).then_some(()) }).await;
            one.batch_execute("COMMIT").await.unwrap();
        };
        let (row, ()) = within(10, async { tokio::join!(waiting, commit) }).await;
        assert_eq!(row.unwrap().get::<_, i64>(0), 1);
        assert_eq!(db.number("SELECT count(*) FROM firehose_messages").await, 1);
    }

    async fn append_can_be_prepared_and_broadcast_cannot(db) {
        let client = db.client().await;
        // Names of prepared transactions are the whole server's.
        let name = &db.name;
        let prepare = format!("BEGIN; SELECT firehose_append('a', 'x'); PREPARE TRANSACTION '{name}'");
        client.batch_execute(&prepare).await.unwrap();
        let store = db.backend().await.store;
        let held = store.append(&[new("a", "y")], Blocked::Skip).await;
        assert!(held[0].is_err(), "the stream is held until the second phase");
        client.batch_execute(&format!("COMMIT PREPARED '{name}'")).await.unwrap();
        assert_eq!(store.append(&[new("a", "y")], Blocked::Skip).await[0].as_ref().unwrap().sequence, Sequence(2));
        let notified = format!("BEGIN; SELECT firehose_broadcast('a', 'x'); PREPARE TRANSACTION '{name}'");
        assert!(client.batch_execute(&notified).await.is_err());
        client.batch_execute("ROLLBACK").await.unwrap();
    }

    async fn broadcast_notifies_with_the_commit_and_append_never(db) {
        let (backend, client) = (db.backend().await, db.client().await);
        let mut session = session(&backend).await;
        let stream = Naming::default().stream(&name("a"));
        session.control.listen(&[stream.clone(), channel("sentinel")]).await.unwrap();
        client.batch_execute("SELECT firehose_append('a', 'silent')").await.unwrap();
        client.batch_execute("BEGIN; SELECT firehose_broadcast('a', 'rolled back'); ROLLBACK").await.unwrap();
        client.batch_execute("SELECT firehose_broadcast('a', 'heard', 'k')").await.unwrap();
        client.batch_execute("SELECT firehose_broadcast('a', 'heard', 'k')").await.unwrap();
        client.batch_execute("BEGIN; SET LOCAL firehose.announce = off; SELECT firehose_broadcast('a', 'off'); COMMIT").await.unwrap();
        backend.notifier.notify(&[notification("sentinel", "")]).await.unwrap();
        let (on, payload) = heard(&mut session).await;
        assert_eq!(on, stream.as_str());
        assert_eq!(wire::decode(&payload).unwrap().sequence, Sequence(2));
        assert_eq!(heard(&mut session).await.0, "sentinel", "nothing else was announced");
        assert_eq!(db.number("SELECT sequence::bigint FROM firehose_channels WHERE name = 'a'").await, 3);
    }

    async fn a_repeatable_read_caller_gets_his_own_error_and_no_hole(db) {
        let (client, store) = (db.client().await, db.backend().await.store);
        assert!(store.append(&[new("a", "1")], Blocked::Skip).await[0].is_ok());
        client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM firehose_channels").await.unwrap();
        assert!(store.append(&[new("a", "2")], Blocked::Skip).await[0].is_ok());
        let e = client.batch_execute("SELECT firehose_append('a', '3')").await.unwrap_err();
        assert_eq!(e.code().unwrap().code(), "40001");
        client.batch_execute("ROLLBACK").await.unwrap();
        client.batch_execute("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT firehose_append('a', '3'); COMMIT").await.unwrap();
        assert_eq!(db.number("SELECT sequence::bigint FROM firehose_channels WHERE name = 'a'").await, 3);
    }
}

/// What the function announced, and what we would have.
#[tokio::test]
async fn its_payload_is_ours_byte_for_byte() {
    run(Shape::Fresh, |db| async move {
        let (backend, client) = (db.backend().await, db.client().await);
        let mut session = session(&backend).await;
        let long = "s".repeat(1_024);
        let controls: String = (1u8..=0x7f).map(char::from).collect();
        let mut cases = vec![
            ("plain", "x".to_owned()),
            ("a \"quoted\" \\ name/\n", "<b class=\"x\">a & 'b' / \\ </b>".to_owned()),
            ("日本語 🌍", format!("{controls}\u{80}\u{2028}\u{2029}\u{feff}\u{fffe}é世🌍")),
            ("empty", String::new()),
            (long.as_str(), "y".repeat(7_000)),
        ];
        // Around the limit, with ASCII, wide characters, and text that doubles when it is escaped.
        for size in 7_880..7_930 {
            cases.push(("edge", "z".repeat(size)));
        }
        cases.extend([("edge", "\"".repeat(3_950)), ("edge", "é".repeat(3_955)), ("edge", "🌍".repeat(1_980))]);
        let mut inline = [0, 0];
        for (stream, data) in &cases {
            let identifier = Naming::default().stream(&name(stream));
            session.control.listen(std::slice::from_ref(&identifier)).await.unwrap();
            let call = "SELECT b.id, b.channel_id, b.sequence, m.created_at FROM firehose_broadcast($1, $2) b,
                        LATERAL (SELECT created_at FROM firehose_messages WHERE id = b.id) m";
            let row = match client.query_opt(call, &[stream, data]).await.unwrap() {
                Some(row) => row,
                // A volatile function's row is not seen by the statement that calls it.
                None => client
                    .query_one("SELECT id, channel_id, sequence::bigint, created_at FROM firehose_messages ORDER BY id DESC LIMIT 1", &[])
                    .await
                    .unwrap(),
            };
            let created_at = Timestamp::from_system_time(row.get(3));
            let (id, epoch, sequence) = (MessageId(row.get(0)), Epoch(row.get(1)), Sequence(row.get(2)));
            let message = Message::new(id, epoch, sequence, name(stream), data.as_str().into()).with_created_at(created_at);
            let (on, payload) = heard(&mut session).await;
            assert_eq!(on, identifier.as_str());
            assert_eq!(payload, &*wire::encode(&message, 7_999), "{stream}");
            inline[usize::from(wire::decode(&payload).unwrap().data.is_some())] += 1;
        }
        assert!(inline[0] > 5 && inline[1] > 5, "both forms were there: {inline:?}");
    })
    .await;
}

#[tokio::test]
async fn its_channel_is_ours_in_each_layout() {
    run(Shape::Fresh, |db| async move {
        let (backend, client, orm) = (db.backend().await, db.client().await, db.orm().await);
        for (layout, word, buckets, prefix) in [
            (Layout::Buckets, "buckets", 256, "firehose"),
            (Layout::Buckets, "buckets", 7, "blue"),
            (Layout::PerStream, "per_stream", 7, "blue"),
        ] {
            for (key, value) in [("layout", word), ("buckets", &buckets.to_string()), ("prefix", prefix)] {
                firehose_migrations::set(&orm, None, key, value).await.unwrap();
            }
            let naming = Naming::new(prefix, layout, buckets);
            let mut session = session(&backend).await;
            for n in 0..40 {
                let stream = format!("stream {n} ü");
                let expected = naming.stream(&name(&stream));
                session.control.listen(std::slice::from_ref(&expected)).await.unwrap();
                client.execute("SELECT firehose_broadcast($1, 'x')", &[&stream]).await.unwrap();
                assert_eq!(heard(&mut session).await.0, expected.as_str(), "{layout:?} {stream}");
            }
        }
    })
    .await;
}
