//! What changed in a store since it was asked before.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::store::Head;
use crate::message::MessageId;
use crate::stream::StreamName;

/// How far a store's answers to [`changed_since`](crate::MessageStore::changed_since) have come. What is in it is the
/// store's own affair.
///
/// ```
/// # use firehose_core::SweepMark;
/// struct Position(u64);
///
/// let mark = SweepMark::new(Position(7));
/// assert_eq!(mark.get::<Position>().map(|position| position.0), Some(7));
/// assert!(SweepMark::START.get::<Position>().is_none());
/// ```
#[derive(Clone, Default)]
pub struct SweepMark(Option<Arc<dyn Any + Send + Sync>>);

impl SweepMark {
    /// Before the first answer.
    pub const START: Self = Self(None);

    /// A mark with what the store wants to find again.
    pub fn new(state: impl Any + Send + Sync) -> Self {
        Self(Some(Arc::new(state)))
    }

    /// What [`Self::new`] was given; `None` at the start, and where it was another type, as another store's is.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.as_deref()?.downcast_ref()
    }
}

impl fmt::Debug for SweepMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "SweepMark(…)" } else { "SweepMark(START)" })
    }
}

/// What changed in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Changed {
    /// These streams, and no others; each with its head.
    Streams(Vec<(StreamName, Head)>),
    /// The store cannot say: the heads have to be read.
    Unknown,
}

/// For stores whose transactions commit out of order: the id up to which every message is visible, or never will be.
///
/// A message's id is no such thing by itself: one with a lower id may be in a transaction that is still open. So the
/// highest id of one look becomes safe at a later look, when every transaction that could have drawn a lower one has
/// ended. That is known where a writer has a transaction number, from a counter, before it draws a message's id: then all
/// of those have numbers below what the counter stood at when the first look was taken.
///
/// "What the counter stood at" is the next number to be given out. The number after the last one that *ended* is not
/// enough: who drew a later number, and a lower id, may be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SafeId {
    safe: Option<MessageId>,
    /// The highest id of a look, and the number below which all have to have ended.
    candidate: Option<(MessageId, u64)>,
}

/// One look at a store: all of it of one snapshot, but for [`next`](Self::next), which may be read later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The highest id that is visible; 0 where there is no message.
    pub highest: MessageId,
    /// The lowest number of a transaction that has not ended, or a lower bound: all below it have ended.
    pub oldest_open: u64,
    /// A number above all that were given out when the snapshot was taken.
    pub next: u64,
}

impl SafeId {
    /// The id; `None` until one is known. Where a look finds the highest id below it, it is of another history, and void.
    pub fn get(&self) -> Option<MessageId> {
        self.safe
    }

    /// What a look makes of it, for the next look: all that is visible up to the id was visible to this one.
    #[must_use]
    pub fn after(mut self, look: Look) -> Self {
        if self.safe.max(self.candidate.map(|(highest, _)| highest)) > Some(look.highest) {
            // Another history, or one that was trimmed; in both it begins anew.
            self = Self::default();
        }
        if let Some((highest, until)) = self.candidate
            && look.oldest_open >= until
        {
            self.safe = self.safe.max(Some(highest));
            self.candidate = None;
        }
        if look.oldest_open >= look.next {
            self.safe = self.safe.max(Some(look.highest));
        } else {
            self.candidate.get_or_insert((look.highest, look.next));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn look(highest: i64, oldest_open: u64, next: u64) -> Look {
        Look { highest: MessageId(highest), oldest_open, next }
    }

    fn safe(looks: &[Look]) -> Option<i64> {
        looks.iter().fold(SafeId::default(), |safe, look| safe.after(*look)).get().map(|id| id.0)
    }

    #[test]
    fn an_id_is_safe_when_all_who_were_open_have_ended() {
        assert_eq!(safe(&[look(10, 7, 7)]), Some(10), "nobody is open");
        assert_eq!(safe(&[look(10, 5, 7)]), None);
        assert_eq!(safe(&[look(10, 5, 7), look(20, 6, 9)]), None);
        assert_eq!(safe(&[look(10, 5, 7), look(20, 6, 9), look(30, 7, 12)]), Some(10));
        assert_eq!(safe(&[look(10, 5, 7), look(20, 6, 9), look(30, 7, 12), look(40, 12, 15)]), Some(30));
        let stands_still: Vec<_> = (0..9).map(|n| look(10 + n, 5, 7 + n.unsigned_abs())).collect();
        assert_eq!(safe(&stands_still), None, "one that stays open holds it");
    }

    #[test]
    fn a_highest_id_that_fell_begins_it_anew() {
        assert_eq!(safe(&[look(10, 7, 7), look(9, 6, 8)]), None, "it was known");
        assert_eq!(safe(&[look(10, 6, 7), look(9, 7, 8), look(9, 8, 8)]), Some(9), "it was about to be");
        assert_eq!(safe(&[look(10, 7, 7), look(0, 8, 8)]), Some(0), "trimmed to nothing");
    }

    /// A transaction as it goes: takes a number, draws an id, commits or rolls back.
    #[derive(Debug, Clone, Copy)]
    enum Do {
        Begin,
        /// Of those who have a number and no id.
        Draw(usize),
        /// Of those who are open.
        End(usize, bool),
        Look,
    }

    fn steps() -> impl Strategy<Value = Vec<Do>> {
        let one = prop_oneof![
            Just(Do::Begin),
            any::<usize>().prop_map(Do::Draw),
            (any::<usize>(), any::<bool>()).prop_map(|(at, commits)| Do::End(at, commits)),
            Just(Do::Look),
        ];
        prop::collection::vec(one, 1..120)
    }

    /// Runs `steps` with `next` as the word on the counter (given out, ended); gives the ids that became visible and that
    /// no look had above its safe id.
    fn missed(steps: &[Do], next: impl Fn(u64, u64) -> u64) -> Vec<i64> {
        let (mut given, mut ended, mut drawn) = (0, 0, 0);
        // (number, id)
        let mut open: Vec<(u64, Option<i64>)> = Vec::new();
        let (mut visible, mut unseen, mut missed) = (Vec::new(), Vec::new(), Vec::new());
        let mut safe = SafeId::default();
        for step in steps {
            match *step {
                Do::Begin => {
                    given += 1;
                    open.push((given, None));
                }
                Do::Draw(at) => {
                    let waiting: Vec<usize> = (0..open.len()).filter(|&i| open[i].1.is_none()).collect();
                    if let Some(&at) = waiting.get(at % waiting.len().max(1)) {
                        drawn += 1;
                        open[at].1 = Some(drawn);
                    }
                }
                Do::End(at, commits) if !open.is_empty() => {
                    let (number, id) = open.remove(at % open.len());
                    ended = ended.max(number);
                    visible.extend(id.filter(|_| commits));
                    unseen.extend(id.filter(|_| commits));
                }
                Do::End(..) => {}
                Do::Look => {
                    // Without a safe id all heads are read.
                    let known = safe.get().map_or(0, |id| id.0);
                    missed.extend(unseen.drain(..).filter(|id| *id <= known));
                    let highest = visible.iter().copied().max().unwrap_or(0);
                    // As a snapshot has it: what is above the last that ended counts as open.
                    let oldest_open = open.iter().map(|(n, _)| *n).min().unwrap_or(u64::MAX).min(ended + 1);
                    safe = safe.after(look(highest, oldest_open, next(given + 1, ended + 1)));
                }
            }
        }
        missed
    }

    proptest! {
        #[test]
        fn no_commit_is_missed_whatever_the_order(steps in steps()) {
            prop_assert_eq!(missed(&steps, |given, _| given), Vec::<i64>::new());
        }
    }

    #[test]
    fn the_highest_id_that_was_seen_is_not_safe() {
        // One draws 1 and stays open, another draws 2 and commits; a look; the first commits.
        let late =
            [Do::Begin, Do::Draw(0), Do::Begin, Do::Draw(0), Do::End(1, true), Do::Look, Do::End(0, true), Do::Look];
        assert_eq!(missed(&late, |_, _| 0), [1], "as if nobody were ever waited for");
        assert_eq!(missed(&late, |given, _| given), Vec::<i64>::new());
    }

    #[test]
    fn the_number_after_the_last_that_ended_is_not_enough() {
        // The later number draws the lower id.
        let late =
            [Do::Begin, Do::Begin, Do::Draw(1), Do::Draw(0), Do::End(0, true), Do::Look, Do::End(0, true), Do::Look];
        assert_eq!(missed(&late, |_, ended| ended), [1]);
        assert_eq!(missed(&late, |given, _| given), Vec::<i64>::new());
    }
}
