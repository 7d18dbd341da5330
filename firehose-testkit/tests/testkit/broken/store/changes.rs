//! Faults of what changed since a mark.

use firehose_core::{Changed, MessageId, Result, SweepMark};

use super::broken::{BrokenStore, Fault};

/// The mark of the store in memory, and the highest id that was told by then.
struct Mark {
    inner: SweepMark,
    highest: Option<MessageId>,
}

impl BrokenStore {
    pub(super) async fn changes_with_fault(&self, mark: SweepMark, most: usize) -> Result<(Changed, SweepMark)> {
        let ours = if self.is(Fault::MarkOfTheStore) { &self.memory().mark.clone() } else { &mark };
        let (inner, highest) =
            ours.get::<Mark>().map_or((SweepMark::START, None), |mark| (mark.inner.clone(), mark.highest));
        // The suite's is one of these.
        let foreign = mark.get::<String>().is_some();
        let (mut changed, inner) = self.inner.changed_since(inner, most).await?;
        let mut told = highest;
        match &mut changed {
            Changed::Streams(streams) => {
                told = streams.iter().filter_map(|(_, head)| head.last_id).max().max(highest);
                if self.is(Fault::HighestIdIsSafe) {
                    streams.retain(|(_, head)| head.last_id > highest);
                }
                for (_, head) in streams {
                    *head = self.head_out(*head);
                }
            }
            // All that is more than may be looked at goes untold.
            _ if self.is(Fault::BoundForgets) && most < 100 => changed = Changed::Streams(Vec::new()),
            _ if self.is(Fault::ForeignMarkIsNow) && foreign => changed = Changed::Streams(Vec::new()),
            _ => {}
        }
        let mark = SweepMark::new(Mark { inner, highest: told });
        self.memory().mark = mark.clone();
        Ok((changed, mark))
    }
}
