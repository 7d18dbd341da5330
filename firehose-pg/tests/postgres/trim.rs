//! Clauses 13 and 14 of `MessageStore`.

use std::time::Duration;

use firehose_core::{Blocked, Cursor, HeadDetail, MessageStore, PageLimit, Position, Retain, Scope, Sequence, Trimmed};

use crate::append::{name, new};
use crate::harness::{TestDatabase, both_shapes, within};

const MINUTE: Duration = Duration::from_secs(60);

async fn fill(store: &dyn MessageStore, stream: &str, n: usize) {
    let entries: Vec<_> = (1..=n).map(|n| new(stream, &n.to_string())).collect();
    assert!(store.append(&entries, Blocked::Wait).await.iter().all(Result::is_ok));
}

/// The sequences that are retained.
async fn left(store: &dyn MessageStore, stream: &str) -> Vec<i64> {
    let request = [(name(stream), Position::Cursor(Cursor::BEGINNING))];
    let page = store.read_after(&request, PageLimit { rows: 100_000, bytes: 1 << 30 }).await.unwrap().remove(0);
    page.messages.iter().map(|m| m.sequence.0).collect()
}

async fn age(db: &TestDatabase, which: &str, minutes: u32) {
    db.execute(&format!(
        "UPDATE firehose_messages SET created_at = created_at - interval '{minutes} min' WHERE {which}"
    ))
    .await;
}

fn stream(stream: &str) -> Scope {
    Scope::Stream(name(stream))
}

fn newest(messages: u64) -> Retain {
    Retain { messages: Some(messages), ..Retain::default() }
}

both_shapes! {
    async fn clause_13_trim_removes_a_prefix_by_number(db) {
        let store = db.backend().await.store;
        fill(&*store, "a", 10).await;
        fill(&*store, "b", 3).await;
        assert_eq!(store.trim(stream("a"), newest(10), 100).await.unwrap(), Trimmed { messages: 0, more: false });
        assert_eq!(store.trim(stream("a"), newest(6), 3).await.unwrap(), Trimmed { messages: 3, more: true });
        assert_eq!(left(&*store, "a").await, [4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(store.trim(stream("a"), newest(6), 3).await.unwrap(), Trimmed { messages: 1, more: false });
        assert_eq!(left(&*store, "a").await, [5, 6, 7, 8, 9, 10]);
        assert_eq!(left(&*store, "b").await, [1, 2, 3]);
        assert_eq!(db.number("SELECT messages_count::bigint FROM firehose_channels WHERE name = 'a'").await, 6);
        let exactly = store.trim(stream("a"), newest(0), 6).await.unwrap();
        assert_eq!(exactly, Trimmed { messages: 6, more: false }, "the budget was enough");
        assert_eq!(left(&*store, "a").await, Vec::<i64>::new());
        let head = store.heads(&[name("a")], HeadDetail::Cheap).await.unwrap()[0].unwrap();
        assert_eq!(head.sequence, Sequence(10), "c33: the next number continues");
        assert_eq!(store.trim(stream("nobody"), newest(0), 100).await.unwrap(), Trimmed::default());
        assert_eq!(store.trim(stream("b"), Retain::default(), 100).await.unwrap(), Trimmed::default(), "no limit, nothing goes");
    }

    async fn clause_13_ages_decide_too_and_what_goes_is_a_prefix(db) {
        let store = db.backend().await.store;
        fill(&*store, "a", 10).await;
        age(&db, "sequence <= 6", 60).await;
        // One in the middle is young again: a clock that went back.
        age(&db, "sequence = 4", 0).await;
        db.execute("UPDATE firehose_messages SET created_at = clock_timestamp() AT TIME ZONE 'utc' WHERE sequence = 4").await;
        let old = Retain { max_age: Some(30 * MINUTE), ..Retain::default() };
        assert_eq!(store.trim(stream("a"), old, 100).await.unwrap(), Trimmed { messages: 3, more: false });
        assert_eq!(left(&*store, "a").await, [4, 5, 6, 7, 8, 9, 10], "never a hole");

        age(&db, "sequence = 4", 60).await;
        let young_stay = Retain { messages: Some(0), max_age: Some(MINUTE), min_age: 2 * MINUTE };
        assert_eq!(store.trim(stream("a"), young_stay, 100).await.unwrap().messages, 3);
        assert_eq!(left(&*store, "a").await, [7, 8, 9, 10], "what is younger than the least age stays, whatever the others say");
        let forever = Retain { max_age: Some(Duration::MAX), min_age: Duration::MAX, messages: Some(1) };
        assert_eq!(store.trim(stream("a"), forever, 100).await.unwrap().messages, 0);
    }

    async fn clause_13_trim_never_waits_for_a_publisher(db) {
        let store = db.backend().await.store;
        fill(&*store, "a", 10).await;
        let publisher = db.client().await;
        publisher.batch_execute("BEGIN; SELECT firehose_append('a', 'held')").await.unwrap();
        let trimmed = within(10, store.trim(stream("a"), newest(4), 100)).await.unwrap();
        assert_eq!(trimmed.messages, 6);
        assert_eq!(left(&*store, "a").await, [7, 8, 9, 10]);
        publisher.batch_execute("COMMIT").await.unwrap();
        assert_eq!(within(10, store.trim(Scope::All, newest(4), 100)).await.unwrap().messages, 1);
        assert_eq!(db.number("SELECT messages_count::bigint FROM firehose_channels WHERE name = 'a'").await, 4, "mended");
    }

    async fn clause_13_all_streams_are_trimmed_by_one_at_a_time(db) {
        let store = db.backend().await.store;
        for n in 0..150 {
            fill(&*store, &format!("s{n}"), if n % 3 == 0 { 5 } else { 1 }).await;
        }
        let first = store.trim(Scope::All, newest(2), 100).await.unwrap();
        assert_eq!(first, Trimmed { messages: 100, more: true });
        // Someone else is at it.
        let other = db.client().await;
        other.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('firehose trim \"public\" all', 0))").await.unwrap();
        assert_eq!(within(10, store.trim(Scope::All, newest(2), 100)).await.unwrap(), Trimmed::default());
        other.batch_execute("COMMIT").await.unwrap();
        assert_eq!(store.trim(Scope::All, newest(2), 50).await.unwrap(), Trimmed { messages: 50, more: false });
        assert_eq!(left(&*store, "s0").await, [4, 5]);
        assert_eq!(left(&*store, "s1").await, [1]);
    }

    async fn clause_14_a_deleted_stream_begins_anew(db) {
        let store = db.backend().await.store;
        fill(&*store, "a", 3).await;
        let old = store.heads(&[name("a")], HeadDetail::Cheap).await.unwrap()[0].unwrap().epoch;
        assert_eq!(store.delete_stream(&name("a")).await.unwrap(), Some(old));
        assert_eq!(store.delete_stream(&name("a")).await.unwrap(), None);
        assert_eq!(store.heads(&[name("a")], HeadDetail::Cheap).await.unwrap(), [None]);
        assert_eq!(db.number("SELECT count(*) FROM firehose_messages").await, 0);
        fill(&*store, "a", 1).await;
        let head = store.heads(&[name("a")], HeadDetail::Cheap).await.unwrap()[0].unwrap();
        assert_ne!(head.epoch, old);
        assert_eq!(head.sequence, Sequence(1));
    }
}
