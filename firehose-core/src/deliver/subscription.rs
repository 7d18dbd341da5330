//! One subscriber of one stream.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::future::BoxFuture;

use super::delivery::{CloseReason, Delivery, GapReason, Item};
use super::feed::{ReaderKey, Taken};
use super::hub::{Hub, TopicLease};
use super::options::{Lag, SubscribeOptions};
use super::replay::{Committed, absorb};
use super::resume::{self, Plan};
use super::topic_handle::tell;
use crate::backend::{Head, Page, PageLimit, Position};
use crate::cursor::{Cursor, Start};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::message::Sequence;
use crate::observe::Event;
use crate::stream::StreamName;

/// How many items are taken from the feed at a time.
const TAKE: usize = 32;

/// A stream, from its start on: every message in order, once; what is no longer there is said.
///
/// It is a [`Stream`] of [`Delivery`], and [`Subscription::next`] needs no extension trait. Dropping it ends it, at once
/// and on any thread. It does not keep the engine alive.
///
/// However slow its reader, it delays nobody: what it has not read stays in memory up to `subscriber_buffer` messages
/// and `subscriber_buffer_bytes` of its stream; beyond that it reads from the store at its own pace, or what its
/// [`Lag`] says.
pub struct Subscription {
    lease: TopicLease,
    reader: ReaderKey,
    /// Where the next read goes on.
    fetched: Cursor,
    /// What was read and not handed out yet.
    ready: VecDeque<Item>,
    /// What was handed out.
    delivered: Cursor,
    start: Cursor,
    step: Waiting,
    lag: Lag,
    attached: bool,
    ended: bool,
}

/// What the subscription waits for.
enum Waiting {
    /// The feed.
    Feed,
    /// A page of the store, which began with this head known.
    Page(BoxFuture<'static, Result<Arc<Page>>>, Option<Committed>),
    /// A time, after a read that failed.
    Pause(BoxFuture<'static, ()>),
}

impl Subscription {
    /// LISTEN, then head, then the start is fixed.
    pub(crate) async fn open(engine: &Arc<Engine>, stream: StreamName, options: SubscribeOptions) -> Result<Self> {
        let SubscribeOptions { start, lag } = options;
        if let Start::After(cursor) = &start {
            cursor.check("subscribe")?;
        }
        if engine.backend.listener.is_none() {
            let message = "this engine only publishes: its backend has no listener";
            return Err(Error::new(ErrorKind::NotSupported, "subscribe", message));
        }
        let deadline = engine.clock.now() + engine.config.subscribe_timeout;
        let mut lease = Hub::lease(engine, &stream)?;
        Hub::wait_listening(engine, &mut lease.listening, deadline, "subscribe").await?;
        let plan = fix_start(engine, &lease, start);
        let plan = tokio::select! {
            biased;
            plan = plan => plan?,
            () = engine.clock.sleep_until(deadline) => {
                return Err(Error::timeout("subscribe", Step::Heads, engine.config.subscribe_timeout));
            }
        };
        let reader = lease.topic.with(|state| state.feed.enter(lag));
        Ok(Self {
            lease,
            reader,
            fetched: plan.cursor,
            // What is told first is not handed out yet: who leaves before it is told it again.
            delivered: match (start, &plan.first) {
                (Start::After(cursor), Some(_)) => cursor,
                _ => plan.cursor,
            },
            start: plan.cursor,
            ready: plan.first.into_iter().collect(),
            step: Waiting::Feed,
            lag,
            attached: false,
            ended: false,
        })
    }

    /// The stream.
    pub fn stream(&self) -> &StreamName {
        &self.lease.topic.stream
    }

    /// Where it began: every message after this position is delivered.
    pub fn start(&self) -> Cursor {
        self.start
    }

    /// The position after everything that was handed out, to go on from later with [`Start::After`].
    pub fn cursor(&self) -> Cursor {
        self.delivered
    }

    /// The next delivery; `None` after [`Delivery::Closed`].
    ///
    /// # Cancel safety
    /// Safe: a dropped call loses nothing.
    pub async fn next(&mut self) -> Option<Delivery> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Hands out an item that is ready.
    fn deliver(&mut self) -> Option<Delivery> {
        let item = self.ready.pop_front()?;
        if let Item::Gap(gap, _) = &item
            && gap.reason == GapReason::DropOldest
        {
            self.lagged(gap.from);
        }
        tell(&self.lease.engine, &item);
        self.delivered = item.after();
        Some(item.into())
    }

    /// Asks for the page after where it is.
    fn read_store(&mut self) -> Waiting {
        let engine = &self.lease.engine;
        let committed = self.lease.topic.with(|state| state.topic.committed_in(&self.fetched));
        let page = engine.catch_up.page(engine, self.stream().clone(), self.fetched);
        let page = async move { page.await.unwrap_or_else(|_| Err(Error::shut_down("read"))) };
        Waiting::Page(Box::pin(page), committed)
    }

    /// It fell behind, with `from` the first message that it has yet to see.
    fn lagged(&self, from: Sequence) {
        let to = self.lease.topic.with(|state| state.topic.known());
        let event = Event::Lagged { stream: self.stream().clone(), from, to, lag: self.lag };
        self.lease.engine.observer.event(&event);
    }

    fn pause(&self) -> Waiting {
        let (clock, until) =
            (self.lease.engine.clock.clone(), self.lease.engine.clock.now() + self.lease.engine.config.sweep_interval);
        Waiting::Pause(Box::pin(async move { clock.sleep_until(until).await }))
    }

    /// Looks into the feed; the waker is registered in the same breath where there is nothing.
    fn look(&mut self, cx: &Context<'_>) -> Taken {
        let (reader, ready) = (self.reader, &mut self.ready);
        let fetched = &mut self.fetched;
        self.lease.topic.with(|state| {
            let taken = state.feed.take(reader, fetched, TAKE, ready);
            if taken == Taken::Nothing {
                state.feed.wait(reader, cx.waker());
            }
            taken
        })
    }
}

/// Reads what the start needs, and fixes it: for the topic if it is the first, and for this subscription.
async fn fix_start(engine: &Arc<Engine>, lease: &TopicLease, start: Start) -> Result<Plan> {
    let stream = &lease.topic.stream;
    let store = &engine.backend.store;
    let head: Option<Head> = engine.heads.head(stream).await?;
    lease.topic.start(engine, head.as_ref());
    Ok(match start {
        Start::Now => resume::now(head.as_ref()),
        Start::Earliest => resume::earliest(head.as_ref()),
        Start::After(cursor) => {
            let own = head.is_some_and(|h| cursor.epoch == Some(h.epoch) && cursor.sequence <= h.sequence);
            let anchor = if own && (cursor.id.is_some() || cursor.created_at.is_some()) {
                let anchors = store.anchors(std::slice::from_ref(&cursor));
                engine.call("subscribe", Step::Anchors, anchors).await?.into_iter().next()
            } else {
                None
            };
            resume::after(stream, cursor, head.as_ref(), anchor)
        }
        Start::AfterId(id) => {
            let request = [(stream.clone(), Position::Id(id))];
            let limit = PageLimit { rows: 1, bytes: 1 };
            let pages = engine.call("subscribe", Step::Read, store.read_after(&request, limit)).await?;
            let next = pages.first().and_then(|p| p.messages.first()).map(|m| m.sequence);
            resume::after_id(stream, id, head.as_ref(), next)
        }
    })
}

impl Stream for Subscription {
    type Item = Delivery;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let this = self.get_mut();
        // A stream that always has something ready must not keep its task's thread from other tasks.
        let budget = std::task::ready!(tokio::task::coop::poll_proceed(cx));
        let polled = this.advance(cx);
        if polled.is_ready() {
            budget.made_progress();
        }
        polled
    }
}

impl Subscription {
    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let this = self;
        loop {
            if this.ended {
                return Poll::Ready(None);
            }
            if let Some(delivery) = this.deliver() {
                return Poll::Ready(Some(delivery));
            }
            match &mut this.step {
                Waiting::Feed => match this.look(cx) {
                    Taken::Items => this.attached = true,
                    Taken::Nothing => {
                        this.attached = true;
                        return Poll::Pending;
                    }
                    Taken::Behind(reset) => {
                        if std::mem::take(&mut this.attached) {
                            this.lagged(this.fetched.sequence.next());
                        }
                        this.ready.extend(reset);
                        this.step = this.read_store();
                    }
                    Taken::Closed(reason) => {
                        this.ended = true;
                        if reason == CloseReason::Lagged {
                            this.lagged(this.fetched.sequence.next());
                        }
                        return Poll::Ready(Some(Delivery::Closed(reason)));
                    }
                },
                Waiting::Page(page, committed) => {
                    let committed = *committed;
                    let Poll::Ready(page) = page.as_mut().poll(cx) else { return Poll::Pending };
                    this.step = match page {
                        Ok(page) => {
                            let mut items = Vec::new();
                            let stream = &this.lease.topic.stream;
                            absorb(stream, &mut this.fetched, &page, committed, &mut items);
                            let idle = items.is_empty() && !page.more;
                            this.ready.extend(items);
                            if page.more {
                                this.read_store()
                            } else if idle && !this.caught_up() {
                                // The feed is ahead of what the store shows: something was announced too early.
                                this.pause()
                            } else {
                                Waiting::Feed
                            }
                        }
                        Err(error) if error.kind() == ErrorKind::ShutDown => Waiting::Feed,
                        Err(_) => this.pause(),
                    };
                }
                Waiting::Pause(pause) => {
                    let Poll::Ready(()) = pause.as_mut().poll(cx) else { return Poll::Pending };
                    this.step = Waiting::Feed;
                }
            }
        }
    }

    /// Whether the feed goes on from where this is.
    fn caught_up(&mut self) -> bool {
        let (reader, ready) = (self.reader, &mut self.ready);
        let fetched = &mut self.fetched;
        self.lease.topic.with(|state| match state.feed.take(reader, fetched, TAKE, ready) {
            Taken::Behind(None) => false,
            Taken::Behind(Some(reset)) => {
                ready.push_back(reset);
                true
            }
            Taken::Items | Taken::Nothing | Taken::Closed(_) => true,
        })
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.lease.topic.with(|state| state.feed.leave(self.reader));
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("stream", self.stream())
            .field("cursor", &self.delivered)
            .field("fetched", &self.fetched)
            .field(
                "waits_for",
                match &self.step {
                    Waiting::Feed => &"feed",
                    Waiting::Page(..) => &"page",
                    Waiting::Pause(_) => &"pause",
                },
            )
            .finish()
    }
}
