//! One stream, as this process hears of it: order, duplicates, holes. Pure: announcements, heads, pages and times go in;
//! items in order, and the time of the next read, come out.

use std::sync::Arc;
use std::time::Duration;

use super::delivery::{GapReason, Item, ResetReason};
use super::held::Held;
use super::recent::Recent;
use super::replay::{Committed, absorb};
use super::resume::{Verdict, judge};
use crate::backend::{Anchor, Head, MonoTime, Page};
use crate::cursor::Cursor;
use crate::message::{Message, Sequence};
use crate::stream::StreamName;
use crate::wire::Announcement;

/// How often a message that was announced and is not visible is looked for before only the sweep looks.
const LOOKS: u32 = 6;

/// What a topic is held to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TopicLimits {
    /// How long a hole waits for its notification.
    pub(crate) grace: Duration,
    /// The longest pause between two looks.
    pub(crate) pause: Duration,
    /// How many messages that came early are held.
    pub(crate) held: usize,
    /// How many bytes of them.
    pub(crate) held_bytes: usize,
    /// Whether what was missed without a session is read, and not only said.
    pub(crate) replay: bool,
}

/// Why the store is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    /// The sweep saw a head that nobody announced.
    Sweep,
    /// An announcement came without its data, or left a hole.
    Announced,
    /// A new session follows a lost one.
    Replay,
}

/// What a topic did since it was asked last.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) duplicates: u64,
    pub(crate) held: u64,
    pub(crate) found: u64,
    pub(crate) replayed: u64,
}

/// When the store is to be read, and why.
#[derive(Debug, Clone, Copy)]
struct Need {
    due: MonoTime,
    why: Why,
    /// Only a hole asks for it, which its own notification may close.
    hole: bool,
}

/// A read under way, as it was when it began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Read {
    /// Where it reads from.
    pub(crate) from: Cursor,
    committed: Option<Committed>,
    suspect: Option<Sequence>,
    why: Why,
    generation: u64,
}

/// The state of one subscribed stream.
#[derive(Debug)]
pub(crate) struct Topic {
    stream: StreamName,
    limits: TopicLimits,
    /// The end of what was handed out; `None` until the start is fixed.
    tail: Option<Cursor>,
    recent: Recent,
    /// What came early.
    held: Held,
    /// The highest sequence that is known, or said, to exist.
    wanted: Sequence,
    /// The highest head that the store gave.
    committed: Option<Committed>,
    /// A place whose message may be another than the one handed out: read again from before it.
    suspect: Option<Sequence>,
    /// Someone spoke of another epoch: ask the store.
    check: bool,
    /// The session was lost: until the store said that this history goes on, nothing is handed out on a mere hint.
    unverified: bool,
    /// The store was asked since, so it may be read.
    trusted: bool,
    /// When the store is to be read next, and why.
    need: Option<Need>,
    /// When who reads comes to this topic next.
    queued: Option<MonoTime>,
    reading: bool,
    /// Rises when what was handed out is taken back: a read that began before it means nothing after it.
    generation: u64,
    /// Reads in a row that brought nothing although something is wanted.
    looks: u32,
    out: Vec<Item>,
    tally: Tally,
}

impl Topic {
    pub(crate) fn new(stream: StreamName, limits: TopicLimits) -> Self {
        Self {
            stream,
            limits,
            tail: None,
            recent: Recent::default(),
            held: Held::new(limits.held, limits.held_bytes),
            wanted: Sequence::ZERO,
            committed: None,
            suspect: None,
            check: false,
            unverified: false,
            trusted: true,
            need: None,
            queued: None,
            reading: false,
            generation: 0,
            looks: 0,
            out: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// The end of what was handed out; `None` until [`Self::start`].
    pub(crate) fn tail(&self) -> Option<Cursor> {
        self.tail
    }

    /// The highest sequence that is known, or said, to exist.
    pub(crate) fn known(&self) -> Sequence {
        self.wanted.max(self.tail.map_or(Sequence::ZERO, |t| t.sequence))
    }

    /// How many messages are held because they came early.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// The highest head that the store gave, for who reads in the cursor's epoch.
    pub(crate) fn committed_in(&self, cursor: &Cursor) -> Option<Committed> {
        self.committed.filter(|(epoch, _)| cursor.epoch.is_none_or(|own| own == *epoch))
    }

    /// What is to be handed out, in order.
    pub(crate) fn take_items(&mut self) -> std::vec::Drain<'_, Item> {
        self.out.drain(..)
    }

    pub(crate) fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }

    /// The start is fixed at `head`: what was heard since LISTEN goes on from there. Later calls change nothing.
    pub(crate) fn start(&mut self, head: Option<&Head>, now: MonoTime) -> Option<MonoTime> {
        if self.tail.is_some() {
            return None;
        }
        let tail = head.map_or(Cursor::BEGINNING, Head::cursor);
        self.tail = Some(tail);
        self.committed = head.map(|h| (h.epoch, h.sequence));
        if let Some(id) = tail.id {
            self.recent.remember(tail.sequence, id);
        }
        let strangers = self.held.iter().any(|m| Some(m.channel_id) != tail.epoch);
        self.drain_held();
        if strangers {
            self.check = true;
            return self.schedule(now, Why::Announced);
        }
        self.look_again(now, Why::Announced)
    }

    /// A notification announced a message.
    pub(crate) fn announced(&mut self, announcement: Announcement, now: MonoTime) -> Option<MonoTime> {
        let (epoch, sequence, id) = (announcement.epoch, announcement.sequence, announcement.id);
        let Some(tail) = self.tail.filter(|_| !self.unverified) else {
            self.hold(announcement);
            return None;
        };
        match tail.epoch {
            Some(own) if own != epoch => {
                // Only the store's word on an epoch is believed.
                self.check = true;
                return self.schedule(now + self.limits.grace, Why::Announced);
            }
            None => {
                self.hold(announcement);
                return self.schedule(now, Why::Announced);
            }
            Some(_) => {}
        }
        if sequence <= tail.sequence {
            return match self.recent.recall(sequence) {
                Some(known) if known != id => {
                    self.suspect = Some(self.suspect.map_or(sequence, |s| s.min(sequence)));
                    self.schedule(now, Why::Announced)
                }
                _ => {
                    self.tally.duplicates += 1;
                    None
                }
            };
        }
        if sequence == tail.sequence.next() {
            match announcement.into_message() {
                Ok(message) => {
                    self.deliver(message);
                    self.drain_held();
                    self.hole_closed(now);
                    return None;
                }
                Err(announcement) => {
                    self.hold(announcement);
                    return self.schedule(now, Why::Announced);
                }
            }
        }
        if self.held.contains(sequence) {
            self.tally.duplicates += 1;
            return None;
        }
        self.tally.held += 1;
        self.hold(announcement);
        self.ask(Need { due: now + self.limits.grace, why: Why::Announced, hole: true })
    }

    /// The hole that was waited for is no more; another one waits its own time.
    fn hole_closed(&mut self, now: MonoTime) {
        let Some(need) = self.need.filter(|need| need.hole) else { return };
        self.need = (self.wanted > self.tail.map_or(Sequence::ZERO, |t| t.sequence))
            .then_some(Need { due: now + self.limits.grace, ..need });
    }

    /// The sweep read `head` when the tail was `seen`.
    pub(crate) fn swept(&mut self, head: Option<&Head>, seen: &Cursor, now: MonoTime, why: Why) -> Option<MonoTime> {
        let (tail, head) = (self.tail?, head?);
        if tail.epoch != seen.epoch {
            return None;
        }
        if tail.epoch == Some(head.epoch) {
            self.committed = self.committed.max(Some((head.epoch, head.sequence)));
            if head.sequence > tail.sequence {
                if why == Why::Replay && !self.limits.replay {
                    self.leave_out(tail, head);
                    return None;
                }
                self.wanted = self.wanted.max(head.sequence);
                return self.schedule_anew(now, why);
            }
            let (ours, theirs) = (self.recent.recall(head.sequence), head.last_id);
            if head.sequence == tail.sequence && theirs.is_some() && ours.is_some_and(|id| Some(id) != theirs) {
                self.suspect = Some(head.sequence);
                return self.schedule(now, why);
            }
            return None;
        }
        if tail.epoch.is_none() && head.sequence <= tail.sequence {
            return None;
        }
        self.committed = Some((head.epoch, head.sequence));
        if why == Why::Replay && !self.limits.replay && tail.epoch.is_none() {
            self.leave_out(tail, head);
            return None;
        }
        self.check = true;
        self.schedule_anew(now, why)
    }

    /// The session is gone, and with it the certainty that the database is what it was.
    pub(crate) fn session_lost(&mut self) {
        if self.tail.is_some() {
            self.unverified = true;
            self.trusted = false;
            // A read under way may have been answered by either.
            self.generation += 1;
        }
    }

    /// Whether the store is to be asked if this history goes on.
    pub(crate) fn unverified(&self) -> bool {
        self.unverified
    }

    /// The end of what was handed out and is known to be in the store: what is doubtful proves nothing about the history.
    pub(crate) fn proven(&self) -> Option<Cursor> {
        let tail = self.tail?;
        Some(match self.recent.doubtful().next() {
            Some((first, _)) if first <= tail.sequence => {
                let sequence = first.previous();
                Cursor { id: self.recent.recall(sequence), ..tail.moved_to(sequence) }
            }
            _ => tail,
        })
    }

    /// What was handed out and may never have been committed, as far as the store's head has come.
    pub(crate) fn doubtful(&self) -> Vec<Cursor> {
        let (Some(tail), Some((epoch, head))) = (self.tail, self.committed) else { return Vec::new() };
        if tail.epoch != Some(epoch) {
            return Vec::new();
        }
        let cursor = |(sequence, id)| Cursor { id: Some(id), ..Cursor::at(Some(epoch), sequence) };
        self.recent.doubtful().filter(|(sequence, _)| *sequence <= head).map(cursor).collect()
    }

    /// The store's word on one of [`Self::doubtful`].
    pub(crate) fn compared(&mut self, doubtful: &Cursor, anchor: Anchor, now: MonoTime) -> Option<MonoTime> {
        let sequence = doubtful.sequence;
        if self.tail?.epoch != doubtful.epoch || self.recent.recall(sequence) != doubtful.id {
            return None;
        }
        if anchor == Anchor::Other {
            self.suspect = Some(self.suspect.map_or(sequence, |s| s.min(sequence)));
            return self.schedule_anew(now, Why::Sweep);
        }
        self.recent.settle(sequence);
        None
    }

    /// The store's word on whether the history goes on. `seen` is the tail when [`Self::proven`] was compared;
    /// `listening` says whether LISTEN had been acknowledged before. Gives `false` where the question has to be asked
    /// again.
    pub(crate) fn verified(
        &mut self,
        head: Option<&Head>,
        anchor: Option<Anchor>,
        seen: &Cursor,
        listening: bool,
    ) -> bool {
        let Some(tail) = self.tail else { return true };
        if tail != *seen {
            return false;
        }
        self.trusted = true;
        let proven = self.proven().unwrap_or(tail);
        if let Some(head) = head.filter(|head| judge(&proven, Some(head), anchor) == Verdict::WentBack) {
            self.go_back(tail, head);
        }
        if listening && self.unverified {
            self.unverified = false;
            self.drain_held();
        }
        true
    }

    /// What was missed up to `head` is said, and not read.
    fn leave_out(&mut self, tail: Cursor, head: &Head) {
        let mut cursor = Cursor { epoch: Some(head.epoch), ..tail };
        self.out.push(Item::gap_until(&self.stream, &mut cursor, head.cursor(), GapReason::ReplayOff));
        self.tail = Some(cursor);
        // A read under way began before it.
        self.generation += 1;
        if let Some(id) = cursor.id {
            self.recent.remember(cursor.sequence, id);
        }
        self.drain_held();
    }

    fn go_back(&mut self, tail: Cursor, head: &Head) {
        let mut cursor = tail;
        let reset =
            Item::reset(&self.stream, &mut cursor, ResetReason::WentBack, head.epoch, head.sequence, head.cursor());
        self.out.push(reset);
        self.recent.clear();
        self.rewind(cursor);
        self.committed = Some((head.epoch, head.sequence));
        if let Some(id) = cursor.id {
            self.recent.remember(cursor.sequence, id);
        }
    }

    /// A read is asked for at `due`. Whether who reads is to be told: he may come sooner already.
    pub(crate) fn queue(&mut self, due: MonoTime) -> bool {
        let sooner = self.queued.is_some_and(|queued| queued <= due);
        if !sooner {
            self.queued = Some(due);
        }
        !sooner
    }

    /// Who reads came, as he was asked to for `at`: a read, or when he is to come instead.
    pub(crate) fn come(&mut self, at: MonoTime, now: MonoTime) -> (Option<Read>, Option<MonoTime>) {
        if self.queued != Some(at) {
            return (None, None);
        }
        self.queued = None;
        let read = self.begin_read(now);
        let later = self.need.filter(|need| !self.reading && self.trusted && need.due > now).map(|need| need.due);
        (read, later.filter(|due| self.queue(*due)))
    }

    /// A read may begin: where from. `None` where it is not needed any more, or not yet.
    fn begin_read(&mut self, now: MonoTime) -> Option<Read> {
        let tail = self.tail?;
        if self.reading || !self.trusted || self.need.is_none_or(|need| need.due > now) {
            return None;
        }
        let why = self.need.take()?.why;
        if self.wanted <= tail.sequence && self.suspect.is_none() && !self.check {
            return None;
        }
        self.reading = true;
        let suspect = self.suspect.take();
        self.check = false;
        let from = suspect.map_or(tail, |s| tail.moved_to(s.previous().min(tail.sequence)));
        Some(Read { from, committed: self.committed, suspect, why, generation: self.generation })
    }

    /// The read brought `page`. Gives when to read next.
    pub(crate) fn page(&mut self, read: &Read, page: &Page, now: MonoTime) -> Option<MonoTime> {
        let mut tail = self.tail?;
        if read.generation != self.generation {
            self.check = true;
            self.schedule(now, read.why);
            return self.end_read();
        }
        if let Some(suspect) = read.suspect {
            tail = self.replace(tail, page);
            if page.messages.last().is_none_or(|last| last.sequence < suspect) && !page.more {
                self.suspect = Some(suspect);
            }
        }
        let before = self.out.len();
        let messages = absorb(&self.stream, &mut tail, page, read.committed, &mut self.out);
        if self.out[before..].iter().any(|i| matches!(i, Item::Reset(..))) {
            self.recent.clear();
            self.rewind(tail);
        }
        self.tail = Some(tail);
        for at in before..self.out.len() {
            if let Item::Message(message) = &self.out[at] {
                let (sequence, id) = (message.sequence, message.id);
                self.recent.remember(sequence, id);
            }
        }
        match read.why {
            Why::Announced => {}
            Why::Sweep => self.tally.found += messages,
            Why::Replay => self.tally.replayed += messages,
        }
        self.drain_held();
        if page.more {
            self.looks = 0;
            self.wanted = self.wanted.max(tail.sequence.next());
            self.schedule(now, read.why);
        } else {
            if messages > 0 {
                self.looks = 0;
            }
            self.look_again(now, read.why);
        }
        self.end_read()
    }

    /// The read failed; it is tried again. Gives when.
    pub(crate) fn read_failed(&mut self, read: &Read, now: MonoTime) -> Option<MonoTime> {
        self.suspect = self.suspect.or(read.suspect);
        self.check = true;
        self.schedule(now + self.limits.pause, read.why);
        self.end_read()
    }

    /// No read is under way any more; what was asked for meanwhile is due then.
    fn end_read(&mut self) -> Option<MonoTime> {
        self.reading = false;
        self.need.map(|need| need.due)
    }

    /// Something is wanted and was not there: look again, later and later; in the end leave it to the sweep.
    fn look_again(&mut self, now: MonoTime, why: Why) -> Option<MonoTime> {
        let tail = self.tail?;
        if self.wanted <= tail.sequence && self.suspect.is_none() {
            self.looks = 0;
            return None;
        }
        self.looks += 1;
        if self.looks > LOOKS {
            self.looks = 0;
            self.wanted = tail.sequence;
            self.suspect = None;
            self.held.clear();
            return None;
        }
        let pause = self.limits.grace.saturating_mul(1 << (self.looks - 1)).min(self.limits.pause);
        self.schedule(now + pause, why)
    }

    /// As [`Self::schedule`], for the sweep: a time that passed while nothing could be read is new again.
    fn schedule_anew(&mut self, now: MonoTime, why: Why) -> Option<MonoTime> {
        self.schedule(now, why).or((!self.reading).then_some(now))
    }

    /// Asks for a read at `due`. Gives the time where it is new to who reads.
    fn schedule(&mut self, due: MonoTime, why: Why) -> Option<MonoTime> {
        self.ask(Need { due, why, hole: false })
    }

    fn ask(&mut self, new: Need) -> Option<MonoTime> {
        let Some(old) = self.need else {
            self.need = Some(new);
            return (!self.reading).then_some(new.due);
        };
        self.need = Some(Need { due: old.due.min(new.due), why: old.why.max(new.why), hole: old.hole && new.hole });
        (old.due > new.due && !self.reading).then_some(new.due)
    }

    fn deliver(&mut self, message: Arc<Message>) {
        self.tail = Some(message.cursor());
        match message.created_at {
            Some(_) => self.recent.remember(message.sequence, message.id),
            // From the gem, which may announce before its commit.
            None => self.recent.doubt(message.sequence, message.id),
        }
        self.out.push(Item::Message(message));
    }

    /// Keeps what came early; what does not fit is read from the store in its turn.
    fn hold(&mut self, announcement: Announcement) {
        self.wanted = self.wanted.max(announcement.sequence);
        if let Ok(message) = announcement.into_message() {
            self.held.insert(message);
        }
    }

    fn drain_held(&mut self) {
        while let Some(tail) = self.tail {
            let next = tail.sequence.next();
            let Some(message) = self.held.pop_if(|m| m.sequence <= next || Some(m.channel_id) != tail.epoch) else {
                return;
            };
            if message.sequence == next && Some(message.channel_id) == tail.epoch {
                self.deliver(message);
            }
        }
    }

    /// Compares a page with what was handed out: from the first message that is another, the store's follow a reset.
    fn replace(&mut self, tail: Cursor, page: &Page) -> Cursor {
        let other = page.messages.iter().find(|m| {
            Some(m.channel_id) == tail.epoch
                && m.sequence <= tail.sequence
                && self.recent.recall(m.sequence).is_some_and(|id| id != m.id)
        });
        let Some(other) = other else { return tail };
        let mut cursor = tail;
        let after = tail.moved_to(other.sequence.previous());
        let head = page.messages.last().map_or(other.sequence, |last| last.sequence);
        let reset = Item::reset(&self.stream, &mut cursor, ResetReason::Replaced, other.channel_id, head, after);
        self.out.push(reset);
        self.recent.forget_after(cursor.sequence);
        self.rewind(cursor);
        cursor
    }

    /// What was handed out ends at `cursor` now.
    fn rewind(&mut self, cursor: Cursor) {
        self.tail = Some(cursor);
        self.generation += 1;
        self.wanted = Sequence::ZERO;
        self.committed = self.committed.filter(|(epoch, _)| Some(*epoch) == cursor.epoch);
        self.held.clear();
    }
}

#[cfg(test)]
#[path = "topic_tests.rs"]
mod tests;
