//! Commit visibility, row locks, and a database that goes back in time.

use firehose_core::{Blocked, ErrorKind, Outcome, Sequence};
use firehose_testkit::{Database, Testkit};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn nothing_shows_before_the_commit_and_all_of_it_after() {
    let testkit = Testkit::new(1);
    let mut transaction = testkit.database().begin();
    let a = transaction.append("a", "1").await.unwrap();
    let b = transaction.append("b", "1").await.unwrap();
    assert_eq!(transaction.append_message(&keyed("a", "2", "k")).await.unwrap().sequence.0, 2);
    assert_eq!(transaction.append_message(&keyed("a", "3", "k")).await.unwrap().sequence.0, 2, "it sees its own key");
    assert_eq!((testkit.database().stream_count(), testkit.database().held_count()), (0, 2));
    transaction.commit().unwrap();
    assert_eq!(testkit.database().messages("a")[0], a);
    assert_eq!(testkit.database().messages("b"), [b]);
    assert_eq!((testkit.database().stream_count(), testkit.database().held_count()), (2, 0));
    assert_eq!(testkit.database().streams(), [name("a"), name("b")]);
}

#[tokio::test(start_paused = true)]
async fn a_rollback_reuses_the_sequence_and_not_the_id() {
    let testkit = Testkit::new(1);
    for undo in [true, false] {
        let mut transaction = testkit.database().begin();
        transaction.append("a", "undone").await.unwrap();
        if undo { transaction.rollback() } else { drop(transaction) }
    }
    assert_eq!(testkit.database().stream_count(), 0);
    let message = append(&*store(&testkit), "a", &["x"]).await.remove(0);
    assert_eq!((message.sequence.0, message.id.0), (1, 3));
}

/// Appends in a transaction of its own, waiting for the stream.
async fn writer(database: Database, data: &'static str) -> i64 {
    let mut transaction = database.begin();
    let message = transaction.append("a", data).await.unwrap();
    transaction.commit().unwrap();
    message.sequence.0
}

#[tokio::test(start_paused = true)]
async fn row_locks_are_first_come_first_served() {
    let testkit = Testkit::new(1);
    let mut holder = testkit.database().begin();
    holder.lock_stream("a").await.unwrap();
    let mut writers = Vec::new();
    for data in ["first", "second", "third"] {
        writers.push(tokio::spawn(writer(testkit.database().clone(), data)));
        testkit.clock().idle().await;
    }
    assert_eq!(testkit.database().waiting_count(), 3);
    holder.append("a", "holder").await.unwrap();
    holder.commit().unwrap();
    for (writer, sequence) in writers.into_iter().zip(2..) {
        assert_eq!(writer.await.unwrap(), sequence);
    }
    let stored: Vec<_> = testkit.database().messages("a").iter().map(|m| m.data.to_string()).collect();
    assert_eq!(stored, ["holder", "first", "second", "third"]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_dropped_lets_the_next_one_in() {
    let testkit = Testkit::new(1);
    let mut holder = testkit.database().begin();
    holder.append("a", "undone").await.unwrap();
    let first = tokio::spawn(writer(testkit.database().clone(), "first"));
    testkit.clock().idle().await;
    let second = tokio::spawn(writer(testkit.database().clone(), "second"));
    testkit.clock().idle().await;
    // Handed over already, and dropped before it ran.
    holder.rollback();
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    assert_eq!(second.await.unwrap(), 1);
    assert_eq!((testkit.database().held_count(), testkit.database().waiting_count()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_came_after_its_wait_was_dropped_goes_back() {
    let testkit = Testkit::new(1);
    let mut holder = testkit.database().begin();
    holder.append("a", "1").await.unwrap();
    let mut transaction = testkit.database().begin();
    {
        let mut waiting = std::pin::pin!(transaction.append("a", "dropped"));
        tokio::select! {
            biased;
            result = &mut waiting => panic!("{result:?}"),
            () = std::future::ready(()) => {}
        }
        holder.commit().unwrap();
        assert_eq!(testkit.database().held_count(), 1, "handed over");
    }
    assert_eq!(testkit.database().held_count(), 0, "although the transaction goes on");
    assert_eq!(transaction.append("a", "2").await.unwrap().sequence.0, 2);
}

#[tokio::test(start_paused = true)]
async fn opposite_orders_are_a_deadlock_that_one_of_them_loses() {
    let testkit = Testkit::new(1);
    let mut one = testkit.database().begin();
    let mut other = testkit.database().begin();
    one.append("a", "one").await.unwrap();
    other.append("b", "other").await.unwrap();
    let one = tokio::spawn(async move {
        one.append("b", "one").await.unwrap();
        one.commit().unwrap();
    });
    testkit.clock().idle().await;
    let error = other.append("a", "other").await.unwrap_err();
    assert_eq!((error.kind(), error.outcome(), error.is_retryable()), (ErrorKind::Backend, Outcome::NotDone, true));
    one.await.unwrap();
    assert_eq!(other.commit().unwrap_err().kind(), ErrorKind::Backend);
    assert_eq!(testkit.database().messages("b")[0].data, "one".into());
    assert_eq!((testkit.database().messages("a").len(), testkit.database().held_count()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn notifications_are_sent_at_commit_equal_ones_merged() {
    let testkit = Testkit::new(1);
    let mut session = testkit.backend().listener.unwrap().connect().await.unwrap();
    session.control.listen(&[channel("c"), channel("d")]).await.unwrap();

    let mut undone = testkit.database().begin();
    undone.notify(channel("c"), "undone").unwrap();
    undone.rollback();
    let mut transaction = testkit.database().begin();
    for (name, payload) in [("c", "x"), ("c", "y"), ("c", "x"), ("d", "x")] {
        transaction.notify(channel(name), payload).unwrap();
    }
    assert_eq!(transaction.notify(channel("c"), "x".repeat(8_000)).unwrap_err().kind(), ErrorKind::TooLarge);
    testkit.database().announce_raw(channel("c"), "sooner");
    transaction.commit().unwrap();
    testkit.database().announce_raw(channel("c"), "last");
    assert_eq!(heard_many(&mut *session.events, 5).await, ["sooner", "x", "y", "x", "last"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_announced_before_its_commit_can_be_read_after_it_only() {
    let testkit = Testkit::new(1);
    let mut transaction = testkit.database().begin();
    let message = transaction.append("a", "x").await.unwrap();
    testkit.database().announce_raw(channel("c"), message.id.to_string());
    assert_eq!(store(&testkit).get_many(&[message.id]).await.unwrap(), []);
    transaction.commit().unwrap();
    assert_eq!(*store(&testkit).get_many(&[message.id]).await.unwrap()[0], message);
}

#[tokio::test(start_paused = true)]
async fn a_stream_can_be_removed_and_made_anew_in_one_transaction() {
    let testkit = Testkit::new(1);
    let old = append(&*store(&testkit), "a", &["1", "2"]).await;
    let mut transaction = testkit.database().begin();
    assert_eq!(transaction.delete_stream("a").await.unwrap(), Some(old[0].channel_id));
    let new = transaction.append("a", "new").await.unwrap();
    assert_eq!(testkit.database().messages("a"), old, "not committed yet");
    transaction.commit().unwrap();
    assert_eq!(testkit.database().messages("a"), std::slice::from_ref(&new));
    assert_eq!(new.sequence.0, 1);
    assert_ne!(new.channel_id, old[0].channel_id);
    assert_eq!(testkit.database().delete_stream("a").await.unwrap(), Some(new.channel_id));
    assert_eq!(testkit.database().delete_stream("a").await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_restored_database_gives_the_same_numbers_to_other_messages() {
    let testkit = Testkit::new(1);
    let store = store(&testkit);
    let kept = append(&*store, "a", &["1"]).await.remove(0);
    let snapshot = testkit.database().snapshot();
    let lost = append(&*store, "a", &["2"]).await.remove(0);
    let lost_stream = append(&*store, "b", &["1"]).await.remove(0);
    let mut open = testkit.database().begin();
    open.append("a", "3").await.unwrap();

    testkit.database().restore(&snapshot);
    assert_eq!(testkit.database().messages("a"), std::slice::from_ref(&kept));
    assert_eq!(open.append("a", "4").await.unwrap_err().kind(), ErrorKind::ConnectionLost);
    assert_eq!(open.commit().unwrap_err().kind(), ErrorKind::ConnectionLost);
    let other = append(&*store, "a", &["another 2"]).await.remove(0);
    assert_eq!((other.channel_id, other.sequence, other.id), (kept.channel_id, lost.sequence, lost.id));
    let other_stream = append(&*store, "c", &["1"]).await.remove(0);
    assert_eq!(other_stream.channel_id, lost_stream.channel_id, "as a sequence of PostgreSQL's would");
}

#[tokio::test(start_paused = true)]
async fn a_restore_ends_the_waits_for_locks() {
    let testkit = Testkit::new(1);
    let snapshot = testkit.database().snapshot();
    let mut holder = testkit.database().begin();
    holder.append("a", "1").await.unwrap();
    let store = store(&testkit);
    let waiting = tokio::spawn(async move { store.append(&[entry("a", "x")], Blocked::Wait).await.remove(0) });
    testkit.clock().idle().await;
    testkit.database().restore(&snapshot);
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::ConnectionLost);
    assert_eq!(testkit.database().messages("a"), []);
}

#[tokio::test(start_paused = true)]
async fn trim_to_removes_a_prefix_whatever_its_age() {
    let testkit = Testkit::new(1);
    append(&*store(&testkit), "a", &["1", "2", "3"]).await;
    assert_eq!(testkit.database().trim_to("a", Sequence(2)), 2);
    assert_eq!(testkit.database().trim_to("a", Sequence(2)), 0);
    assert_eq!(testkit.database().trim_to("nowhere", Sequence(2)), 0);
    assert_eq!(sequences(&testkit.database().messages("a")), [3]);
}
