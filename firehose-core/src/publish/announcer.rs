//! Sends hints: what was stored, and what was never meant to be stored.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, Semaphore, oneshot};

use super::marks::Announcements;
use crate::backend::{MonoTime, Notification};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::listen::Backoff;
use crate::message::Message;
use crate::observe::{Event, Stage};
use crate::wire;

/// How many notifications go in one call.
const BATCH: usize = 512;

/// The longest pause after a call that failed: what waits is late then, and the sweep is there.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A call that takes longer counts as stalled: another may go beside it.
const STALLED: Duration = Duration::from_secs(1);

/// How many announcements may wait before that is told; it is told again once they were half as many.
const DEEP: usize = 10_000;

/// Stored messages that go together, each with whether it goes without its data.
type Stored = Vec<(Arc<Message>, bool)>;

/// A notification that is not stored anywhere: its caller waits for it.
struct Direct {
    notification: Notification,
    reply: oneshot::Sender<Result<()>>,
}

#[derive(Default)]
struct DirectQueue {
    waiting: VecDeque<Direct>,
    closed: bool,
}

/// The announcements that wait.
pub(crate) struct Announcer {
    stored: Mutex<Announcements>,
    direct: Mutex<DirectQueue>,
    room: Semaphore,
    arrived: Notify,
    departed: Notify,
    /// What the calls under way announce, so that a shutdown that cannot wait for them knows.
    sending: Mutex<BTreeMap<u64, Vec<Arc<Message>>>>,
    /// That many wait was told.
    deep: AtomicBool,
}

impl Announcer {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            stored: Mutex::new(Announcements::new(most)),
            direct: Mutex::default(),
            room: Semaphore::new(most.min(Semaphore::MAX_PERMITS)),
            arrived: Notify::new(),
            departed: Notify::new(),
            sending: Mutex::default(),
            deep: AtomicBool::new(false),
        }
    }

    fn stored(&self) -> MutexGuard<'_, Announcements> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sending(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<Arc<Message>>>> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn direct(&self) -> MutexGuard<'_, DirectQueue> {
        self.direct.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stored messages are to be announced. Never waits: what does not fit is made up for later.
    pub(crate) fn announce(&self, engine: &Engine, messages: impl IntoIterator<Item = Arc<Message>>) {
        let (dropped, waiting) = {
            let mut stored = self.stored();
            let dropped = messages.into_iter().filter(|message| !stored.push(message.clone())).count();
            (dropped, stored.len())
        };
        if waiting >= DEEP && !self.deep.swap(true, Ordering::Relaxed) {
            engine.observer.event(&Event::Backlog { waiting });
        }
        if dropped > 0 {
            engine.observer.counters.commands_dropped.add(dropped as u64);
        }
        self.arrived.notify_one();
    }

    /// Sends a notification that is stored nowhere. Waits for its turn and for the answer.
    ///
    /// Dropped while it waits for room, it is not sent; dropped later, it is.
    pub(crate) async fn send(&self, notification: Notification) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        let permit = self.room.acquire().await.map_err(|_| Error::shut_down("notify"))?;
        {
            let mut direct = self.direct();
            if direct.closed {
                return Err(Error::shut_down("notify"));
            }
            direct.waiting.push_back(Direct { notification, reply });
        }
        self.arrived.notify_one();
        let answer = answer.await;
        drop(permit);
        answer.unwrap_or_else(|_| Err(Error::shut_down("notify")))
    }

    /// How many wait to be sent.
    pub(crate) fn len(&self) -> usize {
        self.stored().len() + self.direct().waiting.len()
    }

    /// Waits until nothing waits.
    pub(crate) async fn drained(&self) {
        loop {
            let departed = self.departed.notified();
            if self.is_idle() {
                return;
            }
            departed.await;
        }
    }

    fn is_idle(&self) -> bool {
        let stored = self.stored();
        stored.len() == 0 && self.direct().waiting.is_empty() && self.sending().is_empty()
    }

    /// No more will be sent: gives what is stored and was not announced.
    pub(crate) fn give_up(&self) -> Vec<Arc<Message>> {
        self.room.close();
        let waiting: Vec<Direct> = {
            let mut direct = self.direct();
            direct.closed = true;
            direct.waiting.drain(..).collect()
        };
        waiting.into_iter().for_each(|d| drop(d.reply.send(Err(Error::shut_down("notify")))));
        let mut stored = self.stored();
        let sending = std::mem::take(&mut *self.sending());
        sending.into_values().flatten().chain(stored.take_all()).collect()
    }

    /// The task: everything that waits in one call, and one call at a time, unless it stalls: then others stand in, as many
    /// as there are connections for it.
    pub(crate) async fn run(engine: Arc<Engine>) {
        let this = &engine.announcer;
        // What an earlier run of this task had in hand.
        let left: Vec<_> = std::mem::take(&mut *this.sending()).into_values().flatten().collect();
        left.into_iter().for_each(|message| this.stored().mark(message));
        let most = engine.config.notify_pool_size.max(1);
        let mut backoff = Backoff::new(engine.config.gap_grace.max(Duration::from_millis(10)), LONGEST_PAUSE);
        let mut in_flight: FuturesUnordered<BoxFuture<'_, bool>> = FuturesUnordered::new();
        let (mut number, mut not_before, mut told) = (0, MonoTime::ORIGIN, 0);
        loop {
            let now = engine.clock.now();
            if now >= not_before
                && in_flight.len() < most
                && let Some((direct, stored)) = this.take_batch(number)
            {
                if in_flight.len() > told {
                    told = in_flight.len();
                    let message = "an announcement takes longer than 1 s; another connection stands in";
                    let stalled = Error::new(ErrorKind::Timeout(Step::Notify), "notify", message);
                    engine.observer.error(Stage::Announce, &stalled);
                }
                not_before = now + STALLED;
                in_flight.push(Box::pin(this.deliver(&engine, number, direct, stored)));
                number += 1;
            }
            if in_flight.is_empty() {
                this.departed.notify_waiters();
            }
            let waits_for_time = now < not_before && in_flight.len() < most && this.len() > 0;
            tokio::select! {
                biased;
                () = engine.cancelled() => return,
                Some(failed) = in_flight.next() => {
                    told = told.min(in_flight.len());
                    this.departed.notify_waiters();
                    not_before = MonoTime::ORIGIN;
                    if failed {
                        not_before = engine.clock.now() + backoff.next(engine.random());
                    } else {
                        backoff.session_ended(LONGEST_PAUSE);
                    }
                }
                () = engine.clock.sleep_until(not_before), if waits_for_time => {}
                () = this.arrived.notified() => {}
            }
        }
    }

    /// What goes next, noted as sent in call `number`.
    fn take_batch(&self, number: u64) -> Option<(Vec<Direct>, Stored)> {
        let direct: Vec<Direct> = {
            let mut queue = self.direct();
            let count = queue.waiting.len().min(BATCH);
            queue.waiting.drain(..count).collect()
        };
        let mut waiting = self.stored();
        let stored = waiting.next(BATCH - direct.len());
        if waiting.len() < DEEP / 2 {
            self.deep.store(false, Ordering::Relaxed);
        }
        if direct.is_empty() && stored.is_empty() {
            return None;
        }
        // Under the lock of what waits, so that it is never in neither.
        self.sending().insert(number, stored.iter().map(|(message, _)| message.clone()).collect());
        Some((direct, stored))
    }

    /// Sends one batch, call `number`. Gives whether that failed; then the streams are marked.
    async fn deliver(&self, engine: &Engine, number: u64, direct: Vec<Direct>, stored: Stored) -> bool {
        // Queue pushes and raw notifies go by themselves: one that is refused must not take announcements with it.
        let mut failed = false;
        if !direct.is_empty() {
            let (notifications, replies): (Vec<_>, Vec<_>) =
                direct.into_iter().map(|d| (d.notification, d.reply)).unzip();
            let result = self.notify(engine, &notifications).await;
            failed |= result.is_err();
            for reply in replies {
                // Who does not wait any more does not need the answer.
                let _ = reply.send(result.as_ref().map_err(Error::replicate).copied());
            }
        }
        if !stored.is_empty() {
            let most = engine.config.notify_max_bytes.min(engine.backend.notifier.max_payload_bytes());
            let notifications: Vec<_> = stored
                .iter()
                .map(|(message, light)| {
                    let payload = if *light { wire::encode_light(message) } else { wire::encode(message, most) };
                    Notification::new(engine.hub.channel_of(&message.stream), payload)
                })
                .collect();
            if self.notify(engine, &notifications).await.is_err() {
                failed = true;
                let mut marks = self.stored();
                stored.into_iter().for_each(|(message, _)| marks.mark(message));
            }
        }
        self.sending().remove(&number);
        failed
    }

    async fn notify(&self, engine: &Engine, notifications: &[Notification]) -> Result<()> {
        let counters = &engine.observer.counters;
        counters.notify_batches.add(1);
        let result = engine.call("notify", Step::Notify, engine.backend.notifier.notify(notifications)).await;
        match &result {
            Ok(()) => engine.observer.healed(Stage::Announce),
            Err(error) => {
                counters.notify_failures.add(1);
                engine.observer.error(Stage::Announce, error);
            }
        }
        result
    }
}

impl std::fmt::Debug for Announcer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Announcer").field("waiting", &self.len()).finish_non_exhaustive()
    }
}
