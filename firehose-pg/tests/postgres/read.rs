//! Clauses 8 to 12 of `MessageStore`, and the settings.

use firehose_core::{
    Anchor, Before, Blocked, CleanupThreshold, Cursor, Epoch, Head, HeadDetail, Layout, Message, MessageId,
    MessageStore, Page, PageLimit, Position, Retain, Scope, Sequence, Timestamp,
};

use crate::append::{name, new};
use crate::harness::both_shapes;

const ALL: PageLimit = PageLimit { rows: 1_000, bytes: 1 << 20 };

async fn fill(store: &dyn MessageStore, stream: &str, data: &[&str]) -> Vec<Message> {
    let entries: Vec<_> = data.iter().map(|data| new(stream, data)).collect();
    store.append(&entries, Blocked::Skip).await.into_iter().map(Result::unwrap).collect()
}

fn told(page: &Page) -> Vec<&str> {
    page.messages.iter().map(|m| &*m.data).collect()
}

fn at(message: &Message) -> Position {
    Position::Cursor(message.cursor())
}

/// Keeps the newest `n` of a stream.
async fn keep(store: &dyn MessageStore, stream: &str, n: u64) {
    let retain = Retain { messages: Some(n), ..Retain::default() };
    store.trim(Scope::Stream(name(stream)), retain, 1_000_000).await.unwrap();
}

both_shapes! {
    async fn clause_8_get_many_gives_what_is_visible(db) {
        let store = db.backend().await.store;
        let a = fill(&*store, "a", &["1", "2"]).await;
        let b = fill(&*store, "b", &["ü 日本"]).await;
        let holder = db.client().await;
        holder.batch_execute("BEGIN").await.unwrap();
        let unseen: i64 = holder.query_one("SELECT id FROM firehose_append('c', 'x')", &[]).await.unwrap().get(0);
        let ids = [b[0].id, MessageId(unseen), a[1].id, MessageId(987_654_321), MessageId(i64::MIN)];
        let mut found = store.get_many(&ids).await.unwrap();
        found.sort_by_key(|m| m.id);
        assert_eq!(found.iter().map(|m| Message::clone(m)).collect::<Vec<_>>(), [a[1].clone(), b[0].clone()]);
        assert!(store.get_many(&[]).await.unwrap().is_empty());
    }

    async fn clause_9_read_after_gives_a_page_a_request(db) {
        let store = db.backend().await.store;
        let a = fill(&*store, "a", &["1", "2", "3", "4"]).await;
        let b = fill(&*store, "b", &["5"]).await;
        let other_epoch = Cursor { epoch: Some(Epoch(987_654)), ..a[2].cursor() };
        let requests = [
            (name("a"), at(&a[1])),
            (name("nobody"), Position::Cursor(Cursor::BEGINNING)),
            (name("b"), Position::Id(a[3].id)),
            (name("a"), Position::Cursor(Cursor::at(None, Sequence(3)))),
            (name("a"), Position::Cursor(other_epoch)),
            (name("a"), Position::Id(a[0].id)),
            (name("a"), Position::Id(b[0].id)),
            (name("a"), Position::Id(MessageId(0))),
            (name("a"), Position::Cursor(Cursor::at(None, Sequence(99)))),
        ];
        let pages = store.read_after(&requests, ALL).await.unwrap();
        let expected: [&[&str]; 9] =
            [&["3", "4"], &[], &["5"], &["4"], &["1", "2", "3", "4"], &["2", "3", "4"], &[], &["1", "2", "3", "4"], &[]];
        assert_eq!(pages.iter().map(told).collect::<Vec<_>>(), expected);
        assert!(pages.iter().all(|page| !page.more));
        assert_eq!(*pages[0].messages[0], a[2], "all fields");

        keep(&*store, "a", 2).await;
        let beginning = [(name("a"), Position::Cursor(Cursor::BEGINNING)), (name("a"), Position::Id(a[0].id))];
        let pages = store.read_after(&beginning, ALL).await.unwrap();
        assert_eq!(pages.iter().map(told).collect::<Vec<_>>(), [["3", "4"], ["3", "4"]], "from the oldest retained on");
        assert!(store.read_after(&[], ALL).await.unwrap().is_empty());
    }

    async fn clause_9_a_page_is_bounded_in_rows_and_bytes(db) {
        let store = db.backend().await.store;
        fill(&*store, "a", &["aaaa", "bb", "cc", "dddd"]).await;
        let big = "x".repeat(100_000);
        fill(&*store, "big", &[&big, "y"]).await;
        let begin = Position::Cursor(Cursor::BEGINNING);
        let requests = [(name("a"), begin), (name("big"), begin)];
        for (limit, a, more, big_rows) in [
            (PageLimit { rows: 2, bytes: 1 << 20 }, vec!["aaaa", "bb"], true, 2),
            (PageLimit { rows: 4, bytes: 1 << 20 }, vec!["aaaa", "bb", "cc", "dddd"], false, 2),
            (PageLimit { rows: 9, bytes: 8 }, vec!["aaaa", "bb", "cc"], true, 1),
            (PageLimit { rows: 9, bytes: 12 }, vec!["aaaa", "bb", "cc", "dddd"], false, 1),
            (PageLimit { rows: 9, bytes: 1 }, vec!["aaaa"], true, 1),
            (PageLimit { rows: usize::MAX, bytes: usize::MAX }, vec!["aaaa", "bb", "cc", "dddd"], false, 2),
        ] {
            let pages = store.read_after(&requests, limit).await.unwrap();
            assert_eq!((told(&pages[0]), pages[0].more), (a, more), "{limit:?}");
            assert_eq!((pages[1].messages.len(), pages[1].more), (big_rows, big_rows < 2), "{limit:?}");
        }
    }

    async fn clause_10_read_before_gives_the_newest_before(db) {
        let store = db.backend().await.store;
        let a = fill(&*store, "a", &["1", "2", "3", "4", "5"]).await;
        fill(&*store, "b", &["other"]).await;
        let stream = name("a");
        let two = PageLimit { rows: 2, bytes: 1 << 20 };
        for (position, limit, expected, more) in [
            (Position::Cursor(Before::NOW.0), two, vec!["4", "5"], true),
            (at(&a[2]), two, vec!["1", "2"], false),
            (at(&a[3]), two, vec!["2", "3"], true),
            (at(&a[0]), two, vec![], false),
            (Position::Id(a[2].id), two, vec!["1", "2"], false),
            (Position::Id(MessageId(i64::MAX)), two, vec!["4", "5"], true),
            (Position::Id(MessageId(0)), two, vec![], false),
            (Position::Cursor(Before::NOW.0), PageLimit { rows: 9, bytes: 3 }, vec!["3", "4", "5"], true),
            (Position::Cursor(Cursor { epoch: Some(Epoch(987_654)), ..Before::NOW.0 }), two, vec![], false),
        ] {
            let page = store.read_before(&stream, position, limit).await.unwrap();
            assert_eq!((told(&page), page.more), (expected, more), "{position:?}");
        }
        let none = store.read_before(&name("nobody"), at(&a[0]), ALL).await.unwrap();
        assert_eq!(none, Page::default());
    }

    async fn clause_11_heads_come_from_one_snapshot_and_never_fall(db) {
        let store = db.backend().await.store;
        let a = fill(&*store, "a", &["1", "2", "3"]).await;
        let streams = [name("a"), name("nobody"), name("a")];
        let (epoch, sequence) = (a[0].channel_id, Sequence(3));
        let cheap = store.heads(&streams, HeadDetail::Cheap).await.unwrap();
        assert_eq!(cheap, [Some(Head::new(epoch, sequence)), None, Some(Head::new(epoch, sequence))]);

        let full = || async { store.heads(&streams[..1], HeadDetail::Full).await.unwrap()[0].unwrap() };
        let whole = Head::new(epoch, sequence).with_retained(Some(a[2].id), Some((Sequence(1), a[0].id)));
        assert_eq!(full().await, whole);
        keep(&*store, "a", 1).await;
        assert_eq!(full().await, Head::new(epoch, sequence).with_retained(Some(a[2].id), Some((Sequence(3), a[2].id))));
        keep(&*store, "a", 0).await;
        assert_eq!(full().await, Head::new(epoch, sequence), "trimmed to nothing, the head stays");
        assert_eq!(fill(&*store, "a", &["4"]).await[0].sequence, Sequence(4));

        let holder = db.client().await;
        holder.batch_execute("BEGIN; SELECT firehose_append('a', 'uncommitted')").await.unwrap();
        let heads = store.heads(&streams[..1], HeadDetail::Cheap).await.unwrap();
        assert_eq!(heads[0].unwrap().sequence, Sequence(4));
        assert!(store.heads(&[], HeadDetail::Full).await.unwrap().is_empty());
    }

    async fn clause_12_anchors_tell_what_became_of_a_cursors_row(db) {
        let store = db.backend().await.store;
        let a = fill(&*store, "a", &["1", "2", "3"]).await;
        fill(&*store, "b", &["1"]).await;
        keep(&*store, "a", 2).await;
        let epoch = a[0].channel_id;
        let cursor = a[1].cursor();
        let later = cursor.created_at.map(|t| Timestamp(t.0 + 1));
        let oldest = Some((Sequence(2), a[1].id));
        let expected = [
            (cursor, Anchor::Same),
            (Cursor::at(Some(epoch), Sequence(2)), Anchor::Same),
            (Cursor { created_at: None, ..cursor }, Anchor::Same),
            (Cursor { id: Some(MessageId(1_000_000)), ..cursor }, Anchor::Other),
            (Cursor { created_at: later, ..cursor }, Anchor::Other),
            (a[0].cursor(), Anchor::Trimmed { oldest }),
            (Cursor::at(Some(epoch), Sequence(9)), Anchor::Trimmed { oldest }),
            (Cursor::at(Some(Epoch(987_654)), Sequence(1)), Anchor::Gone),
            (Cursor::at(Some(Epoch(987_654)), Sequence(0)), Anchor::Gone),
            (Cursor::at(Some(epoch), Sequence(0)), Anchor::Same),
            (Cursor::BEGINNING, Anchor::Gone),
            (Cursor::at(None, Sequence(2)), Anchor::Gone),
        ];
        let cursors: Vec<Cursor> = expected.iter().map(|(cursor, _)| *cursor).collect();
        let anchors = store.anchors(&cursors).await.unwrap();
        for ((cursor, expected), anchor) in expected.iter().zip(&anchors) {
            assert_eq!(anchor, expected, "{cursor}");
        }
        keep(&*store, "a", 0).await;
        assert_eq!(store.anchors(&[cursor]).await.unwrap(), [Anchor::Trimmed { oldest: None }]);
        assert_eq!(store.anchors(&[Cursor::BEGINNING]).await.unwrap(), [Anchor::Gone]);
        assert!(store.anchors(&[]).await.unwrap().is_empty());
    }

    async fn settings_are_those_of_the_database(db) {
        let store = db.backend().await.store;
        let settings = store.settings().await.unwrap();
        assert_eq!((settings.layout, settings.buckets, settings.prefix.as_str()), (Layout::PerStream, 256, "firehose"));
        assert_eq!((settings.gem, settings.cleanup_threshold), (true, CleanupThreshold::Newest(100)));
        let orm = db.orm().await;
        for (key, value) in [("layout", "buckets"), ("buckets", "64"), ("prefix", "blue"), ("gem", "false"), ("cleanup_threshold", "0")] {
            firehose_migrations::set(&orm, None, key, value).await.unwrap();
        }
        let settings = store.settings().await.unwrap();
        assert_eq!((settings.layout, settings.buckets, settings.prefix.as_str()), (Layout::Buckets, 64, "blue"));
        assert_eq!((settings.gem, settings.cleanup_threshold), (false, CleanupThreshold::Newest(0)));
        firehose_migrations::set(&orm, None, "cleanup_threshold", "none").await.unwrap();
        assert_eq!(store.settings().await.unwrap().cleanup_threshold, CleanupThreshold::Everything);
    }
}
