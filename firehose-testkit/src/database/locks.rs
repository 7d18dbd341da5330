//! Row locks of streams, first come, first served.

use std::collections::{HashMap, VecDeque};

use firehose_core::StreamName;
use tokio::sync::oneshot;

/// A transaction's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct TransactionId(pub(super) u64);

/// Who holds which stream, and who waits for it. A stream that does not exist is locked by its name, as the unique index
/// makes two creators wait for each other.
#[derive(Default)]
pub(super) struct Locks {
    held: HashMap<StreamName, Held>,
    waiting: HashMap<TransactionId, StreamName>,
}

struct Held {
    owner: TransactionId,
    queue: VecDeque<(TransactionId, oneshot::Sender<()>)>,
}

/// What came of asking for a lock.
pub(super) enum Acquired {
    /// It is held now.
    Now,
    /// It will be held when this resolves; an error where the database was restored meanwhile.
    Later(oneshot::Receiver<()>),
    /// Its holder waits for the one who asks.
    Deadlock,
}

impl Locks {
    /// Takes the lock if nobody else holds it.
    pub(super) fn try_take(&mut self, stream: &StreamName, me: TransactionId) -> bool {
        self.held.entry(stream.clone()).or_insert_with(|| Held { owner: me, queue: VecDeque::new() }).owner == me
    }

    /// Takes the lock, or a place in its queue.
    pub(super) fn take(&mut self, stream: &StreamName, me: TransactionId) -> Acquired {
        if self.try_take(stream, me) {
            return Acquired::Now;
        }
        if self.would_deadlock(stream, me) {
            return Acquired::Deadlock;
        }
        let (granted, receiver) = oneshot::channel();
        if let Some(held) = self.held.get_mut(stream) {
            held.queue.push_back((me, granted));
        }
        self.waiting.insert(me, stream.clone());
        Acquired::Later(receiver)
    }

    /// Whether the chain of who waits for whom leads from the stream's holder back to `me`.
    fn would_deadlock(&self, stream: &StreamName, me: TransactionId) -> bool {
        let mut stream = stream;
        while let Some(held) = self.held.get(stream) {
            if held.owner == me {
                return true;
            }
            match self.waiting.get(&held.owner) {
                Some(next) => stream = next,
                None => return false,
            }
        }
        false
    }

    /// Takes back a wait that was given up: its place in the queue, or the lock where that was handed over already.
    pub(super) fn give_up(&mut self, stream: &StreamName, me: TransactionId) {
        self.waiting.remove(&me);
        match self.held.get_mut(stream) {
            Some(held) if held.owner == me => self.hand_over(stream),
            Some(held) => held.queue.retain(|(waiter, _)| *waiter != me),
            None => {}
        }
    }

    /// Releases all that `me` holds.
    pub(super) fn release_all(&mut self, me: TransactionId) {
        let mut mine: Vec<StreamName> =
            self.held.iter().filter(|(_, held)| held.owner == me).map(|(stream, _)| stream.clone()).collect();
        mine.sort();
        for stream in mine {
            self.hand_over(&stream);
        }
    }

    fn hand_over(&mut self, stream: &StreamName) {
        let Some(held) = self.held.get_mut(stream) else { return };
        match held.queue.pop_front() {
            Some((next, granted)) => {
                held.owner = next;
                self.waiting.remove(&next);
                // Where the receiver is gone, its wait is being dropped, and gives the lock up itself.
                let _ = granted.send(());
            }
            None => {
                self.held.remove(stream);
            }
        }
    }

    /// How many locks are held, and how many wait for one.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.held.len(), self.waiting.len())
    }
}
