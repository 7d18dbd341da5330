//! A transport inside one process: for a service that needs no other.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::Notify;

use super::{ListenControl, ListenEvent, ListenEvents, Listener, Notification, Notifier, Session};
use crate::error::{Error, ErrorKind, Result};
use crate::stream::ChannelIdentifier;

/// Carries notifications between the engines of one process; clones share it.
///
/// It is [`Notifier`] and [`Listener`] in one. A session that leaves more than [`InProcess::SESSION_QUEUE`]
/// notifications unread is lost, like a connection, and its engine reads from the store what it missed.
#[derive(Clone, Default)]
pub struct InProcess {
    bus: Arc<Mutex<Bus>>,
}

#[derive(Default)]
struct Bus {
    sessions: HashMap<u64, Arc<Inbox>>,
    listening: HashMap<ChannelIdentifier, HashSet<u64>>,
    next: u64,
}

#[derive(Default)]
struct Inbox {
    queue: Mutex<Queue>,
    arrived: Notify,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Notification>,
    lost: Option<&'static str>,
}

impl InProcess {
    /// How many notifications a session may leave unread.
    pub const SESSION_QUEUE: usize = 65_536;

    /// The longest payload, that of PostgreSQL's NOTIFY, so that what works here works there.
    pub const MAX_PAYLOAD_BYTES: usize = 7_999;

    /// A transport that nobody uses yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn bus(&self) -> MutexGuard<'_, Bus> {
        self.bus.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, notification: &Notification) {
        let mut queue = self.queue();
        if queue.lost.is_some() {
            return;
        }
        if queue.waiting.len() >= InProcess::SESSION_QUEUE {
            queue.waiting.clear();
            queue.lost = Some("the session did not keep up");
        } else {
            queue.waiting.push_back(notification.clone());
        }
        drop(queue);
        self.arrived.notify_one();
    }

    fn lose(&self, why: &'static str) {
        self.queue().lost.get_or_insert(why);
        self.arrived.notify_one();
    }
}

#[async_trait]
impl Notifier for InProcess {
    async fn notify(&self, notifications: &[Notification]) -> Result<()> {
        if let Some(long) = notifications.iter().map(|n| n.payload.len()).find(|&len| len > Self::MAX_PAYLOAD_BYTES) {
            let message = format!("payload of {long} bytes, at most {} are allowed", Self::MAX_PAYLOAD_BYTES);
            return Err(Error::new(ErrorKind::TooLarge, "notify", message));
        }
        let bus = self.bus();
        for notification in notifications {
            for session in bus.listening.get(&notification.channel).into_iter().flatten() {
                if let Some(inbox) = bus.sessions.get(session) {
                    inbox.push(notification);
                }
            }
        }
        Ok(())
    }

    fn max_payload_bytes(&self) -> usize {
        Self::MAX_PAYLOAD_BYTES
    }
}

#[async_trait]
impl Listener for InProcess {
    async fn connect(&self) -> Result<Session> {
        let mut bus = self.bus();
        let number = bus.next;
        bus.next += 1;
        let inbox = Arc::<Inbox>::default();
        bus.sessions.insert(number, inbox.clone());
        let membership = Arc::new(Membership { transport: self.clone(), number, inbox });
        Ok(Session { control: Box::new(Control(membership.clone())), events: Box::new(Events(membership)) })
    }
}

/// A session's place on the bus; the first half that is dropped gives it up.
struct Membership {
    transport: InProcess,
    number: u64,
    inbox: Arc<Inbox>,
}

impl Membership {
    fn leave(&self, why: &'static str) {
        let mut bus = self.transport.bus();
        bus.sessions.remove(&self.number);
        bus.listening.retain(|_, sessions| {
            sessions.remove(&self.number);
            !sessions.is_empty()
        });
        drop(bus);
        self.inbox.lose(why);
    }

    fn check(&self, operation: &'static str) -> Result<()> {
        match self.inbox.queue().lost {
            None => Ok(()),
            Some(why) => Err(Error::new(ErrorKind::ConnectionLost, operation, why)),
        }
    }
}

struct Control(Arc<Membership>);

impl Drop for Control {
    fn drop(&mut self) {
        self.0.leave("the session was closed");
    }
}

#[async_trait]
impl ListenControl for Control {
    async fn listen(&self, channels: &[ChannelIdentifier]) -> Result<()> {
        self.0.check("listen")?;
        let mut bus = self.0.transport.bus();
        for channel in channels {
            bus.listening.entry(channel.clone()).or_default().insert(self.0.number);
        }
        Ok(())
    }

    async fn unlisten(&self, channels: &[ChannelIdentifier]) -> Result<()> {
        self.0.check("unlisten")?;
        let mut bus = self.0.transport.bus();
        for channel in channels {
            if let Some(sessions) = bus.listening.get_mut(channel) {
                sessions.remove(&self.0.number);
                if sessions.is_empty() {
                    bus.listening.remove(channel);
                }
            }
        }
        Ok(())
    }

    async fn registered(&self) -> Result<Option<Vec<ChannelIdentifier>>> {
        self.0.check("registered")?;
        let bus = self.0.transport.bus();
        let mine = bus.listening.iter().filter(|(_, sessions)| sessions.contains(&self.0.number));
        Ok(Some(mine.map(|(channel, _)| channel.clone()).collect()))
    }

    async fn ping(&self) -> Result<()> {
        self.0.check("ping")
    }

    async fn close(&self) {
        self.0.leave("the session was closed");
    }
}

struct Events(Arc<Membership>);

impl Drop for Events {
    fn drop(&mut self) {
        self.0.leave("the session was closed");
    }
}

#[async_trait]
impl ListenEvents for Events {
    async fn next(&mut self) -> ListenEvent {
        loop {
            {
                let mut queue = self.0.inbox.queue();
                if let Some(Notification { channel, payload }) = queue.waiting.pop_front() {
                    return ListenEvent::Notification { channel, payload };
                }
                if let Some(why) = queue.lost {
                    return ListenEvent::Lost(Error::new(ErrorKind::ConnectionLost, "listen", why));
                }
            }
            self.0.inbox.arrived.notified().await;
        }
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").field("sessions", &self.bus().sessions.len()).finish()
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Control({})", self.0.number)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Events({})", self.0.number)
    }
}
