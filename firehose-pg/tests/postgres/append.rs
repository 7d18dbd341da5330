//! Clauses 1 to 7 and 15 of `MessageStore`.

use std::collections::HashMap;

use firehose_core::{Blocked, Error, ErrorKind, HeadDetail, Message, NewMessage, Outcome, StreamName};

use crate::harness::{both_shapes, eventually, within};

pub(crate) fn new(stream: &str, data: &str) -> NewMessage {
    NewMessage::new(stream, data).unwrap()
}

pub(crate) fn keyed(stream: &str, data: &str, key: &str) -> NewMessage {
    new(stream, data).key(key).unwrap()
}

pub(crate) fn name(stream: &str) -> StreamName {
    StreamName::new(stream).unwrap()
}

/// (stream, sequence, data) of each.
fn told(results: &[Result<Message, Error>]) -> Vec<(&str, i64, &str)> {
    results.iter().map(|r| r.as_ref().unwrap()).map(|m| (m.stream.as_str(), m.sequence.0, &*m.data)).collect()
}

both_shapes! {
    async fn clause_1_and_2_entries_get_consecutive_sequences_in_their_order(db) {
        let store = db.backend().await.store;
        let entries = [new("a", "1"), new("b", "1"), new("a", "2"), new("c", ""), new("a", "3"), new("b", "2")];
        let results = store.append(&entries, Blocked::Skip).await;
        let expected = [("a", 1, "1"), ("b", 1, "1"), ("a", 2, "2"), ("c", 1, ""), ("a", 3, "3"), ("b", 2, "2")];
        assert_eq!(told(&results), expected);
        let results = store.append(&[new("b", "3"), new("a", "4")], Blocked::Wait).await;
        assert_eq!(told(&results), [("b", 3, "3"), ("a", 4, "4")]);
        assert!(store.append(&[], Blocked::Skip).await.is_empty());
        let counted = "SELECT messages_count::bigint FROM firehose_channels WHERE name = 'a'";
        assert_eq!(db.number(counted).await, 4, "the gem's counter cache is kept");
    }

    async fn clause_1_one_bad_entry_fails_alone_and_leaves_no_hole(db) {
        db.execute("ALTER TABLE firehose_messages ADD CONSTRAINT no_poison CHECK (data <> 'poison')").await;
        let store = db.backend().await.store;
        let mut entries: Vec<NewMessage> = (0..20).map(|n| new(["a", "b"][n % 2], &n.to_string())).collect();
        entries[7] = new("b", "poison");
        entries[12] = new("a", "poison");
        let results = store.append(&entries, Blocked::Skip).await;
        let mut next = HashMap::from([("a", 1), ("b", 1)]);
        for (at, result) in results.iter().enumerate() {
            if at == 7 || at == 12 {
                let e = result.as_ref().unwrap_err();
                assert_eq!((e.outcome(), e.is_retryable()), (Outcome::NotDone, false));
                assert!(!format!("{e} {e:?}").contains("Failing row"), "the server's detail quotes the row: {e:?}");
                continue;
            }
            let message = result.as_ref().unwrap();
            let next = next.get_mut(message.stream.as_str()).unwrap();
            assert_eq!(message.sequence.0, *next);
            *next += 1;
        }
    }

    async fn clause_3_what_is_ok_is_visible(db) {
        let store = db.backend().await.store;
        let results = store.append(&[new("a", "x")], Blocked::Skip).await;
        let message = results[0].as_ref().unwrap();
        let seen = store.get_many(&[message.id]).await.unwrap();
        assert_eq!(*seen[0], *message, "all fields, the time to the microsecond");
        let heads = store.heads(&[name("a")], HeadDetail::Cheap).await.unwrap();
        assert_eq!(heads[0].unwrap().sequence, message.sequence);
    }

    async fn clause_5_ids_rise_with_sequences(db) {
        let store = db.backend().await.store;
        for _ in 0..5 {
            let entries: Vec<NewMessage> = (0..300).map(|n| new(&format!("s{}", n % 7), "x")).collect();
            assert!(store.append(&entries, Blocked::Skip).await.iter().all(Result::is_ok));
        }
        let wrong = "SELECT count(*) FROM (SELECT id, lag(id) OVER (PARTITION BY channel_id ORDER BY sequence) AS before \
                     FROM firehose_messages) m WHERE before >= id";
        assert_eq!(db.number(wrong).await, 0);
    }

    async fn clause_6_a_known_key_gives_the_first_message(db) {
        let store = db.backend().await.store;
        let first = store.append(&[keyed("a", "first", "k")], Blocked::Skip).await.remove(0).unwrap();
        let entries = [
            new("a", "before"), keyed("a", "second", "k"), keyed("b", "other stream", "k"), keyed("a", "n", "new"),
            keyed("a", "repeat", "new"), new("a", "after"),
        ];
        let results = store.append(&entries, Blocked::Skip).await;
        let expected = [
            ("a", 2, "before"), ("a", 1, "first"), ("b", 1, "other stream"), ("a", 3, "n"), ("a", 3, "n"), ("a", 4, "after"),
        ];
        assert_eq!(told(&results), expected);
        assert_eq!(results[1].as_ref().unwrap(), &first, "the whole message, its id and its time");
        let again = store.append(&entries[1..2], Blocked::Wait).await;
        assert_eq!(again[0].as_ref().unwrap(), &first);
        assert_eq!(db.number("SELECT count(*) FROM firehose_messages").await, 5);
    }

    async fn clause_7_a_held_stream_is_blocked_and_the_others_are_not(db) {
        let store = db.backend().await.store;
        assert!(store.append(&[new("a", "1"), new("b", "1")], Blocked::Skip).await.iter().all(Result::is_ok));
        let holder = db.client().await;
        holder.batch_execute("BEGIN; SELECT firehose_append('a', 'held'), firehose_append('unborn', 'held')").await.unwrap();

        let entries = [new("a", "2"), new("b", "2"), new("unborn", "1"), new("new", "1")];
        let results = within(10, store.append(&entries, Blocked::Skip)).await;
        for at in [0, 2] {
            let e = results[at].as_ref().unwrap_err();
            assert_eq!((e.kind(), e.outcome()), (ErrorKind::StreamBlocked, Outcome::NotDone), "{e}");
            assert!(e.is_retryable());
        }
        assert_eq!(told(&results[1..2]), [("b", 2, "2")]);
        assert_eq!(told(&results[3..]), [("new", 1, "1")]);

        let waiting = [new("a", "waited"), new("unborn", "waited")];
        let append = store.append(&waiting, Blocked::Wait);
        let release = async {
            let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
            eventually("someone waits", || async { (db.number(waits).await > 0).then_some(()) }).await;
            holder.batch_execute("COMMIT").await.unwrap();
        };
        let (results, ()) = within(10, async { tokio::join!(append, release) }).await;
        assert_eq!(told(&results), [("a", 3, "waited"), ("unborn", 2, "waited")]);
    }

    async fn waiting_ends_with_a_typed_error_that_says_not_done(db) {
        let config = firehose_core::Config { statement_timeout: std::time::Duration::from_millis(600), ..db.config() };
        let store = firehose_pg::connect(&config).await.unwrap().store;
        assert!(store.append(&[new("a", "1")], Blocked::Skip).await[0].is_ok());
        let holder = db.client().await;
        holder.batch_execute("BEGIN; SELECT firehose_append('a', 'x'), firehose_append('unborn', 'x')").await.unwrap();
        for stream in ["a", "unborn"] {
            let results = within(10, store.append(&[new(stream, "2")], Blocked::Wait)).await;
            let e = results[0].as_ref().unwrap_err();
            assert_eq!((e.kind(), e.outcome()), (ErrorKind::StreamBlocked, Outcome::NotDone), "{e}");
        }
        holder.batch_execute("ROLLBACK").await.unwrap();
        let results = store.append(&[new("a", "2"), new("unborn", "1")], Blocked::Wait).await;
        assert_eq!(told(&results), [("a", 2, "2"), ("unborn", 1, "1")], "nothing of the others was stored");
    }

    async fn clause_15_an_append_that_is_dropped_is_stored_whole_or_not_at_all(db) {
        let store = db.backend().await.store;
        let entries: Vec<NewMessage> = (0..10).map(|n| new("a", &n.to_string())).collect();
        for polls in 1..=30 {
            // Polled so often, and dropped.
            let mut append = std::pin::pin!(store.append(&entries, Blocked::Skip));
            let mut left = polls;
            std::future::poll_fn(|cx| {
                left -= 1;
                if left == 0 || append.as_mut().poll(cx).is_ready() {
                    return std::task::Poll::Ready(());
                }
                std::task::Poll::Pending
            })
            .await;
        }
        let results = store.append(&entries, Blocked::Wait).await;
        let last = results[9].as_ref().unwrap().sequence.0;
        assert_eq!(last % 10, 0);
        assert_eq!(db.number("SELECT count(*) FROM firehose_messages").await, last);
    }

    async fn c27_what_fails_leaves_no_hole(db) {
        db.execute("ALTER TABLE firehose_messages ADD CONSTRAINT no_poison CHECK (data <> 'poison')").await;
        let store = db.backend().await.store;
        let client = db.client().await;
        assert!(store.append(&[new("a", "poison")], Blocked::Skip).await[0].is_err());
        client.batch_execute("BEGIN; SELECT firehose_append('a', 'x'); ROLLBACK").await.unwrap();
        assert!(client.batch_execute("SELECT firehose_append('a', 'poison')").await.is_err());
        let savepoint = "BEGIN; SAVEPOINT s; SELECT firehose_append('a', 'x'); ROLLBACK TO s; SELECT firehose_append('a', 'y'); COMMIT";
        client.batch_execute(savepoint).await.unwrap();
        let results = store.append(&[new("a", "z")], Blocked::Skip).await;
        assert_eq!(told(&results), [("a", 2, "z")]);
    }
}
