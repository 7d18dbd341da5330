//! What a topic handed out and its subscribers have yet to read. Pure: no lock, no clock.
//!
//! One ring for all of a stream's subscribers, not one queue each: handing out costs the same for one and for a thousand.
//! An item stays until the last reader who is owed it has read it, or until the ring is full; who is owed an item that
//! went reads from the store until it is back in the ring.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::task::Waker;

use super::delivery::{CloseReason, GapReason, Item, ResetReason};
use super::options::Lag;
use crate::cursor::Cursor;
use crate::message::Sequence;
use crate::stream::StreamName;

/// How many resets are remembered for readers who are behind.
const RESETS: usize = 8;

/// How much a ring holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FeedLimits {
    pub(crate) items: usize,
    pub(crate) bytes: usize,
}

/// A reader's place in its feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ReaderKey(u64);

#[derive(Debug)]
struct Entry {
    item: Item,
    /// How many readers have yet to read it.
    owed: usize,
}

#[derive(Debug)]
struct Reader {
    /// The number of the next item to read.
    next: u64,
    /// Whether everything before `next` has been read, so that the ring's items follow.
    joined: bool,
    /// What happens when items that it is owed go.
    lag: Lag,
    waker: Option<Waker>,
}

/// What a reader finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Items were put into its buffer.
    Items,
    /// Nothing yet.
    Nothing,
    /// It must read the store from where it is. Where a reset went by in between, it comes first.
    Behind(Option<Item>),
    /// Nothing will follow.
    Closed(CloseReason),
}

/// The ring of one stream.
#[derive(Debug)]
pub(crate) struct Feed {
    stream: StreamName,
    limits: FeedLimits,
    entries: VecDeque<Entry>,
    /// The number of the first entry.
    first: u64,
    /// The position before the first entry.
    start: Cursor,
    bytes: usize,
    readers: HashMap<ReaderKey, Reader>,
    next_key: u64,
    /// The last resets, by their numbers: a reader who missed one in the ring must not go on without it.
    resets: VecDeque<(u64, Item)>,
    closed: Option<CloseReason>,
}

impl Feed {
    pub(crate) fn new(stream: StreamName, limits: FeedLimits) -> Self {
        Self {
            stream,
            limits,
            entries: VecDeque::new(),
            first: 0,
            start: Cursor::BEGINNING,
            bytes: 0,
            readers: HashMap::new(),
            next_key: 0,
            resets: VecDeque::new(),
            closed: None,
        }
    }

    /// The topic begins at `cursor`.
    pub(crate) fn begin(&mut self, cursor: Cursor) {
        self.start = cursor;
    }

    fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    pub(crate) fn readers(&self) -> usize {
        self.readers.len()
    }

    /// How many readers read from the store.
    pub(crate) fn behind(&self) -> usize {
        self.readers.values().filter(|r| !r.joined || r.next < self.first).count()
    }

    /// How many items the ring holds.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What the ring holds, in bytes of data.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A new reader, who stands somewhere before the ring's end and gets there by reading the store.
    pub(crate) fn enter(&mut self, lag: Lag) -> ReaderKey {
        let key = ReaderKey(self.next_key);
        self.next_key += 1;
        self.readers.insert(key, Reader { next: self.end(), joined: false, lag, waker: None });
        key
    }

    /// The reader is gone.
    pub(crate) fn leave(&mut self, key: ReaderKey) {
        if let Some(reader) = self.readers.remove(&key) {
            self.settle(reader.next);
            if let Some(waker) = reader.waker {
                waker.wake();
            }
        }
    }

    /// Hands out an item. Wakers of who waits are put into `wake`.
    pub(crate) fn push(&mut self, item: Item, wake: &mut Vec<Waker>) {
        if matches!(item, Item::Reset(..)) {
            self.resets.push_back((self.end(), item.clone()));
            if self.resets.len() > RESETS {
                self.resets.pop_front();
            }
        }
        if self.readers.is_empty() {
            self.start = item.after();
            self.first += 1;
            return;
        }
        self.bytes += item.bytes();
        self.entries.push_back(Entry { item, owed: self.readers.len() });
        while self.entries.len() > self.limits.items || (self.bytes > self.limits.bytes && self.entries.len() > 1) {
            self.pop();
        }
        wake.extend(self.readers.values_mut().filter_map(|r| r.waker.take()));
    }

    fn pop(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.first += 1;
            self.bytes -= entry.item.bytes();
            self.start = entry.item.after();
        }
    }

    /// Whoever owed from `next` on is not any more.
    fn settle(&mut self, next: u64) {
        let skip = next.saturating_sub(self.first) as usize;
        self.entries.iter_mut().skip(skip).for_each(|e| e.owed -= 1);
        self.drop_read();
    }

    fn drop_read(&mut self) {
        while self.entries.front().is_some_and(|e| e.owed == 0) {
            self.pop();
        }
    }

    pub(crate) fn close(&mut self, reason: CloseReason, wake: &mut Vec<Waker>) {
        self.closed.get_or_insert(reason);
        wake.extend(self.readers.values_mut().filter_map(|r| r.waker.take()));
    }

    /// The position before item `number`.
    fn before(&self, number: u64) -> Cursor {
        match number.checked_sub(self.first + 1) {
            Some(previous) => self.entries.get(previous as usize).map_or(self.start, |e| e.item.after()),
            None => self.start,
        }
    }

    /// Reads up to `most` items after `cursor` into `out`, and moves it.
    pub(crate) fn take(&mut self, key: ReaderKey, cursor: &mut Cursor, most: usize, out: &mut VecDeque<Item>) -> Taken {
        let (first, end) = (self.first, self.end());
        let Some(reader) = self.readers.get(&key) else {
            return Taken::Closed(self.closed.unwrap_or(CloseReason::EngineDropped));
        };
        let (mut next, mut joined, lag) = (reader.next, reader.joined, reader.lag);
        if next < first {
            if let Some(reason) = self.closed {
                return Taken::Closed(reason);
            }
            // Who still reads its way from its start is behind by its own will.
            match lag {
                Lag::DropOldest if joined => {
                    self.skip(next, cursor, out);
                    self.move_reader(key, first, true);
                    return self.take(key, cursor, most, out);
                }
                Lag::Disconnect if joined => {
                    self.leave(key);
                    return Taken::Closed(CloseReason::Lagged);
                }
                _ => {}
            }
            // What it is owed went. It enters anew at the end, and reads the store up to there.
            let missed = self.missed(next..first, cursor);
            self.settle(next);
            self.move_reader(key, end, false);
            if let Some(reset) = &missed {
                *cursor = reset.after();
            }
            return Taken::Behind(missed);
        }
        if !joined {
            match (next..=end).find(|&number| covers(cursor, &self.before(number))) {
                Some(number) => {
                    self.read(next, number);
                    (next, joined) = (number, true);
                }
                None => {
                    return match self.closed {
                        Some(reason) => Taken::Closed(reason),
                        None => Taken::Behind(None),
                    };
                }
            }
        }
        let until = end.min(next + most as u64);
        for number in next..until {
            if let Some(entry) = self.entries.get((number - self.first) as usize)
                && let Some(item) = news(&entry.item, cursor)
            {
                out.extend(unsaid_reset(&item, cursor));
                *cursor = item.after();
                out.push_back(item);
            }
        }
        self.read(next, until);
        self.move_reader(key, until, joined);
        match self.closed {
            _ if !out.is_empty() => Taken::Items,
            _ if until < self.end() => self.take(key, cursor, most, out),
            Some(reason) => Taken::Closed(reason),
            None => Taken::Nothing,
        }
    }

    /// Moves who has read up to `cursor`, and is owed from item `next` on, to the first item, and says what it leaves out.
    fn skip(&mut self, next: u64, cursor: &mut Cursor, out: &mut VecDeque<Item>) {
        if let Some(reset) = self.missed(next..self.first, cursor) {
            *cursor = reset.after();
            out.push_back(reset);
        }
        let start = self.start;
        if let (Some(own), Some(epoch)) = (cursor.epoch, start.epoch)
            && own != epoch
        {
            let after = Cursor::at(Some(epoch), Sequence::ZERO);
            let reason = ResetReason::Recreated;
            out.push_back(Item::reset(&self.stream, cursor, reason, epoch, start.sequence, after));
        }
        if start.sequence > cursor.sequence {
            out.push_back(Item::gap_until(&self.stream, cursor, start, GapReason::DropOldest));
        }
    }

    /// The reset among the items `range` that who has read up to `cursor` must be told. One that only a new epoch
    /// brought needs none: the store's rows tell it.
    fn missed(&self, range: Range<u64>, cursor: &Cursor) -> Option<Item> {
        let missed =
            self.resets.iter().filter(|(number, _)| range.contains(number)).filter_map(|(_, item)| news(item, cursor));
        let went_back = |item: &Item| matches!(item, Item::Reset(reset, _) if reset.reason == ResetReason::WentBack);
        missed.max_by_key(went_back)
    }

    /// A reader has read the items from `from` up to `until`.
    fn read(&mut self, from: u64, until: u64) {
        let skip = from.saturating_sub(self.first) as usize;
        let count = until.saturating_sub(from) as usize;
        self.entries.iter_mut().skip(skip).take(count).for_each(|e| e.owed -= 1);
    }

    fn move_reader(&mut self, key: ReaderKey, next: u64, joined: bool) {
        if let Some(reader) = self.readers.get_mut(&key) {
            (reader.next, reader.joined) = (next, joined);
        }
        self.drop_read();
    }

    /// Wakes `waker` at the next item, or at the end.
    pub(crate) fn wait(&mut self, key: ReaderKey, waker: &Waker) {
        if let Some(reader) = self.readers.get_mut(&key) {
            match &mut reader.waker {
                Some(known) => known.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
    }
}

/// Whether who has read up to `cursor` has read everything up to `position`.
fn covers(cursor: &Cursor, position: &Cursor) -> bool {
    match (cursor.epoch, position.epoch) {
        (Some(own), Some(other)) => own == other && cursor.sequence >= position.sequence,
        (None, Some(_)) | (None, None) => position.sequence <= cursor.sequence,
        (Some(_), None) => position.sequence == Sequence::ZERO,
    }
}

/// A message of another epoch than the reader stands in, where the topic had no epoch before: for the topic that was no
/// reset, for the reader it is one.
fn unsaid_reset(item: &Item, cursor: &mut Cursor) -> Option<Item> {
    let Item::Message(message) = item else { return None };
    if cursor.epoch.is_none_or(|own| own == message.channel_id) {
        return None;
    }
    let after = Cursor::at(Some(message.channel_id), message.sequence.previous());
    let (stream, head) = (&message.stream, message.sequence);
    Some(Item::reset(stream, cursor, ResetReason::Recreated, message.channel_id, head, after))
}

/// What of `item` is new to who has read up to `cursor`.
fn news(item: &Item, cursor: &Cursor) -> Option<Item> {
    let seen = |epoch, sequence| cursor.epoch == Some(epoch) && sequence <= cursor.sequence;
    match item {
        Item::Message(message) => (!seen(message.channel_id, message.sequence)).then(|| item.clone()),
        Item::Gap(gap, after) if after.epoch == cursor.epoch && gap.from <= cursor.sequence => {
            (gap.to > cursor.sequence).then(|| {
                let mut rest = gap.clone();
                rest.from = cursor.sequence.next();
                Item::Gap(rest, *after)
            })
        }
        Item::Gap(..) => Some(item.clone()),
        // Who came into the new epoch, or back behind the break, by reading the store knows of it.
        Item::Reset(reset, after) => match reset.reason {
            ResetReason::Recreated => after.epoch != cursor.epoch,
            // Which history a position belongs to, its sequence cannot tell: everyone who was there is told.
            ResetReason::WentBack => after.epoch == cursor.epoch,
            ResetReason::Replaced => after.epoch == cursor.epoch && cursor.sequence > after.sequence,
        }
        .then(|| item.clone()),
    }
}

#[cfg(test)]
#[path = "feed_tests.rs"]
mod tests;
