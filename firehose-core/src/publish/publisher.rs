//! Stores what callers broadcast, in batches.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, oneshot};

use super::batch::{Entry, Lanes, Refused, may_go_again};
use crate::backend::Blocked;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Outcome, Result, Step};
use crate::message::{Message, NewMessage};
use crate::stream::StreamName;

type Reply = oneshot::Sender<Result<Arc<Message>>>;

/// A broadcast that was accepted.
pub(crate) type Accepted = oneshot::Receiver<Result<Arc<Message>>>;

/// The answer to a broadcast that was accepted.
pub(crate) async fn answer(accepted: Accepted) -> Result<Message> {
    match accepted.await {
        Ok(result) => result.map(Arc::unwrap_or_clone),
        // The engine's tasks went while it was in flight.
        Err(_) => {
            Err(Error::new(ErrorKind::OutcomeUnknown, "broadcast", "the engine ended while the message was stored"))
        }
    }
}

/// How many streams may wait for other transactions at a time, each in a call of its own.
const SIDE_LANES: usize = 2;

/// How often an entry is given to the store again that said it rolled back.
const TRIES: u32 = 3;

/// The broadcasts that wait.
#[derive(Debug)]
pub(crate) struct Publisher {
    lanes: Mutex<Lanes<Reply>>,
    arrived: Notify,
    /// Told at each end of a batch, for who waits until nothing waits.
    departed: Notify,
}

/// A batch that came back from the store.
struct Done {
    streams: Vec<StreamName>,
    entries: Vec<Entry<Reply>>,
    results: Vec<Result<Message>>,
    blocked: Blocked,
}

impl Publisher {
    pub(crate) fn new(most_waiting: usize) -> Self {
        Self { lanes: Mutex::new(Lanes::new(most_waiting)), arrived: Notify::new(), departed: Notify::new() }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes<Reply>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a broadcast: from here on it is stored, whether or not its caller waits.
    pub(crate) fn accept(&self, message: NewMessage) -> Result<Accepted> {
        let accepted = push(&mut self.lanes(), message);
        self.arrived.notify_one();
        accepted
    }

    /// Accepts several, so that they can leave together; what was refused before stays refused.
    pub(crate) fn accept_all(&self, messages: Vec<Result<NewMessage>>) -> Vec<Result<Accepted>> {
        let accepted = {
            let mut lanes = self.lanes();
            messages.into_iter().map(|message| push(&mut lanes, message?)).collect()
        };
        self.arrived.notify_one();
        accepted
    }

    /// How many wait, or are being stored.
    pub(crate) fn load(&self) -> usize {
        self.lanes().load()
    }

    /// Waits until nothing waits.
    pub(crate) async fn drained(&self) {
        loop {
            let departed = self.departed.notified();
            if self.load() == 0 {
                return;
            }
            departed.await;
        }
    }

    /// Answers everything that waits with `ShutDown`: none of it is stored. Gives how many.
    pub(crate) fn refuse_waiting(&self) -> usize {
        let waiting = self.lanes().close();
        let count = waiting.len();
        waiting.into_iter().for_each(|entry| drop(entry.reply.send(Err(Error::shut_down("broadcast")))));
        count
    }

    /// The task: one batch at a time, and beside it the streams that wait for other transactions.
    pub(crate) async fn run(engine: Arc<Engine>) {
        let this = &engine.publisher;
        this.lanes().forget_in_flight();
        let mut in_flight: FuturesUnordered<BoxFuture<'_, Done>> = FuturesUnordered::new();
        let (mut main, mut side) = (false, 0);
        loop {
            if !main && let Some(batch) = { this.lanes().next_batch(engine.config.broadcast_batch_max) } {
                main = true;
                in_flight.push(Box::pin(store(&engine, batch, Blocked::Skip)));
            }
            while side < SIDE_LANES
                && let Some(batch) = { this.lanes().next_blocked(engine.config.broadcast_batch_max) }
            {
                side += 1;
                in_flight.push(Box::pin(store(&engine, batch, Blocked::Wait)));
            }
            tokio::select! {
                biased;
                () = engine.cancelled() => return,
                Some(done) = in_flight.next() => {
                    match done.blocked {
                        Blocked::Skip => main = false,
                        Blocked::Wait => side -= 1,
                    }
                    this.settle(&engine, done);
                }
                () = this.arrived.notified() => {}
            }
        }
    }

    /// Announces what was stored, answers the callers of a batch, and puts back what has to go again.
    fn settle(&self, engine: &Engine, done: Done) {
        let (count, mut again, mut blocked) = (done.entries.len(), Vec::new(), false);
        let outcomes = done.entries.iter().map(|e| &e.message.stream).zip(done.results.iter().map(Result::is_ok));
        let may_go_again = may_go_again(outcomes);
        let results: Vec<_> = done.results.into_iter().map(|result| result.map(Arc::new)).collect();
        let stored = || results.iter().flatten();
        engine.observer.counters.broadcasts_total.add(stored().count() as u64);
        engine.announcer.announce(engine, stored().cloned());
        for ((mut entry, result), may_go_again) in done.entries.into_iter().zip(results).zip(may_go_again) {
            match result {
                // A caller that went away does not need the answer.
                Ok(message) => drop(entry.reply.send(Ok(message))),
                Err(error) if error.kind() == ErrorKind::StreamBlocked && done.blocked == Blocked::Skip => {
                    blocked = true;
                    again.push(entry);
                }
                Err(error)
                    if may_go_again
                        && error.is_retryable()
                        && error.outcome() == Outcome::NotDone
                        && entry.tries < TRIES =>
                {
                    entry.tries += 1;
                    again.push(entry);
                }
                Err(error) => drop(entry.reply.send(Err(error))),
            }
        }
        self.lanes().arrived(&done.streams, count, again, blocked);
        self.departed.notify_waiters();
    }
}

fn push(lanes: &mut Lanes<Reply>, message: NewMessage) -> Result<Accepted> {
    let (reply, accepted) = oneshot::channel();
    match lanes.push(message, reply) {
        Ok(()) => Ok(accepted),
        Err(Refused::Closed) => Err(Error::shut_down("broadcast")),
        Err(Refused::TooMany) => {
            let error = Error::new(ErrorKind::Overloaded, "broadcast", "too many broadcasts wait to be stored");
            Err(error.with_hint("raise max_waiting_broadcasts, or broadcast less at a time"))
        }
    }
}

async fn store(engine: &Engine, mut entries: Vec<Entry<Reply>>, blocked: Blocked) -> Done {
    let messages: Vec<NewMessage> = entries.iter().map(|e| e.message.clone()).collect();
    let mut streams: Vec<StreamName> = messages.iter().map(|m| m.stream.clone()).collect();
    streams.sort_unstable();
    streams.dedup();
    engine.observer.counters.append_batches.add(1);
    let append = async { Ok(engine.backend.store.append(&messages, blocked).await) };
    let mut results = match engine.call("broadcast", Step::Append, append).await {
        Ok(results) => results,
        Err(error) => messages.iter().map(|_| Err(error.replicate())).collect(),
    };
    while results.len() < entries.len() {
        let message = "the store answered for fewer messages than it was given";
        results.push(Err(Error::new(ErrorKind::Backend, "broadcast", message)));
    }
    results.truncate(entries.len());
    entries.shrink_to_fit();
    Done { streams, entries, results, blocked }
}
