//! What should be listened to, against what the session acknowledged. Pure.
//!
//! First connect, reconnect, a subscriber that flaps and a LISTEN that failed are one path: the driver asks for the next
//! command until there is none.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::stream::ChannelIdentifier;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Not listened to, and in the queue if it is wanted.
    Absent,
    /// LISTEN is under way.
    Asking,
    Listening,
    /// UNLISTEN is under way.
    Leaving,
    /// LISTEN was refused; waits for [`Registry::retry_refused`].
    Refused,
}

#[derive(Debug)]
struct Entry {
    wanted: usize,
    phase: Phase,
}

/// What the driver does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    Listen(Vec<ChannelIdentifier>),
    Unlisten(Vec<ChannelIdentifier>),
}

/// The channels that should be listened to.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    entries: FxHashMap<ChannelIdentifier, Entry>,
    to_listen: VecDeque<ChannelIdentifier>,
    to_unlisten: VecDeque<ChannelIdentifier>,
    refused: Vec<ChannelIdentifier>,
    /// After a batch was refused its channels are tried one at a time, to find the one that is at fault.
    singly: usize,
}

impl Registry {
    /// One more wants `channel`.
    pub(crate) fn want(&mut self, channel: &ChannelIdentifier) {
        let entry = self.entries.entry(channel.clone()).or_insert(Entry { wanted: 0, phase: Phase::Absent });
        entry.wanted += 1;
        if entry.wanted == 1 && entry.phase == Phase::Absent {
            self.to_listen.push_back(channel.clone());
            self.compact();
        }
    }

    /// Forgets what came and went while no session asked: the queue stays as small as what is wanted.
    fn compact(&mut self) {
        if self.to_listen.len() > 2 * self.entries.len() + 64 {
            let mut seen = rustc_hash::FxHashSet::default();
            let entries = &self.entries;
            self.to_listen.retain(|channel| entries.contains_key(channel) && seen.insert(channel.clone()));
        }
    }

    /// One less wants it.
    pub(crate) fn release(&mut self, channel: &ChannelIdentifier) {
        let Some(entry) = self.entries.get_mut(channel) else { return };
        entry.wanted = entry.wanted.saturating_sub(1);
        if entry.wanted == 0 {
            match entry.phase {
                Phase::Listening => self.to_unlisten.push_back(channel.clone()),
                Phase::Absent | Phase::Refused => drop(self.entries.remove(channel)),
                Phase::Asking | Phase::Leaving => {}
            }
        }
    }

    /// Whether the session listens to `channel`, for certain.
    pub(crate) fn is_listening(&self, channel: &ChannelIdentifier) -> bool {
        self.entries.get(channel).is_some_and(|e| e.phase == Phase::Listening)
    }

    /// How many channels are wanted.
    pub(crate) fn wanted(&self) -> usize {
        self.entries.values().filter(|e| e.wanted > 0).count()
    }

    /// The next command, of at most `most` channels. One at a time may be under way.
    pub(crate) fn next_command(&mut self, most: usize) -> Option<Command> {
        let most = if self.singly > 0 { 1 } else { most };
        let mut batch = Vec::new();
        while batch.len() < most
            && let Some(channel) = self.to_listen.pop_front()
        {
            if let Some(entry) = self.entries.get_mut(&channel)
                && entry.wanted > 0
                && entry.phase == Phase::Absent
            {
                entry.phase = Phase::Asking;
                batch.push(channel);
            }
        }
        if !batch.is_empty() {
            self.singly = self.singly.saturating_sub(1);
            return Some(Command::Listen(batch));
        }
        self.singly = 0;
        while batch.len() < most
            && let Some(channel) = self.to_unlisten.pop_front()
        {
            if let Some(entry) = self.entries.get_mut(&channel)
                && entry.wanted == 0
                && entry.phase == Phase::Listening
            {
                entry.phase = Phase::Leaving;
                batch.push(channel);
            }
        }
        (!batch.is_empty()).then_some(Command::Unlisten(batch))
    }

    /// LISTEN on `channels` was acknowledged.
    pub(crate) fn listened(&mut self, channels: &[ChannelIdentifier]) {
        for channel in channels {
            if let Some(entry) = self.entries.get_mut(channel) {
                entry.phase = Phase::Listening;
                if entry.wanted == 0 {
                    self.to_unlisten.push_back(channel.clone());
                }
            }
        }
    }

    /// UNLISTEN of `channels` was acknowledged.
    pub(crate) fn unlistened(&mut self, channels: &[ChannelIdentifier]) {
        for channel in channels {
            match self.entries.get_mut(channel) {
                Some(entry) if entry.wanted > 0 => {
                    entry.phase = Phase::Absent;
                    self.to_listen.push_back(channel.clone());
                }
                Some(_) => drop(self.entries.remove(channel)),
                None => {}
            }
        }
    }

    /// LISTEN was refused while the session lives. Gives the channel at fault, where it is known: the only one.
    pub(crate) fn refused(&mut self, channels: &[ChannelIdentifier]) -> Option<ChannelIdentifier> {
        if let [channel] = channels {
            match self.entries.get_mut(channel) {
                Some(entry) if entry.wanted > 0 => {
                    entry.phase = Phase::Refused;
                    self.refused.push(channel.clone());
                }
                Some(_) => drop(self.entries.remove(channel)),
                None => {}
            }
            return Some(channel.clone());
        }
        for channel in channels.iter().rev() {
            match self.entries.get_mut(channel) {
                Some(entry) if entry.wanted > 0 => {
                    entry.phase = Phase::Absent;
                    self.to_listen.push_front(channel.clone());
                }
                Some(_) => drop(self.entries.remove(channel)),
                None => {}
            }
        }
        self.singly = self.singly.max(channels.len());
        None
    }

    /// UNLISTEN was refused: the registration stays, and is given up with the session.
    pub(crate) fn stuck(&mut self, channels: &[ChannelIdentifier]) {
        for channel in channels {
            if let Some(entry) = self.entries.get_mut(channel) {
                entry.phase = Phase::Listening;
            }
        }
    }

    /// Whether there are channels that were refused.
    pub(crate) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// What was refused is tried again.
    pub(crate) fn retry_refused(&mut self) {
        for channel in std::mem::take(&mut self.refused) {
            if let Some(entry) = self.entries.get_mut(&channel)
                && entry.phase == Phase::Refused
            {
                entry.phase = Phase::Absent;
                self.to_listen.push_back(channel);
            }
        }
    }

    /// The session is gone, and all it knew: everything wanted is to be asked for again.
    pub(crate) fn session_lost(&mut self) {
        self.entries.retain(|_, entry| entry.wanted > 0);
        self.to_unlisten.clear();
        self.refused.clear();
        self.singly = 0;
        self.to_listen.clear();
        for (channel, entry) in &mut self.entries {
            entry.phase = Phase::Absent;
            self.to_listen.push_back(channel.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ch(name: &str) -> ChannelIdentifier {
        ChannelIdentifier::new(name).unwrap()
    }

    fn listen(names: &[&str]) -> Option<Command> {
        Some(Command::Listen(names.iter().map(|n| ch(n)).collect()))
    }

    fn unlisten(names: &[&str]) -> Option<Command> {
        Some(Command::Unlisten(names.iter().map(|n| ch(n)).collect()))
    }

    fn listening(names: &[&str]) -> Registry {
        let mut r = Registry::default();
        names.iter().for_each(|n| r.want(&ch(n)));
        while let Some(Command::Listen(batch)) = r.next_command(100) {
            r.listened(&batch);
        }
        r
    }

    #[test]
    fn many_go_in_one_command_and_a_second_subscriber_in_none() {
        let mut r = Registry::default();
        for name in ["a", "b", "c", "a"] {
            r.want(&ch(name));
        }
        assert_eq!(r.next_command(2), listen(&["a", "b"]));
        r.listened(&[ch("a"), ch("b")]);
        assert_eq!(r.next_command(2), listen(&["c"]));
        assert_eq!((r.next_command(2), r.wanted()), (None, 3));
    }

    #[test]
    fn the_last_release_unlistens() {
        let mut r = listening(&["a"]);
        r.want(&ch("a"));
        r.release(&ch("a"));
        assert_eq!(r.next_command(9), None);
        r.release(&ch("a"));
        assert_eq!(r.next_command(9), unlisten(&["a"]));
        r.unlistened(&[ch("a")]);
        assert_eq!((r.next_command(9), r.entries.len()), (None, 0));
    }

    #[test]
    fn fault_39_a_subscriber_that_comes_while_the_last_one_leaves_is_not_deaf() {
        let mut r = listening(&["a"]);
        r.release(&ch("a"));
        r.want(&ch("a"));
        assert_eq!(r.next_command(9), None, "it never stopped");
        r.release(&ch("a"));
        assert_eq!(r.next_command(9), unlisten(&["a"]));
        r.want(&ch("a"));
        assert_eq!(r.next_command(9), None, "UNLISTEN is under way");
        r.unlistened(&[ch("a")]);
        assert_eq!(r.next_command(9), listen(&["a"]));
    }

    #[test]
    fn one_that_leaves_while_it_is_asked_for_is_given_up_afterwards() {
        let mut r = Registry::default();
        r.want(&ch("a"));
        assert_eq!(r.next_command(9), listen(&["a"]));
        r.release(&ch("a"));
        r.listened(&[ch("a")]);
        assert_eq!(r.next_command(9), unlisten(&["a"]));
    }

    #[test]
    fn a_lost_session_asks_for_all_that_is_wanted() {
        let mut r = listening(&["a", "b"]);
        r.release(&ch("b"));
        r.want(&ch("c"));
        r.session_lost();
        let Some(Command::Listen(mut all)) = r.next_command(9) else { panic!() };
        all.sort();
        assert_eq!((all, r.next_command(9)), (vec![ch("a"), ch("c")], None));
    }

    #[test]
    fn a_refused_batch_is_tried_singly_and_the_one_at_fault_later() {
        let mut r = Registry::default();
        for name in ["a", "bad", "c"] {
            r.want(&ch(name));
        }
        assert_eq!(r.next_command(9), listen(&["a", "bad", "c"]));
        assert_eq!(r.refused(&[ch("a"), ch("bad"), ch("c")]), None);
        assert_eq!(r.next_command(9), listen(&["a"]));
        r.listened(&[ch("a")]);
        assert_eq!(r.next_command(9), listen(&["bad"]));
        assert_eq!(r.refused(&[ch("bad")]), Some(ch("bad")));
        assert_eq!(r.next_command(9), listen(&["c"]));
        r.listened(&[ch("c")]);
        assert_eq!(r.next_command(9), None);
        assert!(r.has_refused());
        r.retry_refused();
        assert_eq!(r.next_command(9), listen(&["bad"]));
    }

    #[test]
    fn c48_rounds_of_subscribing_leave_nothing() {
        let mut r = Registry::default();
        for _ in 0..10_000 {
            r.want(&ch("a"));
            if let Some(Command::Listen(batch)) = r.next_command(9) {
                r.listened(&batch);
            }
            r.release(&ch("a"));
            if let Some(Command::Unlisten(batch)) = r.next_command(9) {
                r.unlistened(&batch);
            }
        }
        assert_eq!((r.entries.len(), r.to_listen.len(), r.to_unlisten.len()), (0, 0, 0));
        for _ in 0..10_000 {
            r.want(&ch("a"));
            r.release(&ch("a"));
        }
        assert!(r.to_listen.len() < 100, "also while no session asks: {}", r.to_listen.len());
    }
}
