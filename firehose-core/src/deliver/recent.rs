//! The ids of what a topic handed out lately, to tell a duplicate from a message that took another's place. Pure.

use std::collections::{BTreeMap, VecDeque};

use crate::message::{MessageId, Sequence};

/// How many messages are remembered.
const REMEMBERED: usize = 32;

/// How many of those that may turn out never to have been committed; of more, the oldest are taken for real.
const DOUBTFUL: usize = 1_024;

/// What was handed out, newest last.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    last: VecDeque<(Sequence, MessageId)>,
    /// Announced by a writer that may do so before its commit, and not compared with the store yet.
    doubtful: BTreeMap<Sequence, MessageId>,
}

impl Recent {
    pub(crate) fn remember(&mut self, sequence: Sequence, id: MessageId) {
        if self.last.len() == REMEMBERED {
            self.last.pop_front();
        }
        self.last.push_back((sequence, id));
    }

    /// As [`Self::remember`], and the store is to be asked whether it is there.
    pub(crate) fn doubt(&mut self, sequence: Sequence, id: MessageId) {
        self.remember(sequence, id);
        self.doubtful.insert(sequence, id);
        if self.doubtful.len() > DOUBTFUL {
            self.doubtful.pop_first();
        }
    }

    pub(crate) fn recall(&self, sequence: Sequence) -> Option<MessageId> {
        let last = || self.last.iter().rev().find(|(s, _)| *s == sequence).map(|(_, id)| *id);
        self.doubtful.get(&sequence).copied().or_else(last)
    }

    /// The store has it.
    pub(crate) fn settle(&mut self, sequence: Sequence) {
        self.doubtful.remove(&sequence);
    }

    /// What the store is to be asked about, oldest first.
    pub(crate) fn doubtful(&self) -> impl Iterator<Item = (Sequence, MessageId)> {
        self.doubtful.iter().map(|(sequence, id)| (*sequence, *id))
    }

    /// What was handed out ends with `sequence` now.
    pub(crate) fn forget_after(&mut self, sequence: Sequence) {
        self.last.retain(|(s, _)| *s <= sequence);
        self.doubtful.retain(|s, _| *s <= sequence);
    }

    /// Another history begins.
    pub(crate) fn clear(&mut self) {
        self.last.clear();
        self.doubtful.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_doubtful_are_kept_longer_than_the_last_and_are_bounded() {
        let mut recent = Recent::default();
        (1..=100).for_each(|n| recent.doubt(Sequence(n), MessageId(n * 10)));
        assert_eq!(recent.recall(Sequence(1)), Some(MessageId(10)));
        recent.settle(Sequence(1));
        assert_eq!((recent.recall(Sequence(1)), recent.recall(Sequence(100))), (None, Some(MessageId(1_000))));
        recent.forget_after(Sequence(50));
        assert_eq!((recent.doubtful().count(), recent.recall(Sequence(51))), (49, None));
        (51..=5_000).for_each(|n| recent.doubt(Sequence(n), MessageId(n * 10)));
        assert_eq!(recent.doubtful().count(), DOUBTFUL);
        recent.clear();
        assert_eq!(recent.recall(Sequence(5_000)), None);
    }
}
