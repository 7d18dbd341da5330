//! How a subscription begins, and what becomes of one that does not keep up.

use crate::cursor::Start;

/// What happens to a subscription that falls further behind than what is kept in memory: `subscriber_buffer` messages and
/// `subscriber_buffer_bytes` of its stream. Whatever is chosen, it delays nobody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Lag {
    /// It reads what it missed from the store, at its own pace, and is complete in the end.
    #[default]
    CatchUp,
    /// It goes on with the oldest message in memory, and is told what it misses as a
    /// [`Gap`](crate::Delivery::Gap) with the reason [`DropOldest`](crate::GapReason::DropOldest): for who wants what is
    /// new, not what was.
    DropOldest,
    /// It ends with [`CloseReason::Lagged`](crate::CloseReason::Lagged).
    Disconnect,
}

/// How a subscription begins, and what happens when it falls behind. A [`Start`] and a [`Lag`] are options too, by `into`.
///
/// ```
/// use firehose_core::{Lag, Start, SubscribeOptions};
///
/// let options = SubscribeOptions::from(Start::Earliest).with_lag(Lag::Disconnect);
/// assert_eq!(options.start, Start::Earliest);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscribeOptions {
    /// Where it begins. Default [`Start::Now`].
    pub start: Start,
    /// What happens when it falls behind. Default [`Lag::CatchUp`].
    pub lag: Lag,
}

impl SubscribeOptions {
    /// The same with another start.
    #[must_use]
    pub fn with_start(self, start: Start) -> Self {
        Self { start, ..self }
    }

    /// The same with another policy.
    #[must_use]
    pub fn with_lag(self, lag: Lag) -> Self {
        Self { lag, ..self }
    }
}

impl Default for SubscribeOptions {
    fn default() -> Self {
        Self { start: Start::Now, lag: Lag::CatchUp }
    }
}

impl From<Start> for SubscribeOptions {
    fn from(start: Start) -> Self {
        Self { start, ..Self::default() }
    }
}

impl From<Lag> for SubscribeOptions {
    fn from(lag: Lag) -> Self {
        Self { lag, ..Self::default() }
    }
}
