//! What a transaction would change.

use std::collections::BTreeMap;
use std::sync::Arc;

use firehose_core::{
    Epoch, Error, ErrorKind, Message, MessageKey, NewMessage, Notification, Result, Sequence, StreamName, Timestamp,
};

use super::tables::{Row, Tables};

/// The changes of one transaction: nothing of them shows until they are applied. Whoever adds to a stream's changes
/// holds its lock, so what they were computed from is still true when they are applied.
#[derive(Default)]
pub(super) struct Changes {
    streams: BTreeMap<StreamName, StreamChange>,
    notifications: Vec<Notification>,
}

#[derive(Default)]
struct StreamChange {
    /// What was committed goes.
    removed: bool,
    /// The stream as the transaction sees it: its epoch and its last sequence.
    channel: Option<(Epoch, Sequence)>,
    rows: Vec<Row>,
}

impl StreamChange {
    fn of(stream: &StreamName, tables: &Tables) -> Self {
        let channel = tables.channel(stream.as_str()).map(|c| (c.epoch, c.sequence));
        Self { removed: false, channel, rows: Vec::new() }
    }

    fn by_key(&self, stream: &StreamName, key: &MessageKey, tables: &Tables) -> Option<Arc<Message>> {
        if let Some(row) = self.rows.iter().find(|row| row.key.as_ref() == Some(key)) {
            return Some(row.message.clone());
        }
        if self.removed { None } else { tables.channel(stream.as_str())?.by_key(key).cloned() }
    }
}

impl Changes {
    /// Adds a message, or finds the one that has its key. Draws an id, and an epoch for a new stream.
    pub(super) fn append(&mut self, tables: &mut Tables, entry: &NewMessage, at: Timestamp) -> Result<Message> {
        check(entry)?;
        let stream = &entry.stream;
        let change = self.streams.entry(stream.clone()).or_insert_with(|| StreamChange::of(stream, tables));
        if let Some(key) = &entry.key
            && let Some(first) = change.by_key(stream, key, tables)
        {
            return Ok((*first).clone());
        }
        let (epoch, last) = change.channel.unwrap_or_else(|| (tables.next_epoch(), Sequence::ZERO));
        let sequence = last.next();
        change.channel = Some((epoch, sequence));
        let message = Message::new(tables.next_id(), epoch, sequence, stream.clone(), entry.data.clone());
        let message = message.with_created_at(at);
        change.rows.push(Row { message: Arc::new(message.clone()), key: entry.key.clone() });
        Ok(message)
    }

    /// Removes a stream, and gives the epoch it had.
    pub(super) fn remove(&mut self, tables: &Tables, stream: &StreamName) -> Option<Epoch> {
        let change = self.streams.entry(stream.clone()).or_insert_with(|| StreamChange::of(stream, tables));
        let epoch = change.channel.map(|(epoch, _)| epoch);
        *change = StreamChange { removed: true, ..StreamChange::default() };
        epoch
    }

    /// Adds a notification; an equal one is there once.
    pub(super) fn notify(&mut self, notification: Notification) {
        if !self.notifications.contains(&notification) {
            self.notifications.push(notification);
        }
    }

    /// Makes it all true, and gives what is to be sent now.
    pub(super) fn apply(self, tables: &mut Tables) -> Vec<Notification> {
        for (stream, change) in self.streams {
            if change.removed {
                tables.remove(&stream);
            }
            if let Some((epoch, sequence)) = change.channel {
                tables.extend(&stream, epoch, sequence, change.rows);
            }
        }
        self.notifications
    }
}

/// The fields of a [`NewMessage`] are open, so what it checked when it was made is checked again, as a column would.
fn check(entry: &NewMessage) -> Result<()> {
    match entry.data.bytes().position(|byte| byte == 0) {
        None => Ok(()),
        Some(at) => Err(Error::new(ErrorKind::InvalidData, "append", format!("data has a NUL at byte {at}"))),
    }
}
