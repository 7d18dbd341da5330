//! Reads of the store, for topics with holes and for subscriptions that are behind: few at a time, many streams in one.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, oneshot};

use super::topic::Read;
use super::topic_handle::TopicHandle;
use crate::backend::{MonoTime, Page, PageLimit, Position};
use crate::cursor::Cursor;
use crate::engine::Engine;
use crate::error::{Error, Result, Step};
use crate::observe::Stage;
use crate::stream::StreamName;

/// How many streams one read asks for.
const WIDE: usize = 64;

/// The largest page, in messages.
const PAGE_ROWS: usize = 500;

/// What all pages of one read may hold together, in bytes of data.
const READ_BYTES: usize = 8 << 20;

/// A page for a subscription, or why there is none.
pub(crate) type PageReply = oneshot::Receiver<Result<Arc<Page>>>;

enum Job {
    Topic(Arc<TopicHandle>, MonoTime),
    Page { stream: StreamName, cursor: Cursor, reply: oneshot::Sender<Result<Arc<Page>>> },
}

struct Due {
    at: MonoTime,
    number: u64,
    job: Job,
}

/// The reads that are asked for.
#[derive(Default)]
pub(crate) struct CatchUp {
    queue: Mutex<Queue>,
    arrived: Notify,
}

#[derive(Default)]
struct Queue {
    due: BinaryHeap<Reverse<Due>>,
    next: u64,
    /// The engine is over: a job is dropped, and with it its reply, so that who waits is told.
    closed: bool,
}

impl CatchUp {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, at: MonoTime, job: Job) {
        let mut queue = self.queue();
        if queue.closed {
            return;
        }
        let number = queue.next;
        queue.next += 1;
        queue.due.push(Reverse(Due { at, number, job }));
        drop(queue);
        self.arrived.notify_one();
    }

    /// The topic wants the store read at `at`, if it still does then.
    pub(crate) fn topic(&self, topic: Arc<TopicHandle>, at: MonoTime) {
        self.push(at, Job::Topic(topic, at));
    }

    /// A page of `stream` after `cursor`.
    pub(crate) fn page(&self, engine: &Engine, stream: StreamName, cursor: Cursor) -> PageReply {
        let (reply, page) = oneshot::channel();
        self.push(engine.clock.now(), Job::Page { stream, cursor, reply });
        page
    }

    /// Nothing is read any more.
    pub(crate) fn close(&self) {
        let mut queue = self.queue();
        queue.closed = true;
        queue.due.clear();
    }

    /// What is due, up to one wide read; else when something will be.
    fn take_due(&self, now: MonoTime) -> (Vec<Job>, Option<MonoTime>) {
        let mut queue = self.queue();
        let mut jobs = Vec::new();
        while jobs.len() < WIDE {
            match queue.due.peek() {
                Some(Reverse(due)) if due.at <= now => jobs.extend(queue.due.pop().map(|Reverse(due)| due.job)),
                Some(Reverse(due)) => return (jobs, Some(due.at)),
                None => return (jobs, None),
            }
        }
        (jobs, None)
    }

    /// The task: at most `catch_up_concurrency` reads at a time.
    pub(crate) async fn run(engine: Arc<Engine>) {
        let this = &engine.catch_up;
        let mut in_flight: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        loop {
            let mut next = None;
            while in_flight.len() < engine.config.catch_up_concurrency {
                let (jobs, later) = this.take_due(engine.clock.now());
                next = later;
                if jobs.is_empty() {
                    break;
                }
                let (batch, later) = Batch::new(jobs, engine.clock.now());
                later.into_iter().for_each(|(at, topic)| this.topic(topic, at));
                if let Some(batch) = batch {
                    in_flight.push(Box::pin(batch.read(&engine)));
                }
            }
            tokio::select! {
                biased;
                () = engine.cancelled() => return,
                Some(()) = in_flight.next() => {}
                () = this.arrived.notified() => {}
                () = async {
                    match next {
                        Some(at) => engine.clock.sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                } => {}
            }
        }
    }
}

/// One read of several streams.
#[derive(Default)]
struct Batch {
    requests: Vec<(StreamName, Position)>,
    takers: Vec<Takers>,
    /// Who wants the same page shares it.
    shared: HashMap<(StreamName, Cursor), usize>,
}

#[derive(Default)]
struct Takers {
    topic: Option<(Arc<TopicHandle>, Read)>,
    subscriptions: Vec<oneshot::Sender<Result<Arc<Page>>>>,
}

impl Batch {
    /// What is to be read now; and the topics that have put it off meanwhile, with the time of each.
    fn new(jobs: Vec<Job>, now: MonoTime) -> (Option<Self>, Vec<(MonoTime, Arc<TopicHandle>)>) {
        let (mut batch, mut later) = (Self::default(), Vec::new());
        for job in jobs {
            match job {
                Job::Topic(topic, at) => match topic.with(|state| state.topic.come(at, now)) {
                    (Some(read), _) => {
                        let stream = topic.stream.clone();
                        batch.request(&stream, read.from).topic = Some((topic, read));
                    }
                    (None, Some(due)) => later.push((due, topic)),
                    (None, None) => {}
                },
                Job::Page { reply, .. } if reply.is_closed() => {}
                Job::Page { stream, cursor, reply } => batch.request(&stream, cursor).subscriptions.push(reply),
            }
        }
        ((!batch.requests.is_empty()).then_some(batch), later)
    }

    fn request(&mut self, stream: &StreamName, cursor: Cursor) -> &mut Takers {
        let at = *self.shared.entry((stream.clone(), cursor)).or_insert_with(|| {
            self.requests.push((stream.clone(), Position::Cursor(cursor)));
            self.takers.push(Takers::default());
            self.takers.len() - 1
        });
        &mut self.takers[at]
    }

    async fn read(self, engine: &Engine) {
        let rows = PAGE_ROWS.min(engine.config.subscriber_buffer.max(WIDE));
        let limit = PageLimit { rows, bytes: (READ_BYTES / self.requests.len()).max(64 << 10) };
        let read = engine.backend.store.read_after(&self.requests, limit);
        let pages = match engine.call("read", Step::Read, read).await {
            Ok(pages) if pages.len() == self.requests.len() => Ok(pages),
            Ok(pages) => {
                let message = format!("the store gave {} pages for {} requests", pages.len(), self.requests.len());
                Err(Error::new(crate::ErrorKind::Backend, "read", message))
            }
            Err(error) => Err(error),
        };
        match pages {
            Ok(pages) => {
                engine.observer.healed(Stage::Replay);
                for (takers, page) in self.takers.into_iter().zip(pages) {
                    let page = Arc::new(page);
                    if let Some((topic, read)) = takers.topic {
                        topic.page(engine, &read, &page);
                    }
                    takers.subscriptions.into_iter().for_each(|reply| drop(reply.send(Ok(page.clone()))));
                }
            }
            Err(error) => {
                engine.observer.error(Stage::Replay, &error);
                for takers in self.takers {
                    if let Some((topic, read)) = takers.topic {
                        topic.read_failed(engine, &read);
                    }
                    takers.subscriptions.into_iter().for_each(|reply| drop(reply.send(Err(error.replicate()))));
                }
            }
        }
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl std::fmt::Debug for CatchUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CatchUp").field("due", &self.queue().due.len()).finish()
    }
}
