//! Trimming: a prefix of a stream, never its row.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use firehose_core::{Retain, Scope, Sequence, Timestamp, Trimmed};

use super::Database;
use super::tables::Channel;

/// The right to trim all streams; given back when it is dropped.
pub(crate) struct TrimsAll(Arc<AtomicBool>);

impl Drop for TrimsAll {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Database {
    /// The right to trim all streams, which one has at a time.
    pub(crate) fn try_trim_all(&self) -> Option<TrimsAll> {
        let free = self.trimming.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        free.then(|| TrimsAll(self.trimming.clone()))
    }

    /// Removes a stream's messages up to `sequence`, whatever their age; says how many went.
    pub fn trim_to(&self, stream: &str, sequence: Sequence) -> u64 {
        let mut state = self.state();
        let rows = state.tables.channel(stream).into_iter().flat_map(Channel::rows);
        let count = rows.take_while(|row| row.message.sequence <= sequence).count();
        state.tables.remove_oldest(stream, count);
        count as u64
    }

    /// Removes what `retain` does not keep, at most `budget` messages. Only messages are touched, so it waits for nobody.
    pub(crate) fn trim(&self, scope: &Scope, retain: Retain, budget: u64) -> Trimmed {
        let now = self.timestamp();
        let mut state = self.state();
        let streams = match scope {
            Scope::Stream(stream) => vec![stream.clone()],
            Scope::All => state.tables.names().cloned().collect(),
        };
        let mut trimmed = Trimmed::default();
        for stream in streams {
            let Some(channel) = state.tables.channel(stream.as_str()) else { continue };
            let due = due(channel, retain, now);
            let allowed = usize::try_from(budget - trimmed.messages).unwrap_or(usize::MAX);
            trimmed.more |= due > allowed;
            let count = due.min(allowed);
            state.tables.remove_oldest(stream.as_str(), count);
            trimmed.messages += count as u64;
        }
        trimmed
    }
}

/// How many of the oldest messages are to go: up to the first that stays.
fn due(channel: &Channel, retain: Retain, now: Timestamp) -> usize {
    let micros = |age: std::time::Duration| i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
    let keep = retain.messages.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let surplus = channel.rows().len().saturating_sub(keep);
    let goes = |place: usize, created_at: Timestamp| {
        let age = now.0.saturating_sub(created_at.0);
        let too_many = place < surplus;
        let too_old = retain.max_age.is_some_and(|max| age > micros(max));
        (too_many || too_old) && age >= micros(retain.min_age)
    };
    let rows = channel.rows().enumerate();
    rows.take_while(|(place, row)| row.message.created_at.is_some_and(|at| goes(*place, at))).count()
}
