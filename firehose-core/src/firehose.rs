//! The handle.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;

use crate::backend::{Backend, Head, Notification, PageLimit, Position};
use crate::builder::Builder;
use crate::cursor::{Before, Start};
use crate::deliver::{HandlerGuard, SubscribeOptions, Subscription, Subscriptions, handle};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::message::{Epoch, Message, NewMessage, check_data};
use crate::observe::{Diagnostics, Health, MetricsSnapshot, State, StopReason};
use crate::publish::{Receipt, answer};
use crate::queue::Queue;
use crate::raw::RawListener;
use crate::retention;
use crate::shutdown::ShutdownReceipt;
use crate::stream::{ChannelIdentifier, StreamName};

/// A running engine. Clones share it; when the last one is dropped, the engine ends in the background, and every
/// subscription with it.
#[derive(Debug, Clone)]
pub struct Firehose {
    engine: Arc<Engine>,
    _life: Arc<Life>,
}

/// Ends the engine with the last handle, on any thread, with or without a runtime.
#[derive(Debug)]
struct Life(Arc<Engine>);

impl Drop for Life {
    fn drop(&mut self) {
        self.0.shutdown.request(&self.0, StopReason::Dropped, self.0.config.shutdown_timeout);
    }
}

impl Firehose {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { _life: Arc::new(Life(engine.clone())), engine }
    }

    /// Begins an engine on `backend`: PostgreSQL's, testkit's, or one of your own.
    pub fn builder(backend: Backend) -> Builder {
        Builder::new(backend)
    }

    /// Stores a message and announces it. When this returns, it is committed.
    ///
    /// # Errors
    /// [`InvalidName`](ErrorKind::InvalidName), [`InvalidData`](ErrorKind::InvalidData),
    /// [`TooLarge`](ErrorKind::TooLarge) above `max_message_bytes`, [`Overloaded`](ErrorKind::Overloaded) where too
    /// many wait, [`ShutDown`](ErrorKind::ShutDown), and what the store says. Where
    /// [`Error::outcome`] is `Unknown` it may be stored: repeating is safe with a key
    /// ([`Self::broadcast_message`]).
    ///
    /// # Cancel safety
    /// It is accepted at the first poll; dropped after that, it is stored all the same.
    pub async fn broadcast<S>(&self, stream: S, data: impl Into<Arc<str>>) -> Result<Message>
    where
        S: TryInto<StreamName>,
        Error: From<S::Error>,
    {
        self.broadcast_message(NewMessage::new(stream, data)?).await
    }

    /// As [`Self::broadcast`], with `value` as JSON.
    ///
    /// # Errors
    /// [`InvalidData`](ErrorKind::InvalidData) where it cannot be written as JSON, and as [`Self::broadcast`].
    ///
    /// # Cancel safety
    /// As [`Self::broadcast`].
    pub async fn broadcast_json<S, T>(&self, stream: S, value: &T) -> Result<Message>
    where
        S: TryInto<StreamName>,
        Error: From<S::Error>,
        T: Serialize + ?Sized,
    {
        let data = serde_json::to_string(value)
            .map_err(|e| Error::new(ErrorKind::InvalidData, "broadcast", "not writable as JSON").with_source(e))?;
        self.broadcast_message(NewMessage::new(stream, data)?).await
    }

    /// As [`Self::broadcast`], for a message that was made before; with a key, repeating it is safe.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> firehose_core::Result<()> {
    /// # let firehose = firehose_core::Firehose::builder(firehose_testkit::Testkit::new(7).backend()).start().await?;
    /// use firehose_core::NewMessage;
    ///
    /// let payment = NewMessage::new("orders", "paid")?.key("payment-7")?;
    /// let first = firehose.broadcast_message(payment.clone()).await?;
    /// let again = firehose.broadcast_message(payment).await?;
    /// assert_eq!(first, again);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Self::broadcast`].
    ///
    /// # Cancel safety
    /// As [`Self::broadcast`].
    pub async fn broadcast_message(&self, message: NewMessage) -> Result<Message> {
        at_once(answer(self.engine.publisher.accept(self.allowed(message)?)?)).await
    }

    /// Stores many messages, in the order given within each stream. Each has a result of its own: they are not one
    /// transaction.
    ///
    /// # Cancel safety
    /// All are accepted at the first poll; dropped after that, they are stored all the same.
    pub async fn broadcast_many(&self, messages: impl IntoIterator<Item = NewMessage>) -> Vec<Result<Message>> {
        let allowed: Vec<_> = messages.into_iter().map(|message| self.allowed(message)).collect();
        let waiting = self.engine.publisher.accept_all(allowed);
        let mut results = Vec::with_capacity(waiting.len());
        for accepted in waiting {
            results.push(match accepted {
                Ok(accepted) => at_once(answer(accepted)).await,
                Err(error) => Err(error),
            });
        }
        results
    }

    /// Announces what was stored in a transaction of the caller's, after its commit. The rows are read back, and those that
    /// are visible are announced: of what was rolled back, or is not committed yet, nothing. Gives how many were.
    ///
    /// # Errors
    /// [`ShutDown`](ErrorKind::ShutDown), and what the store says; then subscribers hear by their sweep.
    ///
    /// # Cancel safety
    /// Dropped half way, nothing is announced. Announcing again is harmless.
    pub async fn announce(&self, receipt: Receipt) -> Result<usize> {
        if self.engine.shutdown.is_closing() {
            return Err(Error::shut_down("announce"));
        }
        if receipt.ids().is_empty() {
            return Ok(0);
        }
        let read = self.engine.backend.store.get_many(receipt.ids());
        let mut messages = self.engine.call("announce", Step::Read, read).await?;
        messages.sort_by_key(|m| m.id);
        let count = messages.len();
        self.engine.announcer.announce(&self.engine, messages);
        Ok(count)
    }

    fn allowed(&self, message: NewMessage) -> Result<NewMessage> {
        if self.engine.shutdown.is_closing() {
            return Err(Error::shut_down("broadcast"));
        }
        let (bytes, most) = (message.data.len(), self.engine.config.max_message_bytes);
        if bytes > most {
            let error = Error::new(
                ErrorKind::TooLarge,
                "broadcast",
                format!("data of {bytes} bytes, at most {most} are allowed"),
            );
            return Err(error.with_hint("raise max_message_bytes, or store the data elsewhere and broadcast where"));
        }
        Ok(message)
    }

    /// Subscribes to what is broadcast from now on: a message broadcast after this returns is delivered, whatever fails.
    ///
    /// # Errors
    /// As [`Self::subscribe_from`].
    ///
    /// # Cancel safety
    /// Dropped half way, it leaves no registration behind.
    pub async fn subscribe<S>(&self, stream: S) -> Result<Subscription>
    where
        S: TryInto<StreamName>,
        Error: From<S::Error>,
    {
        self.subscribe_from(stream, Start::Now).await
    }

    /// Subscribes from a [`Start`] on, or with other [`SubscribeOptions`]. LISTEN is active, and the start is fixed, when
    /// this returns.
    ///
    /// # Errors
    /// [`InvalidName`](ErrorKind::InvalidName), [`InvalidCursor`](ErrorKind::InvalidCursor),
    /// [`Timeout`](ErrorKind::Timeout) after `subscribe_timeout` with the step that it waited for,
    /// [`NotSupported`](ErrorKind::NotSupported) on an engine that only publishes, [`ShutDown`](ErrorKind::ShutDown),
    /// and what the backend says of the LISTEN or of the reading.
    ///
    /// # Cancel safety
    /// Dropped half way, it leaves no registration behind.
    pub async fn subscribe_from<S>(&self, stream: S, options: impl Into<SubscribeOptions>) -> Result<Subscription>
    where
        S: TryInto<StreamName>,
        Error: From<S::Error>,
    {
        at_once(Subscription::open(&self.engine, stream.try_into()?, options.into())).await
    }

    /// A set of streams, empty at first.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> firehose_core::Result<()> {
    /// # let firehose = firehose_core::Firehose::builder(firehose_testkit::Testkit::new(7).backend()).start().await?;
    /// use firehose_core::{Start, StreamName, Token};
    ///
    /// let mut set = firehose.subscriptions();
    /// set.add("orders", Start::Now).await?;
    /// set.add("chat", Start::Now).await?;
    /// firehose.broadcast("chat", "hello").await?;
    /// let (stream, _delivery) = set.next().await.expect("the engine runs");
    /// assert_eq!(stream.as_str(), "chat");
    ///
    /// // One word holds both positions: keep it, and go on from it later.
    /// let token: Token = set.token().to_string().parse()?;
    /// let chat = StreamName::new("chat")?;
    /// set.add(&chat, Start::After(token.get(&chat).expect("it is in the token"))).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn subscriptions(&self) -> Subscriptions {
        Subscriptions::new(self.engine.clone())
    }

    /// Calls `handler` with each message of `stream` from now on, one after the other, in a task of its own, until the
    /// guard is dropped. Gaps and resets go to `on_event`. A handler that panics loses that message only.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> firehose_core::Result<()> {
    /// # let firehose = firehose_core::Firehose::builder(firehose_testkit::Testkit::new(7).backend()).start().await?;
    /// let _guard = firehose.on("orders", async |message| println!("{}", message.data)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Self::subscribe_from`].
    ///
    /// # Cancel safety
    /// Dropped half way, it leaves no registration behind.
    pub async fn on<S, F, Fut>(&self, stream: S, handler: F) -> Result<HandlerGuard>
    where
        S: TryInto<StreamName>,
        Error: From<S::Error>,
        F: FnMut(Arc<Message>) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.on_from(stream, SubscribeOptions::default(), handler).await
    }

    /// As [`Self::on`], from a [`Start`] on, or with other [`SubscribeOptions`].
    ///
    /// # Errors
    /// As [`Self::subscribe_from`].
    ///
    /// # Cancel safety
    /// Dropped half way, it leaves no registration behind.
    pub async fn on_from<S, F, Fut>(
        &self,
        stream: S,
        options: impl Into<SubscribeOptions>,
        handler: F,
    ) -> Result<HandlerGuard>
    where
        S: TryInto<StreamName>,
        Error: From<S::Error>,
        F: FnMut(Arc<Message>) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let subscription = self.subscribe_from(stream, options).await?;
        let (guard, task) = handle(self.engine.clone(), subscription, handler);
        self.engine.spawn.send(Box::pin(task)).await.map_err(|_| Error::shut_down("on"))?;
        Ok(guard)
    }

    /// The newest `limit` messages before a position, in the order of their sequences; at most 10,000, and 8 MiB of
    /// data, at a time.
    ///
    /// # Errors
    /// [`InvalidName`](ErrorKind::InvalidName), [`InvalidCursor`](ErrorKind::InvalidCursor), and what the store says.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn history<S>(&self, stream: S, before: Before, limit: usize) -> Result<Vec<Arc<Message>>>
    where
        S: TryInto<StreamName>,
        Error: From<S::Error>,
    {
        let stream = stream.try_into()?;
        before.0.check("history")?;
        if limit == 0 {
            return Ok(Vec::new());
        }
        let limit = PageLimit { rows: limit.min(10_000), bytes: 8 << 20 };
        let read = self.engine.backend.store.read_before(&stream, Position::Cursor(before.0), limit);
        Ok(self.engine.call("history", Step::Read, read).await?.messages)
    }

    /// The head of a stream; `None` where it does not exist.
    ///
    /// # Errors
    /// [`InvalidName`](ErrorKind::InvalidName), and what the store says.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn head<S>(&self, stream: S) -> Result<Option<Head>>
    where
        S: TryInto<StreamName>,
        Error: From<S::Error>,
    {
        let stream = stream.try_into()?;
        if self.engine.shutdown.is_closing() {
            return Err(Error::shut_down("head"));
        }
        self.engine.heads.head(&stream).await
    }

    /// Removes a stream with all its messages; gives the epoch that ended. Subscribers are told by a reset when it is
    /// created again.
    ///
    /// # Errors
    /// [`InvalidName`](ErrorKind::InvalidName), and what the store says.
    ///
    /// # Cancel safety
    /// Dropped half way, it may be done.
    pub async fn delete_stream<S>(&self, stream: S) -> Result<Option<Epoch>>
    where
        S: TryInto<StreamName>,
        Error: From<S::Error>,
    {
        let stream = stream.try_into()?;
        let delete = self.engine.backend.store.delete_stream(&stream);
        self.engine.call("delete_stream", Step::Delete, delete).await
    }

    /// Removes a stream's old messages now, by the same rule as the background does: what is more than the database's
    /// `cleanup_threshold`, or older than `retention_max_age`, and older than `retention_min_age`. Gives how many went.
    /// Publishers never wait for it, and the stream's next message has the next number, also where nothing is left.
    ///
    /// # Errors
    /// [`InvalidName`](ErrorKind::InvalidName), [`SettingsMismatch`](ErrorKind::SettingsMismatch) where the database's
    /// threshold is not the configuration's any more, [`Timeout`](ErrorKind::Timeout) where another trim of the stream
    /// does not end, and what the store says.
    ///
    /// # Cancel safety
    /// Dropped half way, some of it is done.
    pub async fn trim<S>(&self, stream: S) -> Result<u64>
    where
        S: TryInto<StreamName>,
        Error: From<S::Error>,
    {
        let stream = stream.try_into()?;
        if self.engine.shutdown.is_closing() {
            return Err(Error::shut_down("trim"));
        }
        retention::trim_stream(&self.engine, &stream).await
    }

    /// Opens a queue: messages that are not stored, to everyone who has it open.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> firehose_core::Result<()> {
    /// # let firehose = firehose_core::Firehose::builder(firehose_testkit::Testkit::new(7).backend()).start().await?;
    /// let jobs = firehose.queue("jobs").await?;
    /// jobs.push("resize 42").await?;
    /// assert_eq!(jobs.pop().await.as_deref(), Some("resize 42"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidName`](ErrorKind::InvalidName), also for names that begin with the prefix and `:` or `-`; else as
    /// [`Self::subscribe_from`].
    ///
    /// # Cancel safety
    /// Dropped half way, it leaves no registration behind.
    pub async fn queue(&self, name: impl AsRef<str>) -> Result<Queue> {
        Queue::open(&self.engine, name.as_ref()).await
    }

    /// Listens to a raw channel, whose name is hashed as a queue's is.
    ///
    /// # Errors
    /// As [`Self::queue`].
    ///
    /// # Cancel safety
    /// Dropped half way, it leaves no registration behind.
    pub async fn listen_raw(&self, name: impl AsRef<str>) -> Result<RawListener> {
        let channel = self.engine.naming.raw(name.as_ref())?;
        RawListener::open(&self.engine, channel, "listen_raw").await
    }

    /// Listens to a channel of your own, under its own name.
    ///
    /// # Errors
    /// [`InvalidName`](ErrorKind::InvalidName) where it is empty, over 63 bytes or has a NUL; else as
    /// [`Self::subscribe_from`].
    ///
    /// # Cancel safety
    /// Dropped half way, it leaves no registration behind.
    pub async fn listen_identifier(&self, name: impl AsRef<str>) -> Result<RawListener> {
        RawListener::open(&self.engine, ChannelIdentifier::new(name)?, "listen_identifier").await
    }

    /// Sends `payload` to who listens to the raw channel `name`, or has the queue of that name open. Waits until it is
    /// sent.
    ///
    /// # Errors
    /// As [`Queue::push`], and [`InvalidName`](ErrorKind::InvalidName).
    ///
    /// # Cancel safety
    /// Dropped half way, it may be sent.
    pub async fn notify(&self, name: impl AsRef<str>, payload: impl Into<Arc<str>>) -> Result<()> {
        let channel = self.engine.naming.raw(name.as_ref())?;
        send(&self.engine, channel, payload.into()).await
    }

    /// What the engine is doing now.
    pub fn state(&self) -> State {
        *self.engine.state.borrow()
    }

    /// What the engine is doing, to wait on.
    pub fn watch_state(&self) -> watch::Receiver<State> {
        self.engine.state.subscribe()
    }

    /// How the engine is.
    pub fn health(&self) -> Health {
        Health {
            state: self.state(),
            reason: self.engine.observer.reason(),
            seconds_since_heartbeat: self.engine.heartbeat_age().as_secs_f64(),
        }
    }

    /// Everything a person on call wants to see.
    pub fn diagnostics(&self) -> Diagnostics {
        let mut streams = self.engine.hub.diagnose();
        streams.sort_by_key(|s| std::cmp::Reverse((s.known.0 - s.tail.map_or(0, |t| t.0), s.behind)));
        streams.truncate(20);
        Diagnostics {
            pid: std::process::id(),
            running: !self.engine.shutdown.is_closing(),
            state: self.state(),
            reason: self.engine.observer.reason(),
            prefix: self.engine.naming.prefix().to_owned(),
            streams,
            metrics: self.engine.metrics(),
        }
    }

    /// Every counter and gauge.
    pub fn metrics_snapshot(&self) -> MetricsSnapshot {
        self.engine.metrics()
    }

    /// Gives up the listening session and opens another; what is missed meanwhile is replayed.
    pub fn force_reconnect(&self) {
        self.engine.force_reconnect.notify_one();
    }

    /// Ends the engine within `deadline`: stores what was accepted, announces what was stored, closes every
    /// subscription and the session. May be called from any task, at any time, and again: each call gets the same
    /// receipt, and the first one's deadline counts.
    ///
    /// # Cancel safety
    /// Dropped half way, the end goes on.
    pub async fn shutdown(&self, deadline: Duration) -> ShutdownReceipt {
        self.engine.shutdown.request(&self.engine, StopReason::Shutdown, deadline);
        self.engine.shutdown.receipt().await
    }
}

/// Takes a short future out of tokio's cooperative budget. With it, thousands of these joined in one task would take
/// turns of 128, and each turn polls all of them: quadratic time.
async fn at_once<F: Future>(future: F) -> F::Output {
    tokio::task::coop::unconstrained(future).await
}

/// Sends a payload that is stored nowhere.
pub(crate) async fn send(engine: &Engine, channel: ChannelIdentifier, payload: Arc<str>) -> Result<()> {
    check_data("notify", &payload)?;
    let most = engine.config.notify_max_bytes.min(engine.backend.notifier.max_payload_bytes());
    if payload.len() > most {
        let message = format!("payload of {} bytes, at most {most} are allowed", payload.len());
        return Err(Error::new(ErrorKind::TooLarge, "notify", message));
    }
    if engine.shutdown.is_closing() {
        return Err(Error::shut_down("notify"));
    }
    engine.announcer.send(Notification::new(channel, payload)).await
}
