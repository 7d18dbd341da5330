//! What came before its turn. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::message::{Message, Sequence};

/// Messages that wait for those before them, up to a number and a size.
#[derive(Debug)]
pub(crate) struct Held {
    messages: BTreeMap<Sequence, Arc<Message>>,
    bytes: usize,
    most: usize,
    most_bytes: usize,
}

impl Held {
    pub(crate) fn new(most: usize, most_bytes: usize) -> Self {
        Self { messages: BTreeMap::new(), bytes: 0, most, most_bytes }
    }

    /// Keeps a message, in the place of another at its sequence; one that does not fit is read from the store in its turn.
    pub(crate) fn insert(&mut self, message: Arc<Message>) {
        let bytes = message.data.len();
        if self.messages.len() < self.most && self.bytes + bytes <= self.most_bytes {
            self.bytes += bytes;
            if let Some(replaced) = self.messages.insert(message.sequence, message) {
                self.bytes -= replaced.data.len();
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn contains(&self, sequence: Sequence) -> bool {
        self.messages.contains_key(&sequence)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.messages.values()
    }

    /// Takes the first out, where `is_due` says so of it.
    pub(crate) fn pop_if(&mut self, is_due: impl FnOnce(&Message) -> bool) -> Option<Arc<Message>> {
        let entry = self.messages.first_entry()?;
        if !is_due(entry.get()) {
            return None;
        }
        let message = entry.remove();
        self.bytes -= message.data.len();
        Some(message)
    }

    pub(crate) fn clear(&mut self) {
        self.messages.clear();
        self.bytes = 0;
    }
}
