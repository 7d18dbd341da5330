//! What changed since a look before.

use std::collections::BTreeMap;

use firehose_core::{Changed, HeadDetail, Look, MessageId, SafeId, StreamName, SweepMark};

use super::Database;

/// Where a look stood, and in which history.
struct Mark {
    restored_at: u64,
    safe: SafeId,
}

impl Database {
    /// The streams of the messages that the look before may not have seen, where these are at most `most`.
    pub(crate) fn changed_since(&self, mark: &SweepMark, most: usize) -> (Changed, SweepMark) {
        let state = self.state();
        let highest = state.tables.highest_id();
        // A restored database is another one, and ids below the mark are those of another history.
        let mark = mark.get::<Mark>().filter(|mark| mark.restored_at == state.restored_at);
        let safe = mark.map_or_else(SafeId::default, |mark| mark.safe);
        let changed = safe.get().filter(|safe| *safe <= highest).and_then(|safe| {
            let mut streams = BTreeMap::<&StreamName, MessageId>::new();
            for (count, message) in state.tables.messages_after(safe).enumerate() {
                if count == most {
                    return None;
                }
                streams.insert(&message.stream, message.id);
            }
            let heads = streams.into_iter().filter_map(|(stream, newest)| {
                let head = state.tables.channel(stream.as_str())?.head(HeadDetail::Cheap);
                Some((stream.clone(), head.with_retained(Some(newest), None)))
            });
            Some(Changed::Streams(heads.collect()))
        });
        let next = state.transactions + 1;
        let oldest_open = state.open.first().map_or(next, |id| id.0);
        let mark = Mark { restored_at: state.restored_at, safe: safe.after(Look { highest, oldest_open, next }) };
        (changed.unwrap_or(Changed::Unknown), SweepMark::new(mark))
    }
}
