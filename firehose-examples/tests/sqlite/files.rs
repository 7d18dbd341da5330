//! What a store makes of the file that it is given.

use std::fs;

use firehose_core::{Anchor, Blocked, ErrorKind, MessageStore, Outcome};
use firehose_examples::{SqliteOptions, SqliteStore};
use sea_orm::{ConnectionTrait, Database};

use crate::harness::{Folder, all, append, entry, name, sequences};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_stored_is_there_when_it_is_opened_again() {
    let folder = Folder::new();
    let store = folder.store().await;
    let first = append(&store, "a", "x").await.unwrap();
    store.close().await;
    assert!(!folder.path("store.db-wal").exists(), "closed, it is one file");
    let error = append(&store, "a", "y").await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::ShutDown, Outcome::NotDone), "{error}");

    let store = folder.store().await;
    assert_eq!(*all(&store, "a").await[0], first);
    let second = append(&store, "a", "y").await.unwrap();
    assert_eq!((second.sequence.0, second.channel_id), (2, first.channel_id));
    assert!(second.id > first.id);
}

/// A crash of the process leaves the files as they are at that moment: what was acknowledged is in them.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_the_files_as_a_crash_leaves_them_has_all_that_was_acknowledged() {
    let folder = Folder::new();
    let store = folder.store().await;
    for n in 1..=50 {
        append(&store, "a", "x").await.unwrap();
        fs::copy(folder.file(), folder.path("crashed.db")).unwrap();
        fs::copy(folder.path("store.db-wal"), folder.path("crashed.db-wal")).unwrap();
        let crashed = SqliteStore::open(folder.path("crashed.db")).await.unwrap();
        assert_eq!(sequences(&crashed, "a").await.len(), n);
        crashed.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_commit_is_flushed_and_the_file_is_marked_as_ours() {
    let folder = Folder::new();
    folder.store().await.close().await;
    let header = fs::read(folder.file()).unwrap();
    assert_eq!((&header[..15], &header[68..72]), (&b"SQLite format 3"[..], &b"fire"[..]));
    assert_eq!(header[18..20], [2, 2], "WAL");
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_and_epochs_are_never_given_out_again() {
    let folder = Folder::new();
    let store = folder.store().await;
    let old = append(&store, "a", "x").await.unwrap();
    assert_eq!(store.delete_stream(&name("a")).await.unwrap(), Some(old.channel_id));
    assert_eq!(store.delete_stream(&name("a")).await.unwrap(), None);
    let new = append(&store, "a", "x").await.unwrap();
    assert!(new.id > old.id && new.channel_id > old.channel_id && new.sequence.0 == 1);
    store.close().await;

    fs::remove_file(folder.file()).unwrap();
    let store = folder.store().await;
    assert_eq!(store.anchors(&[new.cursor()]).await.unwrap(), [Anchor::Gone]);
    let anew = append(&store, "a", "x").await.unwrap();
    assert!(anew.channel_id > new.channel_id, "also not by a file that was made anew");
    assert!(anew.channel_id.0 < 1 << 53, "JavaScript can hold it");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_none_of_ours_are_refused_and_left_alone() {
    let folder = Folder::new();
    let refused = async |path: std::path::PathBuf| SqliteStore::open(path).await.unwrap_err();

    fs::write(folder.path("text"), "this is no database, and long enough to be taken for one".repeat(20)).unwrap();
    let error = refused(folder.path("text")).await;
    assert_eq!(error.kind(), ErrorKind::UnknownDatabase, "{error}");
    assert!(error.to_string().contains("not a database"), "{error}");

    let other = format!("sqlite://{}?mode=rwc", folder.path("other.db").display());
    let other = Database::connect(other).await.unwrap();
    other.execute_unprepared("CREATE TABLE users (name)").await.unwrap();
    other.close().await.unwrap();
    let before = fs::read(folder.path("other.db")).unwrap();
    let error = refused(folder.path("other.db")).await;
    assert_eq!(error.kind(), ErrorKind::UnknownDatabase, "{error}");
    assert!(error.to_string().contains("another program"), "{error}");
    assert_eq!(fs::read(folder.path("other.db")).unwrap(), before);

    folder.store().await.close().await;
    folder.stranger().await.execute_unprepared("PRAGMA user_version = 2").await.unwrap();
    let error = refused(folder.file()).await;
    assert_eq!(error.kind(), ErrorKind::NotMigrated, "{error}");

    let error = refused(folder.path("no/such/folder.db")).await;
    assert_eq!(error.kind(), ErrorKind::UnknownDatabase, "{error}");
    assert_eq!(error.hint(), Some("its folder must be there, and both must be accessible"));
    for path in ["", ":memory:", "a\0b"] {
        assert_eq!(refused(path.into()).await.kind(), ErrorKind::Config, "{path:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_sqlite_would_read_as_something_else_is_a_file() {
    let folder = Folder::new();
    for odd in ["file:x?mode=memory", "a b%20c", "ü"] {
        let path = folder.path(odd);
        let store = SqliteStore::open(&path).await.unwrap();
        append(&store, "a", "x").await.unwrap();
        store.close().await;
        assert!(path.is_file(), "{odd}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_told_and_never_called_not_stored() {
    let folder = Folder::new();
    let store = folder.store().await;
    for _ in 0..40 {
        append(&store, "a", "x".repeat(4_000)).await.unwrap();
    }
    store.close().await;
    let mut bytes = fs::read(folder.file()).unwrap();
    bytes[8_192..].fill(0xa5);
    fs::write(folder.file(), bytes).unwrap();
    let store = folder.store().await;
    let position = firehose_core::Position::Cursor(firehose_core::Cursor::BEGINNING);
    let error = store.read_after(&[(name("a"), position)], crate::harness::EVERYTHING).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Backend, "{error}");
    assert!(error.hint().unwrap().contains("damaged") && !error.is_retryable(), "{error:?}");
    for result in store.append(&[entry("a", "x")], Blocked::Skip).await {
        assert_eq!(result.unwrap_err().outcome(), Outcome::NotDone, "nothing was committed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_may_open_a_new_file_at_once() {
    let folder = Folder::new();
    let opening = (0..8).map(|_| {
        let path = folder.file();
        tokio::spawn(async move { SqliteOptions::default().open(path).await.unwrap() })
    });
    let mut stores = Vec::new();
    for opened in opening.collect::<Vec<_>>() {
        stores.push(opened.await.unwrap());
    }
    let mut epochs: Vec<i64> = Vec::new();
    for store in &stores {
        epochs.push(append(store, "a", "x").await.unwrap().channel_id.0);
    }
    epochs.dedup();
    assert_eq!(epochs.len(), 1, "one file, one stream");
}
