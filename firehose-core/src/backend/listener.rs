//! The hearing half of a transport.

use std::fmt::{self, Debug};
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::{Error, Result};
use crate::stream::ChannelIdentifier;

/// Opens listening sessions.
///
/// # Contract
/// 1. `connect` gives a session of its own each time, or an error; it never gives back one that was lost.
/// 2. A session listens on nothing at first.
/// 3. Dropping either half of a session ends it at once: the other half's commands fail, its events end with `Lost`, and
///    nothing of it stays at the other end.
/// 4. `connect` may be dropped at any poll; it then leaves no session behind.
#[async_trait]
pub trait Listener: Send + Sync + Debug + 'static {
    /// Opens a session (1, 2).
    ///
    /// # Errors
    /// What stands in the way of a connection.
    ///
    /// # Cancel safety
    /// Dropped half way, it leaves no session behind (4).
    async fn connect(&self) -> Result<Session>;
}

#[async_trait]
impl<T: Listener + ?Sized> Listener for Arc<T> {
    async fn connect(&self) -> Result<Session> {
        (**self).connect().await
    }
}

/// One listening session in its two halves. Dropping either closes the connection at once.
#[derive(Debug)]
pub struct Session {
    /// Takes commands.
    pub control: Box<dyn ListenControl>,
    /// Gives what is heard.
    pub events: Box<dyn ListenEvents>,
}

/// The commands of a session. They run while events are awaited: a LISTEN never interrupts the wait.
///
/// # Contract
/// 1. When `listen` returns `Ok`, every notification on those channels whose sender commits later is heard, whenever its
///    transaction began, and whether or not somebody awaits events already.
/// 2. `listen` on a channel that is listened to already, and `unlisten` on one that is not, change nothing.
/// 3. When `unlisten` returns `Ok`, nothing of those channels that is sent later is heard.
/// 4. After an error of `listen` or `unlisten` the session is as usable as `events` says: what is not `Lost` goes on.
/// 5. `ping` gets a real answer from the other end of this very session; where the session is over, an error.
/// 6. `registered` says what the other end believes this session listens to; `None` where it cannot say.
/// 7. `close` ends the session in good order. `events` still gives what had arrived by then, in its order and without a
///    hole, and then ends with `Lost`; nothing that is sent after `close` returned is heard.
/// 8. Every command may be dropped at any poll, and repeated; the session goes on.
#[async_trait]
pub trait ListenControl: Send + Sync + Debug + 'static {
    /// Listens on `channels`, all in as few round trips as can be (1, 2).
    ///
    /// # Errors
    /// What the other end says; then any part of `channels` may be listened to.
    ///
    /// # Cancel safety
    /// Dropped half way, any part of them may be listened to; repeating it is safe (8).
    async fn listen(&self, channels: &[ChannelIdentifier]) -> Result<()>;

    /// Stops listening on `channels` (2, 3).
    ///
    /// # Errors
    /// As [`Self::listen`].
    ///
    /// # Cancel safety
    /// As [`Self::listen`].
    async fn unlisten(&self, channels: &[ChannelIdentifier]) -> Result<()>;

    /// What the other end believes that this session listens to (6).
    ///
    /// # Errors
    /// What the other end says.
    ///
    /// # Cancel safety
    /// Safe.
    async fn registered(&self) -> Result<Option<Vec<ChannelIdentifier>>>;

    /// Asks for an answer (5).
    ///
    /// # Errors
    /// What stands in the way of one.
    ///
    /// # Cancel safety
    /// Safe.
    async fn ping(&self) -> Result<()>;

    /// Ends the session (7).
    ///
    /// # Cancel safety
    /// Dropped half way, drop the session too.
    async fn close(&self);
}

/// What a session hears.
///
/// # Contract
/// 1. `next` gives what arrives in the order of arrival, over all channels, and waits where there is nothing.
/// 2. After `Lost` it gives nothing more: every later call gives `Lost` again.
/// 3. `next` is cancel safe: a dropped call loses no event.
/// 4. A session that cannot keep up, or that loses anything, ends with `Lost`; it never goes on with a hole.
#[async_trait]
pub trait ListenEvents: Send + Debug + 'static {
    /// The next event (1, 2).
    ///
    /// # Cancel safety
    /// Safe (3).
    async fn next(&mut self) -> ListenEvent;
}

/// An event of a session.
pub enum ListenEvent {
    /// Something was heard.
    Notification {
        /// The channel it came on.
        channel: ChannelIdentifier,
        /// Its text.
        payload: Arc<str>,
    },
    /// The session is over.
    Lost(Error),
}

impl Debug for ListenEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Notification { channel, payload } => {
                f.debug_struct("Notification").field("channel", channel).field("bytes", &payload.len()).finish()
            }
            Self::Lost(error) => f.debug_tuple("Lost").field(error).finish(),
        }
    }
}
