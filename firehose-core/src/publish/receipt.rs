//! What was stored outside the engine, and is to be announced by it.

use crate::message::MessageId;

/// Messages that were stored in somebody's transaction and are to be announced after its commit: ids only, in the order
/// of the messages.
///
/// [`announce`](crate::Firehose::announce) reads the rows back, so what was rolled back announces nothing. What nobody
/// announces, the sweep of every listening process finds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "announce it after the commit, or subscribers wait for the next sweep"]
pub struct Receipt {
    ids: Vec<MessageId>,
}

impl Receipt {
    /// A receipt for the messages with these ids.
    pub fn new(ids: Vec<MessageId>) -> Self {
        Self { ids }
    }

    /// The ids of the messages.
    pub fn ids(&self) -> &[MessageId] {
        &self.ids
    }

    /// Takes in what another broadcast of the transaction gave.
    pub fn merge(&mut self, other: Self) {
        self.ids.extend(other.ids);
    }
}
