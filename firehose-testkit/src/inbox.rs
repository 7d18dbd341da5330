//! What waits for one session.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use firehose_core::{Error, MonoTime, Notification};
use tokio::sync::Notify;

/// A session's side of the wire.
pub(crate) struct Inbox {
    process: u32,
    queue: Mutex<Queue>,
    /// Something changed for who waits for events.
    arrived: Notify,
    /// The session is over, for commands that hang.
    over: Notify,
}

#[derive(Default)]
struct Queue {
    /// By time of arrival, and among equal times by the order of sending.
    waiting: BTreeMap<(MonoTime, u64), Notification>,
    sent: u64,
    lost: Option<Error>,
    frozen: bool,
    /// After how many more notifications the connection is cut.
    left: Option<u64>,
}

/// What becomes of what a session has not read when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unread {
    Keep,
    Forget,
}

/// What a session can read now.
pub(crate) enum Read {
    Notification(Notification),
    Lost(Error),
    /// This many events were all it was to get: cut it.
    Cut,
    /// Nothing before this time, or before something arrives.
    Wait(Option<MonoTime>),
}

impl Inbox {
    pub(crate) fn new(process: u32, left: Option<u64>) -> Self {
        let queue = Queue { left, ..Queue::default() };
        Self { process, queue: Mutex::new(queue), arrived: Notify::new(), over: Notify::new() }
    }

    /// The process that the session belongs to.
    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    /// Adds what arrives at `at`; `false` where more than `bound` would wait.
    pub(crate) fn push(&self, at: MonoTime, notification: &Notification, bound: usize) -> bool {
        let mut queue = self.queue();
        if queue.frozen || queue.lost.is_some() {
            return true;
        }
        if queue.waiting.len() >= bound {
            return false;
        }
        queue.sent += 1;
        let key = (at, queue.sent);
        queue.waiting.insert(key, notification.clone());
        drop(queue);
        self.arrived.notify_one();
        true
    }

    /// Takes one of the first `window` notifications that have arrived: the one that `pick` names among so many.
    pub(crate) fn read(&self, now: MonoTime, window: usize, pick: impl FnOnce(usize) -> usize) -> Read {
        let mut queue = self.queue();
        if queue.left == Some(0) && queue.lost.is_none() {
            return Read::Cut;
        }
        let arrived = queue.waiting.range(..=(now, u64::MAX)).take(window).count();
        if arrived > 0 {
            let place = pick(arrived).min(arrived - 1);
            let key = queue.waiting.keys().nth(place).copied();
            if let Some(notification) = key.and_then(|key| queue.waiting.remove(&key)) {
                queue.left = queue.left.map(|left| left.saturating_sub(1));
                return Read::Notification(notification);
            }
        }
        let lost = queue.lost.as_ref().map(Error::replicate);
        if let Some(error) = lost {
            // What was still on its way never arrives: after this there is nothing.
            queue.waiting.clear();
            return Read::Lost(error);
        }
        Read::Wait(queue.waiting.keys().next().map(|&(at, _)| at))
    }

    /// Ends it; the first reason stays.
    pub(crate) fn lose(&self, unread: Unread, why: Error) {
        let mut queue = self.queue();
        queue.lost.get_or_insert(why);
        if unread == Unread::Forget {
            queue.waiting.clear();
        }
        drop(queue);
        self.arrived.notify_one();
        self.over.notify_waiters();
    }

    /// Hears nothing from now on, and does not say so.
    pub(crate) fn freeze(&self) {
        let mut queue = self.queue();
        queue.frozen = true;
        queue.waiting.clear();
    }

    /// Waits until something arrives.
    pub(crate) async fn arrival(&self) {
        self.arrived.notified().await;
    }

    /// Waits for an answer from the other end: at once, or never while the session is frozen.
    ///
    /// # Errors
    /// Why the session is over, where it is.
    pub(crate) async fn answer(&self) -> Result<(), Error> {
        loop {
            let mut over = std::pin::pin!(self.over.notified());
            over.as_mut().enable();
            {
                let queue = self.queue();
                if let Some(error) = &queue.lost {
                    return Err(error.replicate());
                }
                if !queue.frozen {
                    return Ok(());
                }
            }
            over.await;
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
