//! Queues: messages that are not stored, to everyone who listens right now.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::error::Result;
use crate::firehose::send;
use crate::raw::RawListener;

/// An ephemeral queue: every open one of its name, in any process, gets every message that is pushed while it is open.
///
/// Nothing is stored: what is pushed while nobody listens, or while a listener has no session, is gone. Content arrives
/// byte for byte, equal messages each for themselves. Streams and queues of one name do not hear each other.
#[derive(Debug)]
pub struct Queue {
    engine: Arc<Engine>,
    listener: RawListener,
}

impl Queue {
    pub(crate) async fn open(engine: &Arc<Engine>, name: &str) -> Result<Self> {
        let channel = engine.naming.raw(name)?;
        Ok(Self { engine: engine.clone(), listener: RawListener::open(engine, channel, "queue").await? })
    }

    /// Sends `data` to every open queue of this name, this one included. Waits until it is sent.
    ///
    /// # Errors
    /// [`TooLarge`](crate::ErrorKind::TooLarge) above 7,999 bytes, [`InvalidData`](crate::ErrorKind::InvalidData) with
    /// a NUL, and what the transport says.
    ///
    /// # Cancel safety
    /// Dropped half way, it may be sent.
    pub async fn push(&self, data: impl Into<Arc<str>>) -> Result<()> {
        send(&self.engine, self.listener.channel().clone(), data.into()).await
    }

    /// The next message; `None` once the queue is closed and everything was read.
    ///
    /// # Cancel safety
    /// Safe: a dropped call loses nothing.
    pub async fn pop(&self) -> Option<Arc<str>> {
        std::future::poll_fn(|cx| self.listener.poll(cx)).await
    }

    /// As [`Self::pop`], for at most `limit`.
    ///
    /// # Errors
    /// [`Elapsed`] where nothing came in time. A queue that is closed meanwhile gives `None`, not this.
    ///
    /// # Cancel safety
    /// Safe: a dropped call loses nothing.
    pub async fn pop_timeout(&self, limit: Duration) -> Result<Option<Arc<str>>, Elapsed> {
        let deadline = self.engine.clock.now() + limit;
        tokio::select! {
            biased;
            popped = self.pop() => Ok(popped),
            () = self.engine.clock.sleep_until(deadline) => Err(Elapsed(limit)),
        }
    }

    /// How many messages went because too many waited to be read.
    pub fn missed(&self) -> u64 {
        self.listener.missed()
    }

    /// Closes this end: what has arrived can still be popped.
    pub fn close(&self) {
        self.listener.close();
    }
}

/// Nothing came in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nothing was pushed within {}", humantime::format_duration(*.0))]
pub struct Elapsed(pub(crate) Duration);
