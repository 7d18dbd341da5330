//! A store with a fault, over the one in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use firehose_core::{
    Anchor, Blocked, Capabilities, Changed, Cursor, Epoch, Error, ErrorKind, Head, HeadDetail, Message, MessageId,
    MessageKey, MessageStore, NewMessage, Page, PageLimit, Position, Result, Retain, Scope, StreamName, SweepMark,
    Trimmed,
};
use firehose_testkit::Testkit;
use firehose_testkit::conformance::{ForeignTransaction, StoreFixture};
use tokio::task::yield_now;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    RefusedLast,
    HoleAfterRefused,
    KeysAreNotReadBack,
    StaleHandle,
    LostByCrash,
    CommitsOutOfOrder,
    DescendingIds,
    ReusedIds,
    KeysOfTheStore,
    KeyRace,
    SkipBlocksAll,
    WaitGivesUp,
    CachedMessages,
    AfterAnyEpoch,
    CharactersForBytes,
    BeforeAnyEpoch,
    OldestBefore,
    OneHeadAName,
    HeadOfTheRetained,
    HeadsOneByOne,
    AnchorsWithoutTime,
    MoreAtTheBudget,
    NoLeastAge,
    AllTogether,
    TrimLocks,
    TrimCountsTwice,
    NewestGoFirst,
    KeysOutliveStreams,
    TornDeletion,
    ReusedEpochs,
    EntryByEntry,
    WaitGoesOn,
    BrokenByRead,
    TrimLockStays,
    HalfDeleted,
    MarkOfTheStore,
    BoundForgets,
    HighestIdIsSafe,
    ForeignMarkIsNow,
}

/// Which handle of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handle {
    First,
    Another,
    Reopened,
}

/// What the faults remember.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Every message that an append gave, by the id of the store in memory.
    pub(super) given: BTreeMap<MessageId, Message>,
    pub(super) keys: BTreeMap<(Option<StreamName>, MessageKey), MessageId>,
    pub(super) keyed: BTreeSet<MessageId>,
    /// What the last append stored.
    pub(super) last: BTreeSet<MessageId>,
    /// Not to be seen for now.
    pub(super) hidden: BTreeSet<MessageId>,
    /// Something was removed.
    pub(super) removed: bool,
    pub(super) pages: BTreeMap<String, Vec<Page>>,
    /// By how much ids are lower than in the store in memory.
    pub(super) offset: i64,
    pub(super) appends: u64,
    /// What was given last for where a look at changes stood.
    pub(super) mark: SweepMark,
    /// A call was dropped that should not have been.
    pub(super) stuck: bool,
}

/// A fixture whose store has a fault. Its crash loses nothing, and it calls itself durable.
pub(super) struct Broken {
    testkit: Testkit,
    store: BrokenStore,
}

#[derive(Debug, Clone)]
pub(super) struct BrokenStore {
    pub(super) inner: Arc<dyn MessageStore>,
    pub(super) testkit: Testkit,
    pub(super) fault: Fault,
    pub(super) handle: Handle,
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
    memory: Arc<Mutex<Memory>>,
}

impl Broken {
    pub(super) fn boxed(fault: Fault) -> Box<dyn StoreFixture> {
        let testkit = Testkit::new(7);
        let store = BrokenStore {
            inner: testkit.backend().store,
            testkit: testkit.clone(),
            fault,
            handle: Handle::First,
            turn: Arc::default(),
            memory: Arc::default(),
        };
        Box::new(Self { testkit, store })
    }
}

#[async_trait]
impl StoreFixture for Broken {
    fn store(&self) -> Arc<dyn MessageStore> {
        Arc::new(self.store.clone())
    }

    async fn another(&self) -> Option<Arc<dyn MessageStore>> {
        Some(Arc::new(BrokenStore { handle: Handle::Another, ..self.store.clone() }))
    }

    async fn reopen(&self) -> Option<Arc<dyn MessageStore>> {
        Some(Arc::new(BrokenStore { handle: Handle::Reopened, ..self.store.clone() }))
    }

    async fn begin(&self) -> Option<Box<dyn ForeignTransaction>> {
        Some(Box::new(self.testkit.database().begin()))
    }

    async fn grow_older(&self, by: Duration) -> bool {
        self.testkit.grow_older(by).await
    }
}

impl BrokenStore {
    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap()
    }

    pub(super) fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn not_stuck(&self, operation: &'static str) -> Result<()> {
        if self.is(Fault::BrokenByRead) && self.memory().stuck {
            return Err(Error::new(ErrorKind::Backend, operation, "a call was dropped"));
        }
        Ok(())
    }
}

/// Notes that a call was dropped half way, unless it is told that it was not.
pub(super) struct Dropped<F: FnMut()>(pub(super) Option<F>);

impl<F: FnMut()> Dropped<F> {
    pub(super) fn not(mut self) {
        self.0 = None;
    }
}

impl<F: FnMut()> Drop for Dropped<F> {
    fn drop(&mut self) {
        if let Some(noted) = &mut self.0 {
            noted();
        }
    }
}

/// Lets others have their turns.
pub(super) async fn others(turns: usize) {
    for _ in 0..turns {
        yield_now().await;
    }
}

#[async_trait]
impl MessageStore for BrokenStore {
    async fn append(&self, entries: &[NewMessage], blocked: Blocked) -> Vec<Result<Message>> {
        self.append_with_fault(entries, blocked).await
    }

    async fn get_many(&self, ids: &[MessageId]) -> Result<Vec<Arc<Message>>> {
        self.get_with_fault(ids).await
    }

    async fn read_after(&self, requests: &[(StreamName, Position)], limit: PageLimit) -> Result<Vec<Page>> {
        self.after_with_fault(requests, limit).await
    }

    async fn read_before(&self, stream: &StreamName, position: Position, limit: PageLimit) -> Result<Page> {
        self.before_with_fault(stream, position, limit).await
    }

    async fn heads(&self, streams: &[StreamName], detail: HeadDetail) -> Result<Vec<Option<Head>>> {
        self.heads_with_fault(streams, detail).await
    }

    async fn anchors(&self, cursors: &[Cursor]) -> Result<Vec<Anchor>> {
        self.not_stuck("anchors")?;
        if self.is(Fault::BrokenByRead) {
            let guard = Dropped(Some(|| self.memory().stuck = true));
            others(1).await;
            guard.not();
        }
        self.anchors_with_fault(cursors).await
    }

    async fn changed_since(&self, mark: SweepMark, most: usize) -> Result<(Changed, SweepMark)> {
        self.changes_with_fault(mark, most).await
    }

    async fn trim(&self, scope: Scope, retain: Retain, budget: u64) -> Result<Trimmed> {
        self.trim_with_fault(scope, retain, budget).await
    }

    async fn delete_stream(&self, stream: &StreamName) -> Result<Option<Epoch>> {
        self.delete_with_fault(stream).await
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::DURABLE
    }
}
