//! Stored messages that wait to be announced, and the streams whose announcements could not be kept. Pure.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::message::Message;
use crate::stream::StreamName;

/// A bounded queue. What does not fit is dropped, and its stream is marked: it is announced once when there is room, by
/// its newest message, and who hears that reads what it missed.
#[derive(Debug)]
pub(crate) struct Announcements {
    waiting: VecDeque<Arc<Message>>,
    marked: FxHashMap<StreamName, Arc<Message>>,
    most: usize,
}

impl Announcements {
    pub(crate) fn new(most: usize) -> Self {
        Self { waiting: VecDeque::new(), marked: FxHashMap::default(), most }
    }

    /// Takes a message in; `false` where it was dropped and its stream is marked instead.
    pub(crate) fn push(&mut self, message: Arc<Message>) -> bool {
        if self.waiting.len() < self.most {
            self.waiting.push_back(message);
            return true;
        }
        self.mark(message);
        false
    }

    /// The stream of `message` is to be announced again, by that message or a newer one.
    pub(crate) fn mark(&mut self, message: Arc<Message>) {
        // As many marks as announcements; beyond them the sweep finds what is stored.
        if self.marked.len() >= self.most && !self.marked.contains_key(&message.stream) {
            return;
        }
        // Kept without its data: who hears it has to read the store anyway.
        let mut light = Message::clone(&message);
        light.data = "".into();
        let newest = self.marked.entry(message.stream.clone()).or_insert_with(|| Arc::new(light.clone()));
        if (newest.channel_id, newest.sequence) < (message.channel_id, message.sequence) {
            *newest = Arc::new(light);
        }
    }

    /// The next to announce: what waits, then, where there is room, marked streams. The second value tells whether the
    /// message goes without its data.
    pub(crate) fn next(&mut self, most: usize) -> Vec<(Arc<Message>, bool)> {
        let count = self.waiting.len().min(most);
        let mut batch: Vec<_> = self.waiting.drain(..count).map(|m| (m, false)).collect();
        if self.waiting.is_empty() {
            let room = most - batch.len();
            let names: Vec<_> = self.marked.keys().take(room).cloned().collect();
            batch.extend(names.iter().filter_map(|name| Some((self.marked.remove(name)?, true))));
        }
        batch
    }

    /// How many wait; a marked stream counts as one.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.marked.len()
    }

    /// Everything that was not announced: a message each, and the newest of each marked stream.
    pub(crate) fn take_all(&mut self) -> Vec<Arc<Message>> {
        self.waiting.drain(..).chain(self.marked.drain().map(|(_, m)| m)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Epoch, MessageId, Sequence};

    fn message(stream: &str, sequence: i64) -> Arc<Message> {
        let stream = StreamName::new(stream).unwrap();
        Arc::new(Message::new(MessageId(sequence), Epoch(1), Sequence(sequence), stream, "data".into()))
    }

    fn told(batch: Vec<(Arc<Message>, bool)>) -> Vec<(String, i64, bool)> {
        let mut told: Vec<_> =
            batch.into_iter().map(|(m, light)| (m.stream.to_string(), m.sequence.0, light)).collect();
        told.sort_by_key(|(stream, sequence, light)| (*light, stream.clone(), *sequence));
        told
    }

    #[test]
    fn what_was_dropped_is_made_up_for_once_a_stream() {
        let mut q = Announcements::new(2);
        assert!(q.push(message("a", 1)) && q.push(message("a", 2)));
        for sequence in 3..100 {
            assert!(!q.push(message("a", sequence)));
        }
        assert!(!q.push(message("b", 7)));
        assert_eq!(told(q.next(2)), [("a".into(), 1, false), ("a".into(), 2, false)]);
        assert_eq!(told(q.next(10)), [("a".into(), 99, true), ("b".into(), 7, true)]);
        assert_eq!((told(q.next(10)), q.len()), (vec![], 0));
    }

    #[test]
    fn an_older_failure_does_not_hide_a_newer_message() {
        let mut q = Announcements::new(2);
        q.mark(message("a", 5));
        q.mark(message("a", 3));
        assert_eq!(told(q.next(1)), [("a".into(), 5, true)]);
    }

    #[test]
    fn marks_are_bounded() {
        let mut q = Announcements::new(3);
        (0..10).for_each(|n| q.mark(message(&n.to_string(), 1)));
        assert_eq!(q.len(), 3);
    }
}
