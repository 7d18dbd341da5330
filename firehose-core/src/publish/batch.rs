//! What waits to be stored, in lanes of one stream each. Pure.
//!
//! All that waits when a batch leaves is the next batch. At most one batch in flight holds a given stream, so the order of
//! acceptance is the order of sequence. A stream that someone else's transaction holds waits in its lane, alone.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::message::NewMessage;
use crate::stream::StreamName;

/// A broadcast that waits, with what is owed to its caller.
#[derive(Debug)]
pub(crate) struct Entry<R> {
    pub(crate) message: NewMessage,
    pub(crate) reply: R,
    /// How often it was given to the store already.
    pub(crate) tries: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// In the queue for the next batch.
    Ready,
    /// In the queue of those that wait for someone's transaction.
    Blocked,
    InFlight,
}

#[derive(Debug)]
struct Lane<R> {
    waiting: VecDeque<Entry<R>>,
    phase: Phase,
}

/// The lanes of all streams that have something waiting or in flight.
#[derive(Debug)]
pub(crate) struct Lanes<R> {
    lanes: FxHashMap<StreamName, Lane<R>>,
    ready: VecDeque<StreamName>,
    blocked: VecDeque<StreamName>,
    waiting: usize,
    in_flight: usize,
    most_waiting: usize,
    closed: bool,
}

/// Why a broadcast was not taken in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    TooMany,
    Closed,
}

impl<R> Lanes<R> {
    pub(crate) fn new(most_waiting: usize) -> Self {
        Self {
            lanes: FxHashMap::default(),
            ready: VecDeque::new(),
            blocked: VecDeque::new(),
            waiting: 0,
            in_flight: 0,
            most_waiting,
            closed: false,
        }
    }

    /// Takes a broadcast in.
    pub(crate) fn push(&mut self, message: NewMessage, reply: R) -> Result<(), Refused> {
        let entry = Entry { message, reply, tries: 0 };
        if self.closed {
            return Err(Refused::Closed);
        }
        if self.waiting >= self.most_waiting {
            return Err(Refused::TooMany);
        }
        self.waiting += 1;
        if let Some(lane) = self.lanes.get_mut(&entry.message.stream) {
            lane.waiting.push_back(entry);
        } else {
            let stream = entry.message.stream.clone();
            self.ready.push_back(stream.clone());
            self.lanes.insert(stream, Lane { waiting: VecDeque::from([entry]), phase: Phase::Ready });
        }
        Ok(())
    }

    /// The next batch: whole lanes in the order in which they became ready, up to `most` entries.
    pub(crate) fn next_batch(&mut self, most: usize) -> Option<Vec<Entry<R>>> {
        let mut batch = Vec::new();
        while batch.len() < most
            && let Some(stream) = self.ready.pop_front()
        {
            self.depart(&stream, most, &mut batch);
        }
        (!batch.is_empty()).then_some(batch)
    }

    /// The next lane that has to wait for someone else's transaction.
    pub(crate) fn next_blocked(&mut self, most: usize) -> Option<Vec<Entry<R>>> {
        let stream = self.blocked.pop_front()?;
        let mut batch = Vec::new();
        self.depart(&stream, most, &mut batch);
        (!batch.is_empty()).then_some(batch)
    }

    fn depart(&mut self, stream: &StreamName, most: usize, batch: &mut Vec<Entry<R>>) {
        let Some(lane) = self.lanes.get_mut(stream) else { return };
        lane.phase = Phase::InFlight;
        let count = lane.waiting.len().min(most - batch.len());
        batch.extend(lane.waiting.drain(..count));
        self.waiting -= count;
        self.in_flight += count;
    }

    /// A batch is back. `again` are those of its entries that have to be stored yet, in order.
    ///
    /// `blocked` says whether they wait for someone's transaction.
    pub(crate) fn arrived(&mut self, streams: &[StreamName], entries: usize, again: Vec<Entry<R>>, blocked: bool) {
        self.in_flight -= entries;
        self.waiting += again.len();
        for entry in again.into_iter().rev() {
            if let Some(lane) = self.lanes.get_mut(&entry.message.stream) {
                lane.phase = if blocked { Phase::Blocked } else { Phase::Ready };
                lane.waiting.push_front(entry);
            }
        }
        for stream in streams {
            let Some(lane) = self.lanes.get_mut(stream) else { continue };
            match lane.phase {
                _ if lane.waiting.is_empty() => drop(self.lanes.remove(stream)),
                Phase::Blocked => self.blocked.push_back(stream.clone()),
                Phase::Ready | Phase::InFlight => {
                    lane.phase = Phase::Ready;
                    self.ready.push_back(stream.clone());
                }
            }
        }
    }

    /// How many wait, or are being stored.
    pub(crate) fn load(&self) -> usize {
        self.waiting + self.in_flight
    }

    /// Takes nothing in any more, and gives everything that waits; what is in flight stays.
    pub(crate) fn close(&mut self) -> Vec<Entry<R>> {
        self.closed = true;
        self.ready.clear();
        self.blocked.clear();
        self.waiting = 0;
        let mut all = Vec::new();
        self.lanes.retain(|_, lane| {
            all.extend(lane.waiting.drain(..));
            lane.phase == Phase::InFlight
        });
        all
    }

    /// The driver was started anew: what was in flight is nobody's any more.
    pub(crate) fn forget_in_flight(&mut self) {
        self.in_flight = 0;
        let ready = &mut self.ready;
        self.lanes.retain(|stream, lane| {
            if lane.phase == Phase::InFlight && !lane.waiting.is_empty() {
                lane.phase = Phase::Ready;
                ready.push_back(stream.clone());
            }
            !lane.waiting.is_empty()
        });
    }
}

/// Which entries of a batch may be given to the store again: those after which nothing of their stream was stored. One
/// that went again behind a later one would get a higher sequence than that.
pub(crate) fn may_go_again<'a>(outcomes: impl DoubleEndedIterator<Item = (&'a StreamName, bool)>) -> Vec<bool> {
    let mut stored_later = FxHashSet::default();
    let mut may: Vec<bool> = outcomes
        .rev()
        .map(|(stream, stored)| {
            if stored {
                stored_later.insert(stream);
            }
            !stored_later.contains(stream)
        })
        .collect();
    may.reverse();
    may
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(most: usize) -> Lanes<u32> {
        Lanes::new(most)
    }

    fn push(lanes: &mut Lanes<u32>, stream: &str, reply: u32) {
        lanes.push(NewMessage::new(stream, "x").unwrap(), reply).unwrap();
    }

    fn replies(batch: Option<Vec<Entry<u32>>>) -> Vec<u32> {
        batch.into_iter().flatten().map(|e| e.reply).collect()
    }

    fn names(names: &[&str]) -> Vec<StreamName> {
        names.iter().map(|n| StreamName::new(n).unwrap()).collect()
    }

    #[test]
    fn all_that_waits_is_the_next_batch() {
        let mut l = lanes(10);
        push(&mut l, "a", 1);
        push(&mut l, "b", 2);
        push(&mut l, "a", 3);
        assert_eq!(replies(l.next_batch(100)), [1, 3, 2], "in order within a stream");
        assert!(replies(l.next_batch(100)).is_empty());
    }

    #[test]
    fn a_stream_is_in_one_batch_at_a_time() {
        let mut l = lanes(10);
        push(&mut l, "a", 1);
        assert_eq!(replies(l.next_batch(100)), [1]);
        push(&mut l, "a", 2);
        push(&mut l, "b", 3);
        assert_eq!(replies(l.next_batch(100)), [3]);
        l.arrived(&names(&["a"]), 1, vec![], false);
        assert_eq!(replies(l.next_batch(100)), [2]);
    }

    #[test]
    fn a_batch_is_bounded_and_a_busy_stream_takes_turns() {
        let mut l = lanes(10);
        (0..5).for_each(|n| push(&mut l, "busy", n));
        push(&mut l, "b", 9);
        assert_eq!(replies(l.next_batch(3)), [0, 1, 2]);
        l.arrived(&names(&["busy"]), 3, vec![], false);
        assert_eq!(replies(l.next_batch(3)), [9, 3, 4]);
    }

    #[test]
    fn what_was_not_stored_goes_first_in_its_lane() {
        let mut l = lanes(10);
        push(&mut l, "a", 1);
        push(&mut l, "a", 2);
        let batch = l.next_batch(100).unwrap();
        push(&mut l, "a", 3);
        l.arrived(&names(&["a"]), 2, batch, false);
        assert_eq!(replies(l.next_batch(100)), [1, 2, 3]);
    }

    #[test]
    fn a_blocked_stream_waits_alone() {
        let mut l = lanes(10);
        push(&mut l, "held", 1);
        push(&mut l, "free", 2);
        let mut batch = l.next_batch(100).unwrap();
        let held: Vec<_> = batch.drain(..1).collect();
        l.arrived(&names(&["held", "free"]), 2, held, true);
        push(&mut l, "held", 3);
        push(&mut l, "free", 4);
        assert_eq!(replies(l.next_batch(100)), [4]);
        assert_eq!(replies(l.next_blocked(100)), [1, 3]);
        assert!(replies(l.next_blocked(100)).is_empty());
        l.arrived(&names(&["held"]), 2, vec![], true);
        l.arrived(&names(&["free"]), 1, vec![], false);
        assert_eq!((l.load(), l.lanes.len()), (0, 0));
    }

    #[test]
    fn too_many_are_refused() {
        let mut l = lanes(2);
        push(&mut l, "a", 1);
        push(&mut l, "b", 2);
        assert_eq!(l.push(NewMessage::new("c", "x").unwrap(), 3), Err(Refused::TooMany));
        assert_eq!(l.close().len(), 2);
        assert_eq!(l.push(NewMessage::new("c", "x").unwrap(), 3), Err(Refused::Closed));
    }

    #[test]
    fn a_new_driver_finds_what_still_waits() {
        let mut l = lanes(10);
        push(&mut l, "a", 1);
        l.next_batch(100);
        push(&mut l, "a", 2);
        l.forget_in_flight();
        assert_eq!((replies(l.next_batch(100)), l.load()), (vec![2], 1));
    }

    #[test]
    fn what_a_later_one_overtook_does_not_go_again() {
        let (a, b) = (StreamName::new("a").unwrap(), StreamName::new("b").unwrap());
        let outcomes = [(&a, false), (&b, false), (&a, true), (&a, false), (&b, false)];
        assert_eq!(may_go_again(outcomes.into_iter()), [false, true, false, true, true]);
    }
}
