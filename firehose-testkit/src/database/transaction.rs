//! An open transaction of some writer's.

use std::fmt;
use std::mem;
use std::sync::Arc;

use firehose_core::{
    ChannelIdentifier, Epoch, Error, ErrorKind, Message, NewMessage, Notification, Result, StreamName,
};

use super::changes::Changes;
use super::locks::{Acquired, TransactionId};
use super::{Database, State};
use crate::wire::Wire;

/// A transaction on a [`Database`]: nobody sees what it does before [`commit`](Self::commit).
///
/// It holds the streams that it wrote to, and others wait for them. Dropped, it is rolled back: sequences go back, since
/// they are part of the row, and ids do not, since they come from a counter.
pub struct Transaction {
    database: Database,
    id: TransactionId,
    changes: Changes,
    over: Option<Over>,
}

/// Why a transaction can do nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Committed,
    Deadlock,
}

impl Transaction {
    pub(super) fn new(database: Database, id: TransactionId) -> Self {
        Self { database, id, changes: Changes::default(), over: None }
    }

    /// Appends `data` to a stream, which is created where it does not exist. Waits for who holds the stream.
    ///
    /// # Errors
    /// As [`NewMessage::new`] and [`Self::append_message`].
    ///
    /// # Cancel safety
    /// Dropped while it waits, it leaves nothing; the transaction goes on.
    pub async fn append<S>(&mut self, stream: S, data: impl Into<Arc<str>>) -> Result<Message>
    where
        S: TryInto<StreamName>,
        Error: From<S::Error>,
    {
        let entry = NewMessage::new(stream, data)?;
        self.append_message(&entry).await
    }

    /// Appends a message; where it has a key that the stream holds already, gives the message that was stored first.
    ///
    /// # Errors
    /// [`InvalidData`](ErrorKind::InvalidData), [`ConnectionLost`](ErrorKind::ConnectionLost) where the database was
    /// restored meanwhile, and [`Backend`](ErrorKind::Backend) for a deadlock, which rolls the transaction back.
    ///
    /// # Cancel safety
    /// As [`Self::append`].
    pub async fn append_message(&mut self, entry: &NewMessage) -> Result<Message> {
        self.lock(&entry.stream).await?;
        self.append_locked(entry)
    }

    /// Takes a stream's lock and changes nothing, as `SELECT … FOR UPDATE` does.
    ///
    /// # Errors
    /// As [`Self::append_message`], and [`InvalidName`](ErrorKind::InvalidName).
    ///
    /// # Cancel safety
    /// As [`Self::append`].
    pub async fn lock_stream(&mut self, stream: impl AsRef<str>) -> Result<()> {
        self.lock(&StreamName::new(stream)?).await
    }

    /// Removes a stream with all its messages, and gives the epoch it had.
    ///
    /// # Errors
    /// As [`Self::lock_stream`].
    ///
    /// # Cancel safety
    /// As [`Self::append`].
    pub async fn delete_stream(&mut self, stream: impl AsRef<str>) -> Result<Option<Epoch>> {
        let stream = StreamName::new(stream)?;
        self.lock(&stream).await?;
        let state = self.database.state();
        Ok(self.changes.remove(&state.tables, &stream))
    }

    /// Sends a notification when the transaction commits. Equal ones of a transaction are one.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) above [`Wire::MAX_PAYLOAD_BYTES`].
    pub fn notify(&mut self, channel: ChannelIdentifier, payload: impl Into<Arc<str>>) -> Result<()> {
        let notification = Notification::new(channel, payload);
        Wire::check(&notification)?;
        self.changes.notify(notification);
        Ok(())
    }

    /// Makes it all visible at once, then sends the notifications and lets go of the streams.
    ///
    /// # Errors
    /// [`ConnectionLost`](ErrorKind::ConnectionLost) where the database was restored meanwhile, and
    /// [`Backend`](ErrorKind::Backend) after a deadlock; then nothing was done.
    pub fn commit(mut self) -> Result<()> {
        let database = self.database.clone();
        let mut state = database.state();
        let committed = self.commit_in(&mut state);
        // Before `self`, whose drop takes the lock.
        drop(state);
        committed
    }

    /// As [`Self::commit`], with the database's lock in hand.
    pub(super) fn commit_in(&mut self, state: &mut State) -> Result<()> {
        self.check(state, "commit")?;
        self.over = Some(Over::Committed);
        let notifications = mem::take(&mut self.changes).apply(&mut state.tables);
        // Under the lock, so that notifications have the order of commits.
        for notification in &notifications {
            self.database.wire.send(notification);
        }
        state.ended(self.id);
        Ok(())
    }

    /// Undoes it all; the same as dropping it.
    pub fn rollback(self) {}

    /// Takes the lock if it is free.
    pub(super) fn try_lock(&mut self, state: &mut State, stream: &StreamName) -> bool {
        state.locks.try_take(stream, self.id)
    }

    /// Waits for a stream's lock.
    pub(super) async fn lock(&mut self, stream: &StreamName) -> Result<()> {
        let granted = {
            let mut state = self.database.state();
            self.check(&state, "append")?;
            match state.locks.take(stream, self.id) {
                Acquired::Now => return Ok(()),
                Acquired::Later(granted) => granted,
                Acquired::Deadlock => {
                    drop(state);
                    self.end(Over::Deadlock);
                    return Err(deadlock("append"));
                }
            }
        };
        let mut wait = Wait { transaction: self, stream, granted: false };
        wait.granted = granted.await.is_ok();
        if wait.granted { Ok(()) } else { Err(restored("append")) }
    }

    /// Appends to a stream whose lock is held.
    pub(super) fn append_locked(&mut self, entry: &NewMessage) -> Result<Message> {
        let database = self.database.clone();
        let mut state = database.state();
        self.append_in(&mut state, entry)
    }

    /// As [`Self::append_locked`], with the database's lock in hand.
    pub(super) fn append_in(&mut self, state: &mut State, entry: &NewMessage) -> Result<Message> {
        self.check(state, "append")?;
        let at = self.database.timestamp();
        self.changes.append(&mut state.tables, entry, at)
    }

    fn check(&self, state: &State, operation: &'static str) -> Result<()> {
        match self.over {
            Some(Over::Deadlock) => Err(deadlock(operation)),
            _ if self.id.0 < state.restored_at => Err(restored(operation)),
            _ => Ok(()),
        }
    }

    fn end(&mut self, over: Over) {
        self.over = Some(over);
        self.changes = Changes::default();
        self.database.state().ended(self.id);
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.over.is_none() {
            self.database.state().ended(self.id);
        }
    }
}

/// A wait for a lock that takes itself back when it is dropped.
struct Wait<'a> {
    transaction: &'a Transaction,
    stream: &'a StreamName,
    granted: bool,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if !self.granted {
            self.transaction.database.state().locks.give_up(self.stream, self.transaction.id);
        }
    }
}

fn deadlock(operation: &'static str) -> Error {
    Error::new(ErrorKind::Backend, operation, "deadlock detected, the transaction is rolled back")
        .with_outcome(firehose_core::Outcome::NotDone)
        .with_retryable(true)
}

fn restored(operation: &'static str) -> Error {
    Error::new(ErrorKind::ConnectionLost, operation, "the database was restored meanwhile")
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("id", &self.id.0).field("over", &self.over).finish_non_exhaustive()
    }
}
