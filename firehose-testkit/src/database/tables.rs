//! What is committed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use firehose_core::{Epoch, Head, HeadDetail, Message, MessageId, MessageKey, Sequence, Settings, StreamName};

use crate::random::Seed;

/// The tables and the counters behind them. A clone is a snapshot.
#[derive(Clone)]
pub(super) struct Tables {
    pub(super) settings: Settings,
    channels: BTreeMap<StreamName, Channel>,
    by_id: BTreeMap<MessageId, Arc<Message>>,
    by_epoch: HashMap<Epoch, StreamName>,
    last_id: i64,
    seed: Seed,
    epochs_drawn: u64,
    epochs_given: HashSet<Epoch>,
}

/// A stream's row and its messages.
#[derive(Clone)]
pub(super) struct Channel {
    pub(super) epoch: Epoch,
    /// The last that was given out; trimming does not lower it.
    pub(super) sequence: Sequence,
    rows: BTreeMap<Sequence, Row>,
    keys: HashMap<MessageKey, Sequence>,
}

/// A message's row.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) message: Arc<Message>,
    pub(super) key: Option<MessageKey>,
}

impl Tables {
    pub(super) fn new(seed: Seed) -> Self {
        Self {
            settings: Settings::default(),
            channels: BTreeMap::new(),
            by_id: BTreeMap::new(),
            by_epoch: HashMap::new(),
            last_id: 0,
            seed,
            epochs_drawn: 0,
            epochs_given: HashSet::new(),
        }
    }

    /// An id that was not given out before, whatever becomes of it.
    pub(super) fn next_id(&mut self) -> MessageId {
        self.last_id += 1;
        MessageId(self.last_id)
    }

    /// An epoch that was not given out before: positive, and below 2^53 so that JavaScript can hold it.
    pub(super) fn next_epoch(&mut self) -> Epoch {
        loop {
            let drawn = self.seed.nth("epochs", self.epochs_drawn) >> 11;
            self.epochs_drawn += 1;
            let epoch = Epoch(i64::try_from(drawn).unwrap_or_default());
            if epoch.0 > 0 && self.epochs_given.insert(epoch) {
                return epoch;
            }
        }
    }

    pub(super) fn channel(&self, stream: &str) -> Option<&Channel> {
        self.channels.get(stream)
    }

    pub(super) fn channel_of(&self, epoch: Epoch) -> Option<&Channel> {
        self.channels.get(self.by_epoch.get(&epoch)?)
    }

    pub(super) fn channel_count(&self) -> usize {
        self.channels.len()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &StreamName> {
        self.channels.keys()
    }

    pub(super) fn message(&self, id: MessageId) -> Option<&Arc<Message>> {
        self.by_id.get(&id)
    }

    /// The messages with higher ids, in the order of these.
    pub(super) fn messages_after(&self, id: MessageId) -> impl Iterator<Item = &Arc<Message>> {
        self.by_id.range((Bound::Excluded(id), Bound::Unbounded)).map(|(_, message)| message)
    }

    /// The highest id of a message that is there; 0 where there is none.
    pub(super) fn highest_id(&self) -> MessageId {
        self.by_id.keys().next_back().copied().unwrap_or(MessageId(0))
    }

    /// Adds to a stream, creating it where it is not there.
    pub(super) fn extend(&mut self, stream: &StreamName, epoch: Epoch, sequence: Sequence, rows: Vec<Row>) {
        let channel = self.channels.entry(stream.clone()).or_insert_with(|| Channel::new(epoch));
        channel.sequence = channel.sequence.max(sequence);
        self.by_epoch.insert(epoch, stream.clone());
        for row in rows {
            self.by_id.insert(row.message.id, row.message.clone());
            if let Some(key) = &row.key {
                channel.keys.insert(key.clone(), row.message.sequence);
            }
            channel.rows.insert(row.message.sequence, row);
        }
    }

    /// Removes a stream with its messages.
    pub(super) fn remove(&mut self, stream: &StreamName) {
        if let Some(channel) = self.channels.remove(stream) {
            self.by_epoch.remove(&channel.epoch);
            for row in channel.rows.values() {
                self.by_id.remove(&row.message.id);
            }
        }
    }

    /// Removes the `count` oldest messages of a stream.
    pub(super) fn remove_oldest(&mut self, stream: &str, count: usize) {
        let Some(channel) = self.channels.get_mut(stream) else { return };
        for _ in 0..count {
            let Some((_, row)) = channel.rows.pop_first() else { return };
            self.by_id.remove(&row.message.id);
            if let Some(key) = &row.key {
                channel.keys.remove(key);
            }
        }
    }
}

impl Channel {
    fn new(epoch: Epoch) -> Self {
        Self { epoch, sequence: Sequence::ZERO, rows: BTreeMap::new(), keys: HashMap::new() }
    }

    /// The retained messages, oldest first.
    pub(super) fn rows(&self) -> impl DoubleEndedIterator<Item = &Row> + ExactSizeIterator {
        self.rows.values()
    }

    pub(super) fn row(&self, sequence: Sequence) -> Option<&Row> {
        self.rows.get(&sequence)
    }

    /// The retained messages after a place, oldest first.
    pub(super) fn rows_after(&self, sequence: Sequence) -> impl DoubleEndedIterator<Item = &Row> {
        self.rows.range(sequence.next()..).map(|(_, row)| row).filter(move |row| row.message.sequence > sequence)
    }

    /// The retained messages before a place, oldest first.
    pub(super) fn rows_before(&self, sequence: Sequence) -> impl DoubleEndedIterator<Item = &Row> {
        self.rows.range(..sequence).map(|(_, row)| row)
    }

    pub(super) fn by_key(&self, key: &MessageKey) -> Option<&Arc<Message>> {
        Some(&self.rows.get(self.keys.get(key)?)?.message)
    }

    pub(super) fn oldest(&self) -> Option<(Sequence, MessageId)> {
        self.rows().next().map(|row| (row.message.sequence, row.message.id))
    }

    pub(super) fn head(&self, detail: HeadDetail) -> Head {
        let head = Head::new(self.epoch, self.sequence);
        match detail {
            HeadDetail::Cheap => head,
            HeadDetail::Full => head.with_retained(self.rows().next_back().map(|r| r.message.id), self.oldest()),
        }
    }
}
