//! The source of truth.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::config::CleanupThreshold;
use crate::cursor::Cursor;
use crate::error::Result;
use crate::message::{Epoch, Message, MessageId, NewMessage, Sequence};
use crate::naming::Layout;
use crate::stream::StreamName;

/// What an append does with a stream that another transaction holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Blocked {
    /// Gives [`StreamBlocked`](crate::ErrorKind::StreamBlocked) for its entries, at once.
    Skip,
    /// Waits for it.
    Wait,
}

/// Where a read begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Position {
    /// At a place in the stream.
    Cursor(Cursor),
    /// At a message id, which may be another stream's.
    Id(MessageId),
}

/// How much one [`Page`] may hold, in messages and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit {
    /// At most so many messages; at least 1.
    pub rows: usize,
    /// At most so many bytes of data. A page holds its first message whatever its size.
    pub bytes: usize,
}

/// Some messages of one stream, in the order of their sequences.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// The messages.
    pub messages: Vec<Arc<Message>>,
    /// Whether there were more of them, in the direction of the read, when it was made.
    pub more: bool,
}

/// What a store knows of a stream's end and beginning, from one snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Head {
    /// The stream's epoch.
    pub epoch: Epoch,
    /// The last sequence that was given out and is committed; 0 where there is none. Retention does not lower it.
    pub sequence: Sequence,
    /// The id of the message with the highest sequence that is retained; with [`HeadDetail::Full`].
    pub last_id: Option<MessageId>,
    /// The oldest message that is retained; with [`HeadDetail::Full`].
    pub oldest: Option<(Sequence, MessageId)>,
}

impl Head {
    /// A head with what [`HeadDetail::Cheap`] gives.
    pub fn new(epoch: Epoch, sequence: Sequence) -> Self {
        Self { epoch, sequence, last_id: None, oldest: None }
    }

    /// The same head with the ids of its newest and oldest retained message.
    #[must_use]
    pub fn with_retained(mut self, last_id: Option<MessageId>, oldest: Option<(Sequence, MessageId)>) -> Self {
        self.last_id = last_id;
        self.oldest = oldest;
        self
    }

    /// The position after everything.
    pub fn cursor(&self) -> Cursor {
        Cursor { id: self.last_id, ..Cursor::at(Some(self.epoch), self.sequence) }
    }
}

/// How much a [`Head`] tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeadDetail {
    /// Epoch and sequence: no message is touched.
    Cheap,
    /// The ids of the newest and the oldest retained message too.
    Full,
}

/// How a cursor compares with the row that it was taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Anchor {
    /// The row is there, and it is the same in all that the cursor says.
    Same,
    /// Another row stands at its place.
    Other,
    /// The stream is in this epoch, and no row stands at the place: it was trimmed, or it is beyond the head.
    Trimmed {
        /// The oldest message that is retained, of the whole stream.
        oldest: Option<(Sequence, MessageId)>,
    },
    /// No stream is in this epoch.
    Gone,
}

/// Which streams a trim looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// One stream.
    Stream(StreamName),
    /// All of them; one caller at a time does the work, by a lock of the store's, and others get nothing to do.
    All,
}

/// What a trim leaves. A message goes where one of the limits says so, and it is not younger than `min_age`, and every
/// message before it goes too.
///
/// A message's age is the store's own time of the trim, less the message's `created_at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retain {
    /// Keep at most so many messages a stream, the newest; `None` for any number.
    pub messages: Option<u64>,
    /// Keep nothing that is older than this; `None` for any age. Exactly as old stays.
    pub max_age: Option<Duration>,
    /// Whatever the others say, keep what is younger than this. Exactly as old may go.
    pub min_age: Duration,
}

/// What a trim did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Trimmed {
    /// How many messages went.
    pub messages: u64,
    /// Whether the budget ended it, so that another call has work.
    pub more: bool,
}

/// What the database says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// How streams are laid out on channels.
    pub layout: Layout,
    /// How many channels the layout `buckets` has.
    pub buckets: u32,
    /// The word that channel names begin with.
    pub prefix: String,
    /// Whether processes of the Ruby gem may listen: each message then needs an announcement of its own.
    pub gem: bool,
    /// How many messages of a stream are kept.
    pub cleanup_threshold: CleanupThreshold,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            layout: Layout::PerStream,
            buckets: 256,
            prefix: crate::naming::Naming::DEFAULT_PREFIX.to_owned(),
            gem: true,
            cleanup_threshold: CleanupThreshold::default(),
        }
    }
}

impl Settings {
    /// The same settings with another prefix.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The same settings with another layout.
    #[must_use]
    pub fn with_layout(mut self, layout: Layout, buckets: u32) -> Self {
        self.layout = layout;
        self.buckets = buckets;
        self
    }

    /// The same settings, with a gem that may listen or without.
    #[must_use]
    pub fn with_gem(mut self, gem: bool) -> Self {
        self.gem = gem;
        self
    }

    /// The same settings with another threshold.
    #[must_use]
    pub fn with_cleanup_threshold(mut self, threshold: CleanupThreshold) -> Self {
        self.cleanup_threshold = threshold;
        self
    }
}

/// What a store can do beyond the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Capabilities {
    /// Messages outlive the process, however it ends.
    pub durable: bool,
    /// Several processes can share the store at the same time, each through a handle of its own.
    pub shared: bool,
    /// Epochs are never given out twice, also not by a store that was made anew.
    pub durable_epochs: bool,
}

impl Capabilities {
    /// A store that outlives its process, serves several and never repeats an epoch.
    pub const DURABLE: Self = Self { durable: true, shared: true, durable_epochs: true };

    /// A store in memory: nothing outlives the process, and epochs are drawn at random.
    pub const MEMORY: Self = Self { durable: false, shared: false, durable_epochs: false };
}

/// The table: what is in it is true, and every announcement is only a hint at it.
///
/// # Contract
/// 1. `append` gives one result an entry, in the order given. Entries are independent: one that is bad or blocked fails
///    alone. Data with a NUL is [`InvalidData`](crate::ErrorKind::InvalidData), and not stored.
/// 2. The entries of one stream get consecutive sequences in the order given; a stream begins at 1, and an entry that
///    fails leaves no hole.
/// 3. When an entry's result is `Ok`, it is committed: visible to every later read through any handle, in all that the
///    result says of it, also after a crash if the store is [durable](Capabilities::durable).
/// 4. A visible sequence n of a stream implies that every m < n is visible or trimmed.
/// 5. The id rises with the sequence within a stream, and is never given out twice in the store.
/// 6. An entry whose key the stream holds already, or that an earlier entry of the call brought, gives the message that
///    was stored first, whatever its data; nothing is stored. A key is held while its message is retained.
/// 7. With [`Blocked::Skip`] the entries of a stream that another transaction holds give
///    [`StreamBlocked`](crate::ErrorKind::StreamBlocked) at once, and the others are stored. With [`Blocked::Wait`] the
///    call waits, for as long as the backend's time limit allows.
/// 8. `get_many` gives the messages that are visible, in any order; others are absent.
/// 9. `read_after` gives one page a request, in the order given: the messages after the position, without a hole that
///    is not trimmed, at most as the limit says, and at least one where there is one. A cursor of another epoch reads
///    from the stream's beginning; one without epoch reads by its sequence. A stream that does not exist is an empty
///    page. Bytes are those of the data in UTF-8.
/// 10. `read_before` gives the newest messages before the position, in the order of their sequences, within the limit as
///    9 has it. Before a cursor of another epoch there is nothing: its place is before the stream's beginning, as in 9.
/// 11. `heads` gives one entry a name, `None` where the stream does not exist, all from one snapshot. A head's sequence
///     is that of the last message committed, and trimming does not lower it.
/// 12. `anchors` compares each cursor with the row of its epoch and sequence by what the cursor knows of id and time.
///     A cursor without epoch is `Gone`; one at sequence 0 is `Same` where its epoch exists; one beyond the head is
///     `Trimmed`, as no row stands there. An epoch names one stream in the whole store.
/// 13. `trim` removes a prefix of a stream, at most `budget` messages a call, and never waits for a publisher. Nobody
///     sees a hole meanwhile. `more` says that the budget left something to do, or that another trim was at it.
/// 14. `delete_stream` removes a stream with all its messages and keys, as one; created again it has another epoch, and
///     begins at 1. Where the store says so ([`durable_epochs`](Capabilities::durable_epochs)), no epoch ever comes back.
/// 15. Every method may be dropped at any poll: an append is then stored as a whole, stream by stream, or not at all,
///     and the store goes on working.
#[async_trait]
pub trait MessageStore: Send + Sync + Debug + 'static {
    /// Stores `entries` (1 to 7).
    ///
    /// # Errors
    /// One an entry. An error whose [`outcome`](crate::Error::outcome) is `NotDone` promises that the entry is not
    /// stored and never will be by this call.
    ///
    /// # Cancel safety
    /// Dropped half way, the outcome is unknown (15).
    async fn append(&self, entries: &[NewMessage], blocked: Blocked) -> Vec<Result<Message>>;

    /// Reads messages by id (8).
    ///
    /// # Errors
    /// What the backend says.
    async fn get_many(&self, ids: &[MessageId]) -> Result<Vec<Arc<Message>>>;

    /// Reads several streams from a position on, in one read (9). `limit` holds for each page.
    ///
    /// # Errors
    /// What the backend says.
    async fn read_after(&self, requests: &[(StreamName, Position)], limit: PageLimit) -> Result<Vec<Page>>;

    /// Reads a stream backwards from a position (10).
    ///
    /// # Errors
    /// What the backend says.
    async fn read_before(&self, stream: &StreamName, position: Position, limit: PageLimit) -> Result<Page>;

    /// Reads the heads of several streams (11).
    ///
    /// # Errors
    /// What the backend says.
    async fn heads(&self, streams: &[StreamName], detail: HeadDetail) -> Result<Vec<Option<Head>>>;

    /// Compares cursors with the rows they were taken from (12).
    ///
    /// # Errors
    /// What the backend says.
    async fn anchors(&self, cursors: &[Cursor]) -> Result<Vec<Anchor>>;

    /// Removes old messages (13).
    ///
    /// # Errors
    /// What the backend says.
    async fn trim(&self, scope: Scope, retain: Retain, budget: u64) -> Result<Trimmed>;

    /// Removes a stream; gives the epoch it had, `None` where it did not exist (14).
    ///
    /// # Errors
    /// What the backend says.
    async fn delete_stream(&self, stream: &StreamName) -> Result<Option<Epoch>>;

    /// What the database says of itself.
    ///
    /// # Errors
    /// What the backend says.
    async fn settings(&self) -> Result<Settings> {
        Ok(Settings::default())
    }

    /// The engine saw the connection lost: drop what may hang.
    ///
    /// # Errors
    /// What the backend says.
    async fn recover(&self) -> Result<()> {
        Ok(())
    }

    /// What this store can do.
    fn capabilities(&self) -> Capabilities;
}

#[async_trait]
impl<T: MessageStore + ?Sized> MessageStore for Arc<T> {
    async fn append(&self, entries: &[NewMessage], blocked: Blocked) -> Vec<Result<Message>> {
        (**self).append(entries, blocked).await
    }
    async fn get_many(&self, ids: &[MessageId]) -> Result<Vec<Arc<Message>>> {
        (**self).get_many(ids).await
    }
    async fn read_after(&self, requests: &[(StreamName, Position)], limit: PageLimit) -> Result<Vec<Page>> {
        (**self).read_after(requests, limit).await
    }
    async fn read_before(&self, stream: &StreamName, position: Position, limit: PageLimit) -> Result<Page> {
        (**self).read_before(stream, position, limit).await
    }
    async fn heads(&self, streams: &[StreamName], detail: HeadDetail) -> Result<Vec<Option<Head>>> {
        (**self).heads(streams, detail).await
    }
    async fn anchors(&self, cursors: &[Cursor]) -> Result<Vec<Anchor>> {
        (**self).anchors(cursors).await
    }
    async fn trim(&self, scope: Scope, retain: Retain, budget: u64) -> Result<Trimmed> {
        (**self).trim(scope, retain, budget).await
    }
    async fn delete_stream(&self, stream: &StreamName) -> Result<Option<Epoch>> {
        (**self).delete_stream(stream).await
    }
    async fn settings(&self) -> Result<Settings> {
        (**self).settings().await
    }
    async fn recover(&self) -> Result<()> {
        (**self).recover().await
    }
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }
}
