//! The contract of `MessageStore`, a test a clause.

use std::pin::pin;
use std::time::Duration;

use firehose_core::{
    Anchor, Blocked, Capabilities, CleanupThreshold, Cursor, Epoch, ErrorKind, Head, HeadDetail, Layout, MessageId,
    MessageStore, NewMessage, PageLimit, Position, Retain, Scope, Sequence, Settings, Timestamp, Trimmed,
};
use firehose_testkit::{ManualClock, Testkit};

use crate::support::*;

/// Polls a future once.
async fn poll_once<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    let mut future = Some(future);
    std::future::poll_fn(move |context| {
        let polled = future.take().map(|f| f.poll(context));
        std::task::Poll::Ready(match polled {
            Some(std::task::Poll::Ready(value)) => Some(value),
            _ => None,
        })
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn store_01_one_result_an_entry_and_a_bad_one_fails_alone() {
    let testkit = Testkit::new(1);
    let mut bad = entry("a", "x");
    bad.data = "x\0".into();
    let results =
        store(&testkit).append(&[entry("a", "1"), bad, entry("b", "2"), entry("a", "3")], Blocked::Skip).await;
    assert_eq!(kinds(&results), [None, Some(ErrorKind::InvalidData), None, None]);
    let stored: Vec<_> = results.into_iter().flatten().map(|m| (m.stream.to_string(), m.data.to_string())).collect();
    assert_eq!(stored, [("a".into(), "1".into()), ("b".into(), "2".into()), ("a".into(), "3".into())]);
    assert!(store(&testkit).append(&[], Blocked::Wait).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn store_02_sequences_begin_at_one_without_a_hole() {
    let testkit = Testkit::new(1);
    let mut bad = entry("a", "x");
    bad.data = "\0".into();
    let entries = [entry("a", "1"), bad, entry("b", "1"), entry("a", "2"), entry("a", "3")];
    assert_eq!(store(&testkit).append(&entries, Blocked::Skip).await.len(), 5);
    append(&*store(&testkit), "a", &["4"]).await;
    assert_eq!(sequences(&testkit.database().messages("a")), [1, 2, 3, 4]);
    assert_eq!(sequences(&testkit.database().messages("b")), [1]);
}

#[tokio::test(start_paused = true)]
async fn store_03_what_is_ok_is_visible_to_every_later_read() {
    let testkit = Testkit::new(1);
    testkit.clock().advance(Duration::from_micros(1_500_001)).await;
    let message = append(&*store(&testkit), "a", &["x"]).await.remove(0);
    assert_eq!(message.created_at, Some(Timestamp(ManualClock::WALL_AT_ORIGIN.0 + 1_500_001)));
    let other = store(&testkit);
    assert_eq!(*other.get_many(&[message.id]).await.unwrap()[0], message);
    assert_eq!(*after(&*other, "a", Cursor::BEGINNING, ALL).await.messages[0], message);
    assert_eq!(other.capabilities(), Capabilities::MEMORY);
}

#[tokio::test(start_paused = true)]
async fn store_04_a_visible_sequence_implies_those_before_it() {
    let testkit = Testkit::new(1);
    let store = store(&testkit);
    append(&*store, "a", &["1"]).await;
    let mut foreign = testkit.database().begin();
    foreign.append("a", "2").await.unwrap();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { append_waiting(&*store, "a", "3").await }
    });
    testkit.clock().idle().await;
    assert_eq!(sequences(&testkit.database().messages("a")), [1], "neither 2 nor 3 is visible");
    foreign.commit().unwrap();
    assert_eq!(waiting.await.unwrap(), 3);
    assert_eq!(sequences(&testkit.database().messages("a")), [1, 2, 3]);
}

async fn append_waiting(store: &dyn MessageStore, stream: &str, data: &str) -> i64 {
    store.append(&[entry(stream, data)], Blocked::Wait).await.remove(0).unwrap().sequence.0
}

#[tokio::test(start_paused = true)]
async fn store_05_ids_rise_and_are_never_given_out_twice() {
    let testkit = Testkit::new(1);
    let store = store(&testkit);
    let first = append(&*store, "a", &["1", "2"]).await;
    let mut foreign = testkit.database().begin();
    let undone = foreign.append("a", "3").await.unwrap();
    foreign.rollback();
    let last = append(&*store, "a", &["3"]).await.remove(0);
    assert_eq!(undone.sequence, last.sequence);
    assert_eq!([first[0].id, first[1].id, undone.id, last.id], [1, 2, 3, 4].map(MessageId));
}

#[tokio::test(start_paused = true)]
async fn store_06_a_repeated_key_gives_the_first_row() {
    let testkit = Testkit::new(1);
    let store = store(&testkit);
    let entries = [keyed("a", "first", "k"), keyed("a", "second", "k"), keyed("b", "other", "k"), entry("a", "plain")];
    let stored: Vec<_> = store.append(&entries, Blocked::Skip).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(stored[0], stored[1], "the first of a batch wins");
    assert_eq!((&*stored[1].data, stored[2].sequence.0, stored[3].sequence.0), ("first", 1, 2));

    let again = store.append(&[keyed("a", "third", "k")], Blocked::Wait).await.remove(0).unwrap();
    assert_eq!(again, stored[0]);
    assert_eq!(sequences(&testkit.database().messages("a")), [1, 2], "nothing was stored");

    testkit.database().trim_to("a", Sequence(1));
    let anew = store.append(&[keyed("a", "anew", "k")], Blocked::Skip).await.remove(0).unwrap();
    assert_eq!((anew.sequence.0, &*anew.data), (3, "anew"), "a key is remembered while its row is retained");
}

#[tokio::test(start_paused = true)]
async fn store_07_skip_leaves_out_what_is_held_and_wait_waits() {
    let testkit = Testkit::new(1);
    let store = store(&testkit);
    append(&*store, "held", &["1"]).await;
    let mut foreign = testkit.database().begin();
    foreign.append("held", "2").await.unwrap();
    foreign.append("being created", "1").await.unwrap();

    let entries = [entry("held", "x"), entry("free", "x"), entry("held", "y"), entry("being created", "x")];
    let results = store.append(&entries, Blocked::Skip).await;
    let blocked = Some(ErrorKind::StreamBlocked);
    assert_eq!(kinds(&results), [blocked, None, blocked, blocked]);
    assert_eq!(results[0].as_ref().unwrap_err().to_string(), "append: another transaction holds \"held\"");

    let mut waiting = pin!(store.append(&entries, Blocked::Wait));
    assert!(poll_once(waiting.as_mut()).await.is_none());
    assert_eq!(sequences(&testkit.database().messages("free")), [1, 2], "who waits holds up nobody else's entries");
    foreign.rollback();
    let stored: Vec<_> = waiting.await.into_iter().map(|r| r.unwrap().sequence.0).collect();
    assert_eq!(stored, [2, 2, 3, 1]);
    assert_eq!(testkit.database().held_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn store_08_get_many_leaves_out_what_is_not_visible() {
    let testkit = Testkit::new(1);
    let store = store(&testkit);
    let stored = append(&*store, "a", &["1", "2", "3"]).await;
    let mut foreign = testkit.database().begin();
    let invisible = foreign.append("b", "x").await.unwrap();
    testkit.database().trim_to("a", Sequence(1));
    let asked = [stored[2].id, invisible.id, stored[0].id, MessageId(99), stored[1].id, stored[2].id];
    let mut found = store.get_many(&asked).await.unwrap();
    found.sort_by_key(|m| m.id);
    assert_eq!(data(&found), ["2", "3"]);
}

#[tokio::test(start_paused = true)]
async fn store_09_read_after_pages_by_rows_and_bytes() {
    let testkit = Testkit::new(1);
    let store = store(&testkit);
    let stored = append(&*store, "a", &["one", "two", "three", "4"]).await;
    let other = append(&*store, "b", &["x"]).await;

    let page = after(&*store, "a", at(&stored[0], 1), PageLimit { rows: 2, bytes: 100 }).await;
    assert_eq!((data(&page.messages), page.more), (vec!["two", "three"], true));
    let page = after(&*store, "a", at(&stored[0], 2), PageLimit { rows: 2, bytes: 100 }).await;
    assert_eq!((data(&page.messages), page.more), (vec!["three", "4"], false));
    let page = after(&*store, "a", at(&stored[0], 0), PageLimit { rows: 9, bytes: 6 }).await;
    assert_eq!((data(&page.messages), page.more), (vec!["one", "two"], true), "six bytes are two messages");
    let page = after(&*store, "a", at(&stored[0], 2), PageLimit { rows: 9, bytes: 1 }).await;
    assert_eq!((data(&page.messages), page.more), (vec!["three"], true), "the first whatever its size");
    let page = after(&*store, "a", at(&stored[0], 4), ALL).await;
    assert_eq!((page.messages.len(), page.more), (0, false));

    let another_epoch = Cursor::at(Some(other[0].channel_id), Sequence(3));
    let page = after(&*store, "a", another_epoch, ALL).await;
    assert_eq!(data(&page.messages), ["one", "two", "three", "4"], "from the beginning");
    let page = after(&*store, "a", Cursor::at(None, Sequence(3)), ALL).await;
    assert_eq!(data(&page.messages), ["4"], "by its sequence");

    let requests = [
        (name("b"), Position::Cursor(Cursor::BEGINNING)),
        (name("nowhere"), Position::Cursor(Cursor::BEGINNING)),
        (name("a"), Position::Id(stored[2].id)),
        (name("b"), Position::Id(stored[0].id)),
        (name("a"), Position::Id(other[0].id)),
    ];
    let pages = store.read_after(&requests, ALL).await.unwrap();
    let read: Vec<_> = pages.iter().map(|p| data(&p.messages)).collect();
    assert_eq!(read, [vec!["x"], vec![], vec!["4"], vec!["x"], vec![]]);

    testkit.database().trim_to("a", Sequence(2));
    let page = after(&*store, "a", Cursor::BEGINNING, ALL).await;
    assert_eq!(data(&page.messages), ["three", "4"]);
}

#[tokio::test(start_paused = true)]
async fn store_10_read_before_gives_the_newest_in_order() {
    let testkit = Testkit::new(1);
    let store = store(&testkit);
    let stored = append(&*store, "a", &["1", "2", "3", "4"]).await;
    let before = async |position, rows, bytes| {
        let page = store.read_before(&name("a"), position, PageLimit { rows, bytes }).await.unwrap();
        (page.messages.iter().map(|m| m.sequence.0).collect::<Vec<_>>(), page.more)
    };
    let now = Position::Cursor(Cursor::at(None, Sequence(i64::MAX)));
    assert_eq!(before(now, 2, 100).await, (vec![3, 4], true));
    assert_eq!(before(now, 100, 100).await, (vec![1, 2, 3, 4], false));
    assert_eq!(before(now, 100, 3).await, (vec![2, 3, 4], true));
    assert_eq!(before(now, 100, 0).await, (vec![4], true), "the first whatever its size");
    assert_eq!(before(Position::Cursor(stored[2].cursor()), 100, 100).await, (vec![1, 2], false));
    assert_eq!(before(Position::Id(stored[1].id), 100, 100).await, (vec![1], false));
    let page = store.read_before(&name("nowhere"), now, ALL).await.unwrap();
    assert_eq!((page.messages.len(), page.more), (0, false));
}

#[tokio::test(start_paused = true)]
async fn store_11_heads_tell_the_last_commit_and_are_not_lowered_by_trimming() {
    let testkit = Testkit::new(1);
    let store = store(&testkit);
    let stored = append(&*store, "a", &["1", "2", "3"]).await;
    let mut foreign = testkit.database().begin();
    foreign.append("a", "4").await.unwrap();
    foreign.append("b", "1").await.unwrap();

    let epoch = stored[0].channel_id;
    let streams = [name("b"), name("a"), name("a")];
    let head = Head::new(epoch, Sequence(3));
    assert_eq!(store.heads(&streams, HeadDetail::Cheap).await.unwrap(), [None, Some(head), Some(head)]);

    testkit.database().trim_to("a", Sequence(1));
    let full = head.with_retained(Some(stored[2].id), Some((Sequence(2), stored[1].id)));
    assert_eq!(store.heads(&[name("a")], HeadDetail::Full).await.unwrap(), [Some(full)]);
    testkit.database().trim_to("a", Sequence(3));
    assert_eq!(store.heads(&[name("a")], HeadDetail::Full).await.unwrap(), [Some(head)], "trimmed to nothing");

    foreign.commit().unwrap();
    let heads = store.heads(&streams[..2], HeadDetail::Cheap).await.unwrap();
    assert_eq!(heads.iter().flatten().map(|h| h.sequence.0).collect::<Vec<_>>(), [1, 4], "both at one moment");
}

#[tokio::test(start_paused = true)]
async fn store_12_anchors_compare_what_a_cursor_knows() {
    let testkit = Testkit::new(1);
    let store = store(&testkit);
    let stored = append(&*store, "a", &["1", "2", "3"]).await;
    testkit.database().trim_to("a", Sequence(1));
    let whole = stored[1].cursor();
    let bare = at(&stored[1], 2);
    let oldest = Some((Sequence(2), stored[1].id));
    let unused = Epoch(stored[0].channel_id.0 + 1);
    let cases = [
        (whole, Anchor::Same),
        (bare, Anchor::Same),
        (Cursor { id: Some(stored[2].id), ..bare }, Anchor::Other),
        (Cursor { created_at: Some(Timestamp(5)), ..whole }, Anchor::Other),
        (stored[0].cursor(), Anchor::Trimmed { oldest }),
        (at(&stored[0], 9), Anchor::Trimmed { oldest }),
        (at(&stored[0], 0), Anchor::Same),
        (Cursor { epoch: None, ..whole }, Anchor::Gone),
        (Cursor { epoch: Some(unused), ..whole }, Anchor::Gone),
        (Cursor::BEGINNING, Anchor::Gone),
    ];
    let cursors: Vec<_> = cases.iter().map(|(cursor, _)| *cursor).collect();
    let expected: Vec<_> = cases.iter().map(|(_, anchor)| *anchor).collect();
    assert_eq!(store.anchors(&cursors).await.unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn store_13_trim_removes_a_prefix_within_its_budget() {
    let testkit = Testkit::new(1);
    let store = store(&testkit);
    let minute = Duration::from_secs(60);
    append(&*store, "a", &["1", "2"]).await;
    testkit.clock().advance(minute).await;
    append(&*store, "a", &["3", "4", "5"]).await;
    append(&*store, "b", &["1", "2"]).await;
    let mut foreign = testkit.database().begin();
    foreign.append("a", "6").await.unwrap();

    let only_a = || Scope::Stream(name("a"));
    let few = |messages| Retain { messages: Some(messages), ..Retain::default() };
    assert_eq!(store.trim(only_a(), few(5), 99).await.unwrap(), Trimmed { messages: 0, more: false });
    assert_eq!(store.trim(only_a(), few(2), 1).await.unwrap(), Trimmed { messages: 1, more: true });
    let young = Retain { min_age: Duration::from_secs(1), ..few(0) };
    assert_eq!(store.trim(only_a(), young, 99).await.unwrap(), Trimmed { messages: 1, more: false });
    assert_eq!(sequences(&testkit.database().messages("a")), [3, 4, 5], "the young stay");

    testkit.clock().advance(minute).await;
    let aged = |max_age| Retain { max_age: Some(max_age), ..Retain::default() };
    assert_eq!(store.trim(Scope::All, aged(minute), 99).await.unwrap(), Trimmed { messages: 0, more: false });
    let younger = minute - Duration::from_secs(1);
    assert_eq!(store.trim(Scope::All, aged(younger), 4).await.unwrap(), Trimmed { messages: 4, more: true });
    assert_eq!(store.trim(Scope::All, few(0), 1).await.unwrap(), Trimmed { messages: 1, more: false });
    foreign.commit().unwrap();
    assert_eq!(sequences(&testkit.database().messages("a")), [6], "the sequence was not lowered");
    assert_eq!(testkit.database().stream_count(), 2, "trimming leaves the stream");
    assert_eq!(store.trim(Scope::Stream(name("nowhere")), few(0), 9).await.unwrap(), Trimmed::default());
}

#[tokio::test(start_paused = true)]
async fn store_14_a_deleted_stream_begins_anew_in_another_epoch() {
    let testkit = Testkit::new(1);
    let store = store(&testkit);
    let old = append(&*store, "a", &["1", "2"]).await;
    assert_eq!(store.delete_stream(&name("a")).await.unwrap(), Some(old[0].channel_id));
    assert_eq!(store.delete_stream(&name("a")).await.unwrap(), None);
    assert_eq!(store.get_many(&ids(&old)).await.unwrap(), []);
    assert_eq!(store.anchors(&[old[1].cursor()]).await.unwrap(), [Anchor::Gone]);
    let new = append(&*store, "a", &["x"]).await.remove(0);
    assert_ne!(new.channel_id, old[0].channel_id);
    assert_eq!((new.sequence, new.id > old[1].id), (Sequence(1), true));
}

#[tokio::test(start_paused = true)]
async fn store_15_an_append_dropped_while_it_waits_leaves_nothing() {
    let testkit = Testkit::new(1);
    let store = store(&testkit);
    let mut foreign = testkit.database().begin();
    foreign.append("held", "1").await.unwrap();
    {
        let entries = [entry("held", "x"), entry("free", "1"), entry("free", "2")];
        let mut dropped = pin!(store.append(&entries, Blocked::Wait));
        assert!(poll_once(dropped.as_mut()).await.is_none());
        assert_eq!(testkit.database().waiting_count(), 1);
    }
    assert_eq!(testkit.database().waiting_count(), 0);
    foreign.commit().unwrap();
    testkit.clock().idle().await;
    assert_eq!(sequences(&testkit.database().messages("held")), [1]);
    assert_eq!(sequences(&testkit.database().messages("free")), [1, 2], "a stream is stored as a whole");
    assert_eq!(append_waiting(&*store, "held", "2").await, 2, "the store goes on working");
    assert_eq!(testkit.database().held_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn epochs_hang_on_the_seed_and_are_never_repeated() {
    let epochs = async |seed| {
        let testkit = Testkit::new(seed);
        let entries: Vec<NewMessage> = (0..50).map(|n| entry(&format!("s{n}"), "x")).collect();
        let stored = store(&testkit).append(&entries, Blocked::Skip).await;
        stored.into_iter().map(|m| m.unwrap().channel_id.0).collect::<Vec<_>>()
    };
    let first = epochs(1).await;
    assert_eq!(first, epochs(1).await);
    assert_ne!(first, epochs(2).await);
    assert!(first.iter().all(|&e| e > 0 && e < 1 << 53));
    assert_eq!(first.iter().collect::<std::collections::HashSet<_>>().len(), 50);
}

#[tokio::test(start_paused = true)]
async fn settings_are_those_of_the_database() {
    let testkit = Testkit::new(1);
    let store = store(&testkit);
    assert_eq!(store.settings().await.unwrap(), Settings::default());
    let settings = Settings::default().with_prefix("blue").with_layout(Layout::Buckets, 16);
    let settings = settings.with_gem(false).with_cleanup_threshold(CleanupThreshold::Newest(7));
    testkit.database().set_settings(settings.clone());
    assert_eq!(store.settings().await.unwrap(), settings);
}
