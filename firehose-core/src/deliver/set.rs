//! Several streams as one.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_util::future::{self, BoxFuture};
use futures_util::stream::{self, AbortHandle, Abortable, FuturesUnordered, StreamFuture};
use futures_util::{FutureExt, StreamExt, TryStreamExt};

use super::delivery::Delivery;
use super::options::SubscribeOptions;
use super::subscription::Subscription;
use crate::cursor::Cursor;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::stream::StreamName;
use crate::token::Token;

/// How many subscriptions of one [`add_many`](Subscriptions::add_many) are on their way at a time.
const OPENING: usize = 10_000;

/// A set of streams that comes and goes, read as one: each in order, none before another by rule.
///
/// Its [`token`](Self::token) holds a position in each, so that a transaction that commits late on one stream is not
/// skipped because of another.
pub struct Subscriptions {
    engine: Arc<Engine>,
    waiting: FuturesUnordered<StreamFuture<Abortable<Member>>>,
    members: HashMap<StreamName, Position>,
    next_number: u64,
    /// Ends with the engine.
    closing: future::Shared<BoxFuture<'static, ()>>,
}

struct Position {
    /// Which of the subscriptions of this name counts: the last that was added.
    number: u64,
    cursor: Cursor,
    subscription: Shared<Option<Subscription>>,
    /// Wakes who polls the member, so that its end is seen.
    abort: AbortHandle,
}

/// A subscription that knows its place in the set, and that the set can take back at any time.
struct Member {
    number: u64,
    subscription: Shared<Option<Subscription>>,
}

type Shared<T> = Arc<Mutex<T>>;

fn lock<T>(shared: &Shared<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream for Member {
    type Item = (u64, StreamName, Cursor, Delivery);

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let number = self.number;
        match &mut *lock(&self.subscription) {
            Some(subscription) => {
                let delivery = ready!(Pin::new(&mut *subscription).poll_next(cx));
                Poll::Ready(
                    delivery.map(|delivery| (number, subscription.stream().clone(), subscription.cursor(), delivery)),
                )
            }
            None => Poll::Ready(None),
        }
    }
}

impl Subscriptions {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        let closing = {
            let engine = engine.clone();
            async move {
                engine.shutdown.requested().await;
            }
            .boxed()
            .shared()
        };
        Self { engine, waiting: FuturesUnordered::new(), members: HashMap::new(), next_number: 0, closing }
    }

    /// Adds a stream, from a [`Start`](crate::Start) on or with other [`SubscribeOptions`]; one that is there already begins
    /// anew so.
    ///
    /// # Errors
    /// As [`subscribe_from`](crate::Firehose::subscribe_from); then the set is as it was.
    ///
    /// # Cancel safety
    /// Dropped half way, the set is as it was.
    pub async fn add<S>(&mut self, stream: S, options: impl Into<SubscribeOptions>) -> Result<()>
    where
        S: TryInto<StreamName>,
        Error: From<S::Error>,
    {
        self.add_many([(stream, options)]).await
    }

    /// Adds many streams, as [`Self::add`] does each: their LISTENs go together, and so do the reads of their heads. A stream
    /// that is named twice begins as the last says.
    ///
    /// # Errors
    /// Of the first stream that cannot be subscribed; then the set is as it was.
    ///
    /// # Cancel safety
    /// Dropped half way, the set is as it was.
    pub async fn add_many<S, O>(&mut self, streams: impl IntoIterator<Item = (S, O)>) -> Result<()>
    where
        S: TryInto<StreamName>,
        Error: From<S::Error>,
        O: Into<SubscribeOptions>,
    {
        let mut wanted = HashMap::new();
        for (stream, options) in streams {
            wanted.insert(stream.try_into()?, options.into());
        }
        let engine = &self.engine;
        let opening = wanted.into_iter().map(|(stream, options)| Subscription::open(engine, stream, options));
        let opened: Vec<Subscription> = stream::iter(opening).buffer_unordered(OPENING).try_collect().await?;
        opened.into_iter().for_each(|subscription| self.insert(subscription));
        Ok(())
    }

    fn insert(&mut self, subscription: Subscription) {
        let (name, cursor, number) = (subscription.stream().clone(), subscription.cursor(), self.next_number);
        self.next_number += 1;
        self.drop_member(&name);
        let subscription = Arc::new(Mutex::new(Some(subscription)));
        let (abort, registration) = AbortHandle::new_pair();
        let member = Member { number, subscription: subscription.clone() };
        self.members.insert(name, Position { number, cursor, subscription, abort });
        self.waiting.push(Abortable::new(member, registration).into_future());
    }

    /// Removes a stream: nothing of it is delivered any more. One that is not there is no error.
    pub fn remove(&mut self, stream: &StreamName) {
        self.drop_member(stream);
    }

    fn drop_member(&mut self, stream: &StreamName) {
        let Some(position) = self.members.remove(stream) else { return };
        // Its registration goes at once, not only when the set is polled.
        lock(&position.subscription).take();
        position.abort.abort();
    }

    /// The streams in the set.
    pub fn streams(&self) -> impl Iterator<Item = &StreamName> {
        self.members.keys()
    }

    /// How many streams it has.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The position in `stream` after everything that was handed out of it.
    pub fn cursor(&self, stream: &StreamName) -> Option<Cursor> {
        self.members.get(stream).map(|p| p.cursor)
    }

    /// The positions in all of its streams after everything that was handed out.
    pub fn token(&self) -> Token {
        let mut token = Token::new();
        self.members.iter().for_each(|(stream, position)| token.set(stream, position.cursor));
        token
    }

    /// The next delivery of any stream. It waits while the set is empty or nothing comes; `None` after every stream has
    /// been closed with the engine.
    ///
    /// # Cancel safety
    /// Safe: a dropped call loses nothing.
    pub async fn next(&mut self) -> Option<(StreamName, Delivery)> {
        StreamExt::next(self).await
    }
}

impl Stream for Subscriptions {
    type Item = (StreamName, Delivery);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match self.waiting.poll_next_unpin(cx) {
                // An empty set waits for the engine's end: `add` takes `&mut self`, so whoever adds polls again.
                Poll::Pending | Poll::Ready(None) if self.members.is_empty() => {
                    return self.closing.poll_unpin(cx).map(|()| None);
                }
                Poll::Pending | Poll::Ready(None) => return Poll::Pending,
                // A subscription that was removed.
                Poll::Ready(Some((None, _))) => {}
                Poll::Ready(Some((Some((number, name, cursor, delivery)), member))) => {
                    let Some(position) = self.members.get_mut(&name).filter(|p| p.number == number) else { continue };
                    position.cursor = cursor;
                    if matches!(delivery, Delivery::Closed(_)) {
                        self.members.remove(&name);
                    } else {
                        self.waiting.push(member.into_future());
                    }
                    return Poll::Ready(Some((name, delivery)));
                }
            }
        }
    }
}

impl fmt::Debug for Subscriptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.members.keys()).finish()
    }
}
