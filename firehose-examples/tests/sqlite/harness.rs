//! A store in a folder of its own, and short words for what tests do with it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use firehose_core::{
    Blocked, Clock, Cursor, Message, MessageStore, MonoTime, NewMessage, PageLimit, Position, Result, Sequence,
    StreamName, SystemClock,
};
use firehose_examples::{SqliteOptions, SqliteStore};
use sea_orm::{ConnectionTrait, Database, DatabaseConnection};
use tempfile::TempDir;

pub(crate) const EVERYTHING: PageLimit = PageLimit { rows: usize::MAX, bytes: usize::MAX };

/// A folder with a file that is not there yet.
pub(crate) struct Folder {
    folder: TempDir,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.path("store.db")
    }

    pub(crate) async fn store(&self) -> SqliteStore {
        SqliteStore::open(self.file()).await.unwrap()
    }

    pub(crate) async fn store_with(&self, options: SqliteOptions) -> SqliteStore {
        options.open(self.file()).await.unwrap()
    }

    /// A connection of somebody else's to the file.
    pub(crate) async fn stranger(&self) -> DatabaseConnection {
        let stranger = Database::connect(format!("sqlite://{}?mode=rwc", self.file().display())).await.unwrap();
        // It waits for nobody.
        stranger.execute_unprepared("PRAGMA busy_timeout = 0").await.unwrap();
        stranger
    }
}

pub(crate) fn name(stream: &str) -> StreamName {
    StreamName::new(stream).unwrap()
}

pub(crate) fn entry(stream: &str, data: impl Into<Arc<str>>) -> NewMessage {
    NewMessage::new(stream, data).unwrap()
}

pub(crate) async fn append(store: &SqliteStore, stream: &str, data: impl Into<Arc<str>>) -> Result<Message> {
    store.append(&[entry(stream, data)], Blocked::Wait).await.remove(0)
}

/// All of a stream, in order.
pub(crate) async fn all(store: &SqliteStore, stream: &str) -> Vec<Arc<Message>> {
    let request = (name(stream), Position::Cursor(Cursor::BEGINNING));
    let page = store.read_after(&[request], EVERYTHING).await.unwrap().remove(0);
    assert!(!page.more);
    page.messages
}

pub(crate) async fn sequences(store: &SqliteStore, stream: &str) -> Vec<i64> {
    let sequences: Vec<i64> = all(store, stream).await.iter().map(|message| message.sequence.0).collect();
    if let Some(&first) = sequences.first() {
        let expected: Vec<i64> = (first..).take(sequences.len()).collect();
        assert_eq!(sequences, expected, "no holes");
    }
    sequences
}

pub(crate) fn sequence(n: i64) -> Sequence {
    Sequence(n)
}

/// A clock whose days pass when they are told to.
#[derive(Debug, Default, Clone)]
pub(crate) struct Days(Arc<AtomicU64>, SystemClock);

impl Days {
    pub(crate) fn pass(&self, by: Duration) {
        let by = u64::try_from(by.as_micros()).unwrap();
        self.0.fetch_add(by, Ordering::SeqCst);
    }
}

#[async_trait::async_trait]
impl Clock for Days {
    fn now(&self) -> MonoTime {
        self.1.now()
    }
    fn wall(&self) -> SystemTime {
        self.1.wall() + Duration::from_micros(self.0.load(Ordering::SeqCst))
    }
    async fn sleep_until(&self, deadline: MonoTime) {
        self.1.sleep_until(deadline).await;
    }
}
