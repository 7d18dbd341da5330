//! Faults of the numbers: another id than the store in memory has, the same one everywhere.

use firehose_core::{Head, Message, MessageId, Page, Position};

use super::broken::{BrokenStore, Fault};

const HIGHEST: i64 = 1_000_000;

impl BrokenStore {
    /// The id as the caller sees it.
    pub(super) fn id_out(&self, id: MessageId) -> MessageId {
        match self.fault {
            Fault::DescendingIds if (1..HIGHEST).contains(&id.0) => MessageId(HIGHEST - id.0),
            Fault::ReusedIds => MessageId(id.0 - self.memory().offset),
            _ => id,
        }
    }

    /// The id of the store in memory.
    pub(super) fn id_in(&self, id: MessageId) -> MessageId {
        match self.fault {
            Fault::DescendingIds if (1..HIGHEST).contains(&id.0) => MessageId(HIGHEST - id.0),
            Fault::ReusedIds => MessageId(id.0.saturating_add(self.memory().offset)),
            _ => id,
        }
    }

    pub(super) fn message_out(&self, message: &Message) -> Message {
        let mut message = message.clone();
        message.id = self.id_out(message.id);
        message
    }

    pub(super) fn page_out(&self, page: &Page) -> Page {
        let messages = page.messages.iter().map(|message| self.message_out(message).into()).collect();
        Page { messages, more: page.more }
    }

    pub(super) fn position_in(&self, position: Position) -> Position {
        match position {
            Position::Id(id) => Position::Id(self.id_in(id)),
            cursor @ Position::Cursor(_) => cursor,
        }
    }

    pub(super) fn head_out(&self, head: Head) -> Head {
        let oldest = head.oldest.map(|(sequence, id)| (sequence, self.id_out(id)));
        head.with_retained(head.last_id.map(|id| self.id_out(id)), oldest)
    }
}
