//! The sending half of a transport.

use std::fmt::{self, Debug};
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::Result;
use crate::stream::ChannelIdentifier;

/// A hint on its way to who listens.
#[derive(Clone, PartialEq, Eq)]
pub struct Notification {
    /// The channel it goes to.
    pub channel: ChannelIdentifier,
    /// Its text.
    pub payload: Arc<str>,
}

impl Notification {
    /// A notification of `payload` on `channel`.
    pub fn new(channel: ChannelIdentifier, payload: impl Into<Arc<str>>) -> Self {
        Self { channel, payload: payload.into() }
    }
}

impl Debug for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notification").field("channel", &self.channel).field("bytes", &self.payload.len()).finish()
    }
}

/// Sends notifications, best effort: what is lost or late costs time, never a message.
///
/// # Contract
/// 1. After `Ok`, every session that had LISTEN acknowledged on a channel before the call hears that channel's
///    notifications, unless its connection is lost.
/// 2. Equal notifications of one call all arrive, each for itself.
/// 3. Notifications on one channel arrive in the order given: those of one call, and those of a call that begins when
///    another has returned after that one's.
/// 4. A payload of `max_payload_bytes` bytes is sent whole. A longer one is [`TooLarge`](crate::ErrorKind::TooLarge),
///    and nothing of that call is sent.
/// 5. After an error some may have been sent: a caller may send them again, and who hears them drops what is double.
/// 6. A notifier owns its connections; it depends on no listener and on no store's transaction.
/// 7. `notify` may be dropped at any poll: any part of the call may be sent, as in 5, and the notifier goes on working.
#[async_trait]
pub trait Notifier: Send + Sync + Debug + 'static {
    /// Sends all of `notifications` (1 to 3).
    ///
    /// # Errors
    /// [`TooLarge`](crate::ErrorKind::TooLarge) (4), else what the transport says (5).
    ///
    /// # Cancel safety
    /// Dropped half way, any part of them may be sent (7).
    async fn notify(&self, notifications: &[Notification]) -> Result<()>;

    /// The longest payload it takes, in bytes.
    fn max_payload_bytes(&self) -> usize;
}

#[async_trait]
impl<T: Notifier + ?Sized> Notifier for Arc<T> {
    async fn notify(&self, notifications: &[Notification]) -> Result<()> {
        (**self).notify(notifications).await
    }
    fn max_payload_bytes(&self) -> usize {
        (**self).max_payload_bytes()
    }
}
