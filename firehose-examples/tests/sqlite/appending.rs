//! Appends: whole or not at all, whatever happens to them.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use firehose_core::{Blocked, ErrorKind, MessageStore, NewMessage, Outcome};
use firehose_examples::SqliteOptions;
use sea_orm::ConnectionTrait;

use crate::harness::{Folder, all, append, entry, name, sequences};

#[tokio::test(flavor = "multi_thread")]
async fn odd_names_keys_and_data_come_back_as_they_were() {
    let folder = Folder::new();
    let store = folder.store().await;
    let odd = ["'", "\"", "\\", "[1,2]", "{\"a\":null}", "null", "0", "\u{1}\u{7f}\u{feff}", "é🦀\u{ffff}", "%_?1"];
    let entries: Vec<NewMessage> = odd.iter().map(|text| entry(text, *text).key(text).unwrap()).collect();
    let stored = store.append(&entries, Blocked::Skip).await;
    for (text, stored) in odd.iter().zip(stored) {
        let stored = stored.unwrap();
        assert_eq!((stored.stream.as_str(), &*stored.data, stored.sequence.0), (*text, *text, 1));
        assert_eq!(all(&store, text).await, [Arc::new(stored)]);
    }
    let again = store.append(&entries, Blocked::Skip).await;
    assert!(again.iter().all(|result| result.as_ref().unwrap().sequence.0 == 1), "each key was found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_many_megabytes_is_one_append() {
    let folder = Folder::new();
    let store = folder.store().await;
    let data: Arc<str> = "\u{1}".repeat(3 << 20).into();
    let entries = vec![entry("a", data.clone()); 7];
    let stored = store.append(&entries, Blocked::Skip).await;
    let ids: Vec<i64> = stored.iter().map(|result| result.as_ref().unwrap().id.0).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    assert_eq!(sequences(&store, "a").await, [1, 2, 3, 4, 5, 6, 7]);
    assert!(all(&store, "a").await.iter().all(|message| message.data == data));

    let huge = store.append(&[entry("a", "x".repeat((128 << 20) + 1)), entry("a", "y")], Blocked::Skip).await;
    assert_eq!(huge[0].as_ref().unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(huge[1].as_ref().unwrap().sequence.0, 8, "it fails alone");
}

/// Dropped after each number of polls there is, it is whole or not there, and the store goes on. More than one batch of
/// data makes it long.
#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_is_dropped_at_any_poll_is_whole_or_nothing() {
    let folder = Folder::new();
    let store = folder.store().await;
    append(&store, "a", "first").await.unwrap();
    let (mut whole, mut nothing) = (0, 0);
    for polls in 1.. {
        let before = sequences(&store, "a").await.len();
        let mut entries = vec![entry("a", "x"); 20];
        entries.push(entry(&format!("new {polls}"), "y").key("k").unwrap());
        let ended = {
            let mut append = pin!(store.append(&entries, Blocked::Wait));
            let mut left = polls;
            std::future::poll_fn(|context| match append.as_mut().poll(context) {
                Poll::Ready(results) => Poll::Ready(Some(results)),
                Poll::Pending => {
                    left -= 1;
                    if left == 0 { Poll::Ready(None) } else { Poll::Pending }
                }
            })
            .await
        };
        // Whoever writes next finds out what became of it.
        append(&store, "b", "next").await.unwrap();
        let (after, new) = (sequences(&store, "a").await.len(), all(&store, &format!("new {polls}")).await.len());
        match (after - before, new) {
            (20, 1) => whole += 1,
            (0, 0) => nothing += 1,
            other => panic!("dropped after {polls} polls: {other:?}"),
        }
        if let Some(results) = ended {
            assert!(results.iter().all(Result::is_ok));
            assert_eq!(after - before, 20);
            break;
        }
    }
    assert!(whole > 0 && nothing > 0, "{whole} whole, {nothing} nothing");
}

/// SQLite rolls back by itself then, and the driver does not know: the connection must not be used again.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_fails_the_append_alone_and_the_store_goes_on() {
    let folder = Folder::new();
    let store = folder.store_with(SqliteOptions::default().with_most_bytes(200_000)).await;
    append(&store, "a", "small").await.unwrap();
    for _ in 0..3 {
        let entries = [entry("a", "x".repeat(300_000)), entry("b", "in the same call")];
        for result in store.append(&entries, Blocked::Skip).await {
            let error = result.unwrap_err();
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Backend, Outcome::NotDone), "{error}");
            assert!(error.is_retryable() && error.hint().unwrap().contains("full"), "{error:?}");
        }
        append(&store, "a", "small").await.unwrap();
    }
    assert_eq!(sequences(&store, "a").await, [1, 2, 3, 4]);
    assert_eq!(store.heads(&[name("b")], firehose_core::HeadDetail::Cheap).await.unwrap(), [None]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_held_blocks_at_once_or_waits_as_it_is_told() {
    let folder = Folder::new();
    let store = folder.store().await;
    append(&store, "a", "before").await.unwrap();
    let stranger = folder.stranger().await;
    stranger.execute_unprepared("BEGIN IMMEDIATE").await.unwrap();

    for result in store.append(&[entry("a", "x"), entry("b", "x")], Blocked::Skip).await {
        let error = result.unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::StreamBlocked, Outcome::NotDone));
        assert!(error.is_retryable());
    }
    assert_eq!(sequences(&store, "a").await, [1], "reads do not wait");

    let mut waiting = pin!(append(&store, "a", "waited"));
    // While it waits, others are answered all the same.
    let entries = [entry("a", "x")];
    tokio::select! {
        biased;
        result = &mut waiting => panic!("{result:?}"),
        skipped = store.append(&entries, Blocked::Skip) => {
            assert_eq!(skipped[0].as_ref().unwrap_err().kind(), ErrorKind::StreamBlocked);
        }
    }
    stranger.execute_unprepared("COMMIT").await.unwrap();
    assert_eq!(waiting.await.unwrap().sequence.0, 2);
}

/// Clause 15, where what is waited for is the file.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_dropped_stores_nothing_and_holds_nothing() {
    let folder = Folder::new();
    let store = folder.store().await;
    append(&store, "a", "before").await.unwrap();
    let stranger = folder.stranger().await;
    stranger.execute_unprepared("BEGIN IMMEDIATE").await.unwrap();
    let entries = [entry("a", "x")];
    for polls in 1..20 {
        let mut waiting = pin!(store.append(&entries, Blocked::Wait));
        let mut left = polls;
        let dropped = std::future::poll_fn(|context| match waiting.as_mut().poll(context) {
            Poll::Ready(results) => panic!("{results:?}"),
            Poll::Pending if left == 0 => Poll::Ready(()),
            Poll::Pending => {
                left -= 1;
                Poll::Pending
            }
        });
        dropped.await;
    }
    stranger.execute_unprepared("ROLLBACK").await.unwrap();
    assert_eq!(append(&store, "a", "after").await.unwrap().sequence.0, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_of_nothing_new_writes_nothing() {
    let folder = Folder::new();
    let store = folder.store().await;
    let keyed = [entry("a", "first").key("k").unwrap()];
    let first = store.append(&keyed, Blocked::Skip).await.remove(0).unwrap();
    let stranger = folder.stranger().await;
    let version = async || {
        let row =
            stranger.query_one_raw(sea_orm::Statement::from_string(sea_orm::DbBackend::Sqlite, "PRAGMA data_version"));
        row.await.unwrap().unwrap().try_get_by_index::<i64>(0).unwrap()
    };
    let before = version().await;
    let again = [entry("a", "other").key("k").unwrap()];
    assert_eq!(store.append(&again, Blocked::Skip).await.remove(0).unwrap(), first);
    assert!(store.append(&[], Blocked::Skip).await.is_empty());
    assert_eq!(version().await, before);
    append(&store, "a", "new").await.unwrap();
    assert_ne!(version().await, before, "what is written shows");
}
