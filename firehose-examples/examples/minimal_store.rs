//! The smallest store that keeps the contract: everything behind one lock, in memory. `docs/backends.md` explains it.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use firehose_core::{
    Anchor, Backend, Blocked, Capabilities, Clock, Cursor, Epoch, Error, ErrorKind, Firehose, Head, HeadDetail,
    InProcess, Message, MessageId, MessageKey, MessageStore, NewMessage, Page, PageLimit, Position, Result, Retain,
    Scope, Sequence, StreamName, SystemClock, Timestamp, Trimmed,
};

/// A stream: its epoch, the last sequence it gave out, what is retained of it, and the keys of that.
#[derive(Debug)]
struct Stream {
    epoch: Epoch,
    last: Sequence,
    messages: VecDeque<Arc<Message>>,
    keys: HashMap<MessageKey, Arc<Message>>,
}

#[derive(Debug, Default)]
struct State {
    streams: HashMap<StreamName, Stream>,
    last_id: i64,
    last_epoch: i64,
}

/// The store. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Shelf {
    state: Arc<Mutex<State>>,
    clock: Arc<dyn Clock>,
}

impl Shelf {
    /// An empty store that tells the time by `clock`.
    pub fn new(clock: impl Clock) -> Self {
        // Positive, and below 2^53 for the sake of JavaScript; at random, since nothing remembers the last ones (14).
        let last_epoch = (RandomState::new().hash_one("epochs") >> 12) as i64;
        let state = State { last_epoch, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), clock: Arc::new(clock) }
    }

    /// One lock is one transaction and one snapshot. It is never held over an `await` (15).
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_system_time(self.clock.wall())
    }
}

impl State {
    fn append(&mut self, entry: &NewMessage, now: Timestamp) -> Result<Message> {
        // Its fields are public, so it may have changed since it was checked. Nothing was touched yet (1, 2).
        if entry.data.contains('\0') {
            return Err(Error::new(ErrorKind::InvalidData, "append", "data has a NUL"));
        }
        let stream = self.streams.entry(entry.stream.clone()).or_insert_with(|| {
            self.last_epoch += 1;
            Stream {
                epoch: Epoch(self.last_epoch),
                last: Sequence::ZERO,
                messages: VecDeque::new(),
                keys: HashMap::new(),
            }
        });
        if let Some(first) = entry.key.as_ref().and_then(|key| stream.keys.get(key)) {
            return Ok((**first).clone()); // (6)
        }
        self.last_id += 1;
        stream.last = stream.last.next();
        let (id, name) = (MessageId(self.last_id), entry.stream.clone());
        let message = Message::new(id, stream.epoch, stream.last, name, entry.data.clone()).with_created_at(now);
        let stored = Arc::new(message.clone());
        if let Some(key) = &entry.key {
            stream.keys.insert(key.clone(), stored.clone());
        }
        stream.messages.push_back(stored);
        Ok(message)
    }
}

impl Stream {
    /// Whether a cursor speaks of this life of the stream; one without epoch goes by its sequence alone.
    fn knows(&self, cursor: Cursor) -> bool {
        cursor.epoch.is_none_or(|epoch| epoch == self.epoch)
    }

    fn oldest(&self) -> Option<(Sequence, MessageId)> {
        self.messages.front().map(|message| (message.sequence, message.id))
    }

    /// How many messages go, from the oldest on: up to the first that stays (13).
    fn due(&self, retain: Retain, now: Timestamp) -> usize {
        let micros = |age: Duration| i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
        let kept = retain.messages.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
        let surplus = self.messages.len().saturating_sub(kept);
        let goes = |(place, message): &(usize, &Arc<Message>)| {
            let age = now.0.saturating_sub(message.created_at.map_or(now.0, |at| at.0));
            let too_old = retain.max_age.is_some_and(|most| age > micros(most));
            (*place < surplus || too_old) && age >= micros(retain.min_age)
        };
        self.messages.iter().enumerate().take_while(goes).count()
    }
}

/// Messages while the limit allows, the first in any case (9, 10).
fn page<'a>(messages: impl Iterator<Item = &'a Arc<Message>>, limit: PageLimit) -> Page {
    let (mut page, mut bytes) = (Page::default(), 0_usize);
    for message in messages {
        bytes = bytes.saturating_add(message.data.len());
        if !page.messages.is_empty() && (page.messages.len() >= limit.rows || bytes > limit.bytes) {
            page.more = true;
            break;
        }
        page.messages.push(message.clone());
    }
    page
}

#[async_trait]
impl MessageStore for Shelf {
    async fn append(&self, entries: &[NewMessage], _blocked: Blocked) -> Vec<Result<Message>> {
        // Nobody else can hold a stream here, so there is nothing to skip and nothing to wait for (7).
        let (mut state, now) = (self.state(), self.now());
        entries.iter().map(|entry| state.append(entry, now)).collect()
    }

    async fn get_many(&self, ids: &[MessageId]) -> Result<Vec<Arc<Message>>> {
        let state = self.state();
        let all = state.streams.values().flat_map(|stream| &stream.messages);
        Ok(all.filter(|message| ids.contains(&message.id)).cloned().collect())
    }

    async fn read_after(&self, requests: &[(StreamName, Position)], limit: PageLimit) -> Result<Vec<Page>> {
        let state = self.state();
        let read = |(name, position): &(StreamName, Position)| {
            let Some(stream) = state.streams.get(name) else { return Page::default() };
            let before = |message: &&Arc<Message>| match *position {
                Position::Cursor(cursor) => stream.knows(cursor) && message.sequence <= cursor.sequence,
                Position::Id(id) => message.id <= id,
            };
            page(stream.messages.iter().skip_while(before), limit)
        };
        Ok(requests.iter().map(read).collect())
    }

    async fn read_before(&self, stream: &StreamName, position: Position, limit: PageLimit) -> Result<Page> {
        let state = self.state();
        let Some(stream) = state.streams.get(stream) else { return Ok(Page::default()) };
        let after = |message: &&Arc<Message>| match position {
            Position::Cursor(cursor) => !stream.knows(cursor) || message.sequence >= cursor.sequence,
            Position::Id(id) => message.id >= id,
        };
        let mut page = page(stream.messages.iter().rev().skip_while(after), limit);
        page.messages.reverse();
        Ok(page)
    }

    async fn heads(&self, streams: &[StreamName], detail: HeadDetail) -> Result<Vec<Option<Head>>> {
        let state = self.state();
        let head = |stream: &Stream| match detail {
            HeadDetail::Cheap => Head::new(stream.epoch, stream.last),
            HeadDetail::Full => Head::new(stream.epoch, stream.last)
                .with_retained(stream.messages.back().map(|newest| newest.id), stream.oldest()),
        };
        Ok(streams.iter().map(|name| state.streams.get(name).map(head)).collect())
    }

    async fn anchors(&self, cursors: &[Cursor]) -> Result<Vec<Anchor>> {
        let state = self.state();
        let anchor = |cursor: &Cursor| {
            let of_epoch = |stream: &&Stream| cursor.epoch == Some(stream.epoch);
            let Some(stream) = state.streams.values().find(of_epoch) else { return Anchor::Gone };
            if cursor.sequence <= Sequence::ZERO {
                return Anchor::Same;
            }
            let Some(own) = stream.messages.iter().find(|message| message.sequence == cursor.sequence) else {
                return Anchor::Trimmed { oldest: stream.oldest() };
            };
            let same = cursor.id.is_none_or(|id| id == own.id)
                && (cursor.created_at.is_none() || cursor.created_at == own.created_at);
            if same { Anchor::Same } else { Anchor::Other }
        };
        Ok(cursors.iter().map(anchor).collect())
    }

    async fn trim(&self, scope: Scope, retain: Retain, budget: u64) -> Result<Trimmed> {
        let (mut state, now) = (self.state(), self.now());
        let mut trimmed = Trimmed::default();
        for (name, stream) in &mut state.streams {
            if matches!(&scope, Scope::Stream(only) if only != name) {
                continue;
            }
            let due = stream.due(retain, now) as u64;
            let going = due.min(budget - trimmed.messages);
            trimmed.messages += going;
            trimmed.more |= going < due;
            stream.messages.drain(..going as usize);
            let first = stream.oldest().map_or(stream.last.next(), |(sequence, _)| sequence);
            stream.keys.retain(|_, message| message.sequence >= first);
        }
        Ok(trimmed)
    }

    async fn delete_stream(&self, stream: &StreamName) -> Result<Option<Epoch>> {
        Ok(self.state().streams.remove(stream).map(|stream| stream.epoch))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::MEMORY
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let (store, transport) = (Shelf::new(SystemClock::new()), InProcess::new());
    let firehose = Firehose::builder(Backend::new(store, transport.clone(), transport)).start().await?;
    let mut orders = firehose.subscribe("orders").await?;
    firehose.broadcast("orders", "paid").await?;
    if let Some(delivery) = orders.next().await {
        println!("{:?}", delivery.message().map(|message| &message.data));
    }
    firehose.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
