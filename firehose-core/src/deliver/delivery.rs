//! What a subscription gives.

use std::sync::Arc;

use serde::Serialize;

use crate::cursor::Cursor;
use crate::message::{Epoch, Message, Sequence};
use crate::stream::StreamName;

/// The next thing of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// The next message.
    Message(Arc<Message>),
    /// Messages that are no longer there. What follows goes on right after them.
    Gap(Gap),
    /// The stream is another than it was. What follows belongs to the epoch named.
    Reset(Reset),
    /// Nothing follows.
    Closed(CloseReason),
}

impl Delivery {
    /// The message, where it is one.
    pub fn message(&self) -> Option<&Arc<Message>> {
        match self {
            Self::Message(message) => Some(message),
            _ => None,
        }
    }
}

/// Messages of a stream that a subscription does not get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Gap {
    /// The stream.
    pub stream: StreamName,
    /// The first of them.
    pub from: Sequence,
    /// The last of them.
    pub to: Sequence,
    /// Whether exactly these are missing; else these at most ([`Start::AfterId`](crate::Start::AfterId)).
    pub exact: bool,
    /// Why.
    pub reason: GapReason,
}

/// Why messages are not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GapReason {
    /// Retention removed them before they were read.
    Trimmed,
    /// The subscription fell behind, and was told to drop what is oldest ([`Lag::DropOldest`](crate::Lag)).
    DropOldest,
    /// They were missed while there was no session, and `replay_on_reconnect` is off.
    ReplayOff,
}

/// A break in a stream's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Reset {
    /// The stream.
    pub stream: StreamName,
    /// Its epoch from here on.
    pub epoch: Epoch,
    /// The last sequence of that epoch, as far as it is known.
    pub head: Sequence,
    /// Why.
    pub reason: ResetReason,
}

/// Why a stream's history broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ResetReason {
    /// The stream was deleted and created again. What follows begins with its first retained message.
    Recreated,
    /// The database went back in time: a restore, or a failover that lost commits. What follows comes after its head.
    WentBack,
    /// A message that had been announced, and delivered, was never committed. The one that took its place follows, with
    /// the same sequence.
    Replaced,
}

/// Why a subscription ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CloseReason {
    /// The engine was shut down.
    Shutdown,
    /// The last handle of the engine, or its runtime, was dropped.
    EngineDropped,
    /// The engine gave up getting a session, after as many attempts as `reconnect_attempts` allows.
    GaveUp,
    /// It fell behind, and was told to end then ([`Lag::Disconnect`](crate::Lag)).
    Lagged,
}

/// A delivery before it is handed out. It knows the position after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    Message(Arc<Message>),
    Gap(Gap, Cursor),
    Reset(Reset, Cursor),
}

impl Item {
    /// `cursor` goes on at `to`, and says what it leaves out.
    pub(crate) fn gap(stream: &StreamName, cursor: &mut Cursor, to: Sequence) -> Self {
        let after = cursor.moved_to(to);
        Self::gap_until(stream, cursor, after, GapReason::Trimmed)
    }

    /// `cursor` goes on at `after`, in its epoch, and says what it leaves out, and why.
    pub(crate) fn gap_until(stream: &StreamName, cursor: &mut Cursor, after: Cursor, reason: GapReason) -> Self {
        let (from, to) = (cursor.sequence.next(), after.sequence);
        *cursor = after;
        Self::Gap(Gap { stream: stream.clone(), from, to, exact: true, reason }, after)
    }

    /// `cursor` goes on at `after`, in what may be another epoch.
    pub(crate) fn reset(
        stream: &StreamName,
        cursor: &mut Cursor,
        reason: ResetReason,
        epoch: Epoch,
        head: Sequence,
        after: Cursor,
    ) -> Self {
        *cursor = after;
        Self::Reset(Reset { stream: stream.clone(), epoch, head, reason }, after)
    }

    /// The position after it.
    pub(crate) fn after(&self) -> Cursor {
        match self {
            Self::Message(message) => message.cursor(),
            Self::Gap(_, after) | Self::Reset(_, after) => *after,
        }
    }

    /// What it takes in memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Message(message) => message.data.len(),
            Self::Gap(..) | Self::Reset(..) => 0,
        }
    }
}

impl From<Item> for Delivery {
    fn from(item: Item) -> Self {
        match item {
            Item::Message(message) => Self::Message(message),
            Item::Gap(gap, _) => Self::Gap(gap),
            Item::Reset(reset, _) => Self::Reset(reset),
        }
    }
}
