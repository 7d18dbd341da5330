//! The two tables in memory, with transactions, row locks and commit visibility.

mod append;
mod changes;
mod locks;
mod read;
mod tables;
mod transaction;
mod trim;

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use firehose_core::{ChannelIdentifier, Clock, Epoch, Message, Notification, Result, Settings, StreamName, Timestamp};

use crate::random::Seed;
use crate::wire::Wire;
use locks::{Locks, TransactionId};
use tables::Tables;
pub use transaction::Transaction;

/// A relational database in memory, as far as Firehose sees one; clones are the same database.
///
/// It holds streams and their messages, shows only what is committed, locks a stream's row for the transaction that
/// writes to it (others wait first come, first served), and has one [`Wire`] that carries its notifications.
///
/// ```
/// use firehose_testkit::{Database, ManualClock};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), firehose_core::Error> {
/// let database = Database::new(1, ManualClock::new());
/// let mut transaction = database.begin();
/// let message = transaction.append("orders", "paid").await?;
/// assert_eq!(message.sequence.0, 1);
/// assert!(database.messages("orders").is_empty(), "not committed yet");
///
/// transaction.commit()?;
/// assert_eq!(database.messages("orders"), [message]);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Database {
    state: Arc<Mutex<State>>,
    clock: Arc<dyn Clock>,
    wire: Wire,
    /// Held by whoever trims all streams.
    trimming: Arc<AtomicBool>,
}

struct State {
    tables: Tables,
    locks: Locks,
    /// Never wound back, so that a transaction from before a restore is known by its number.
    transactions: u64,
    /// The first transaction after the last restore.
    restored_at: u64,
}

/// What a [`Database`] held at one moment.
#[derive(Clone)]
pub struct Snapshot {
    tables: Tables,
}

impl Database {
    /// An empty database; epochs are drawn from `seed`, times from `clock`.
    pub fn new(seed: u64, clock: impl Clock) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let state =
            State { tables: Tables::new(Seed::new(seed)), locks: Locks::default(), transactions: 0, restored_at: 0 };
        let wire = Wire::new(seed, clock.clone());
        Self { state: Arc::new(Mutex::new(state)), wire, clock, trimming: Arc::default() }
    }

    /// The transport of this database's notifications.
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// The clock of this database.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Opens a transaction, a writer's other than Firehose.
    pub fn begin(&self) -> Transaction {
        let mut state = self.state();
        state.transactions += 1;
        let id = TransactionId(state.transactions);
        drop(state);
        Transaction::new(self.clone(), id)
    }

    /// Sends a notification at once, outside any transaction: a writer that announces before its commit.
    pub fn announce_raw(&self, channel: ChannelIdentifier, payload: impl Into<Arc<str>>) {
        self.wire.send(&Notification::new(channel, payload));
    }

    /// Removes a stream with all its messages, and gives the epoch it had. Waits for who holds it.
    ///
    /// # Errors
    /// [`InvalidName`](firehose_core::ErrorKind::InvalidName), and what [`Transaction::delete_stream`] gives.
    ///
    /// # Cancel safety
    /// Dropped half way, nothing is removed.
    pub async fn delete_stream(&self, stream: impl AsRef<str>) -> Result<Option<Epoch>> {
        let mut transaction = self.begin();
        let epoch = transaction.delete_stream(stream).await?;
        transaction.commit()?;
        Ok(epoch)
    }

    /// The committed messages of a stream, in order; nothing where it does not exist.
    pub fn messages(&self, stream: &str) -> Vec<Message> {
        let state = self.state();
        let channel = state.tables.channel(stream);
        channel.into_iter().flat_map(|c| c.rows()).map(|row| (*row.message).clone()).collect()
    }

    /// How many streams exist.
    pub fn stream_count(&self) -> usize {
        self.state().tables.channel_count()
    }

    /// Which streams exist, by name.
    pub fn streams(&self) -> Vec<StreamName> {
        self.state().tables.names().cloned().collect()
    }

    /// How many streams are held by open transactions.
    pub fn held_count(&self) -> usize {
        self.state().locks.counts().0
    }

    /// How many writers wait for a stream that another holds.
    pub fn waiting_count(&self) -> usize {
        self.state().locks.counts().1
    }

    /// Sets what the database says of itself.
    pub fn set_settings(&self, settings: Settings) {
        self.state().tables.settings = settings;
    }

    /// What the database says of itself.
    pub fn settings(&self) -> Settings {
        self.state().tables.settings.clone()
    }

    /// A copy of all that is committed.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { tables: self.state().tables.clone() }
    }

    /// Goes back to what `snapshot` holds, as a restored PostgreSQL does: ids, sequences and epochs go on from there, so
    /// the same numbers are given out a second time. Open transactions are lost. Sessions are left alone: see
    /// [`Wire::cut`]. Move the clock before new rows are stored: what has the id and the time of a lost row cannot be told
    /// from it.
    pub fn restore(&self, snapshot: &Snapshot) {
        let mut state = self.state();
        state.tables = snapshot.tables.clone();
        state.locks = Locks::default();
        state.restored_at = state.transactions + 1;
    }

    /// The time as a row gets it.
    fn timestamp(&self) -> Timestamp {
        Timestamp::from_system_time(self.clock.wall())
    }

    /// Never held over an await; the wire's lock may be taken under it, never the other way around.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("streams", &self.stream_count()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("streams", &self.tables.channel_count()).finish_non_exhaustive()
    }
}
