//! Channels as they are: nothing is stored, and nothing is promised beyond what NOTIFY does.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use crate::deliver::Hub;
use crate::engine::Engine;
use crate::error::Result;
use crate::stream::ChannelIdentifier;

/// What arrived on a raw channel and was not read yet.
#[derive(Debug)]
pub(crate) struct RawInbox {
    state: Mutex<State>,
    most: usize,
    most_bytes: usize,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Arc<str>>,
    bytes: usize,
    missed: u64,
    closed: bool,
    waker: Option<Waker>,
}

impl RawInbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Never waits: where there is no room the oldest goes, and is counted.
    pub(crate) fn push(&self, payload: &Arc<str>) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        state.bytes += payload.len();
        state.waiting.push_back(payload.clone());
        while state.waiting.len() > self.most || (state.bytes > self.most_bytes && state.waiting.len() > 1) {
            if let Some(oldest) = state.waiting.pop_front() {
                state.bytes -= oldest.len();
                state.missed += 1;
            }
        }
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

/// Hears a channel: every payload that is sent while it listens and is connected, byte for byte.
///
/// What is sent while there is no session is lost, as with LISTEN itself. What arrives and is not read is kept up to
/// `subscriber_buffer` payloads and `subscriber_buffer_bytes`; beyond that the oldest goes, and [`Self::missed`] counts.
pub struct RawListener {
    engine: Arc<Engine>,
    channel: ChannelIdentifier,
    inbox: Arc<RawInbox>,
}

impl RawListener {
    pub(crate) async fn open(
        engine: &Arc<Engine>,
        channel: ChannelIdentifier,
        operation: &'static str,
    ) -> Result<Self> {
        if engine.backend.listener.is_none() {
            let message = "this engine only publishes: its backend has no listener";
            return Err(crate::Error::new(crate::ErrorKind::NotSupported, operation, message));
        }
        let (most, most_bytes) = (engine.config.subscriber_buffer, engine.config.subscriber_buffer_bytes);
        let inbox = Arc::new(RawInbox { state: Mutex::default(), most, most_bytes });
        let deadline = engine.clock.now() + engine.config.subscribe_timeout;
        let mut listening = engine.hub.lease_raw(&channel, inbox.clone())?;
        // From here on a drop gives the channel up.
        let listener = Self { engine: engine.clone(), channel, inbox };
        if Hub::wait_listening(engine, &mut listening, deadline, operation).await? {
            return Ok(listener);
        }
        let message = "nothing would be heard: a pooler gives each transaction another server connection";
        let error = crate::Error::new(crate::ErrorKind::Pooler, operation, message);
        Err(error.with_hint("set listen_url to a direct address of the server"))
    }

    /// The channel.
    pub fn channel(&self) -> &ChannelIdentifier {
        &self.channel
    }

    /// The next payload; `None` once it is closed and everything was read.
    ///
    /// # Cancel safety
    /// Safe: a dropped call loses nothing.
    pub async fn next(&mut self) -> Option<Arc<str>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// How many payloads went because too many waited to be read.
    pub fn missed(&self) -> u64 {
        self.inbox.state().missed
    }

    pub(crate) fn close(&self) {
        self.inbox.close();
    }

    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Option<Arc<str>>> {
        let mut state = self.inbox.state();
        if let Some(payload) = state.waiting.pop_front() {
            state.bytes -= payload.len();
            return Poll::Ready(Some(payload));
        }
        if state.closed {
            return Poll::Ready(None);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Stream for RawListener {
    type Item = Arc<str>;
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Arc<str>>> {
        self.poll(cx)
    }
}

impl Drop for RawListener {
    fn drop(&mut self) {
        self.engine.hub.release_raw(&self.channel, &self.inbox);
    }
}

impl fmt::Debug for RawListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawListener").field("channel", &self.channel).finish_non_exhaustive()
    }
}
