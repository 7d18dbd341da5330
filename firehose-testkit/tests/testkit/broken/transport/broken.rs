//! A transport with a fault, over the wire in memory.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use firehose_core::{Error, ErrorKind, Listener, Notification, Notifier, Result, Session};
use firehose_testkit::conformance::{PendingNotification, TransportFixture};
use firehose_testkit::{Process, Testkit};
use tokio::task::yield_now;

use super::halves::{BrokenControl, BrokenEvents, Shared};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    OneChannelACall,
    MergedInACall,
    Sorted,
    CheckedOneByOne,
    MergedAcrossCalls,
    WantsAListener,
    BrokenByDrop,
    CloseEndsAll,
    Inherits,
    EventsStay,
    ConnectLeaks,
    AsOfItsBegin,
    AfterTheWait,
    UnlistenFails,
    DeafUnlisten,
    LostByAnError,
    FalsePing,
    AnybodysChannels,
    HearsOn,
    BrokenByCommand,
    QueueAChannel,
    NotWoken,
    LostOnce,
    TakesItAlong,
    ForgetsTheOldest,
}

/// How many notifications a session may leave unread.
pub(super) const UNREAD: usize = 1_000;

/// The fixture, and both ends of the transport.
#[derive(Debug, Clone)]
pub(super) struct Broken {
    pub(super) testkit: Testkit,
    process: Process,
    pub(super) fault: Fault,
    /// What the last call sent.
    sent: Arc<Mutex<Vec<Notification>>>,
    /// A call of the notifier was dropped.
    dropped: Arc<Mutex<bool>>,
    /// Sessions that nobody has any more.
    leaked: Arc<Mutex<Vec<Session>>>,
}

impl Broken {
    pub(super) fn boxed(fault: Fault) -> Box<dyn TransportFixture> {
        let testkit = Testkit::new(7);
        testkit.wire().set_bound(if fault == Fault::ForgetsTheOldest { usize::MAX } else { UNREAD });
        let process = testkit.process();
        let (sent, dropped, leaked) = (Arc::default(), Arc::default(), Arc::default());
        Box::new(Self { testkit, process, fault, sent, dropped, leaked })
    }

    async fn pass_on(&self, notifications: &[Notification]) -> Result<()> {
        self.process.notifier().notify(notifications).await
    }
}

fn refused(operation: &'static str, why: &'static str) -> Error {
    Error::new(ErrorKind::Backend, operation, why)
}

#[async_trait]
impl TransportFixture for Broken {
    fn notifier(&self) -> Arc<dyn Notifier> {
        Arc::new(self.clone())
    }

    fn listener(&self) -> Arc<dyn Listener> {
        Arc::new(self.clone())
    }

    async fn cut(&self) -> bool {
        self.testkit.cut().await
    }

    async fn refuse_next_command(&self) -> bool {
        self.testkit.refuse_next_command().await
    }

    async fn begin(&self, notification: Notification) -> Option<Box<dyn PendingNotification>> {
        let heard = self.testkit.wire().channels().contains(&notification.channel);
        if self.fault == Fault::AsOfItsBegin && !heard {
            return Some(Box::new(Unheard));
        }
        TransportFixture::begin(&self.testkit, notification).await
    }

    fn too_many_unread(&self) -> usize {
        UNREAD + 500
    }

    async fn open_sessions(&self) -> Option<usize> {
        self.testkit.open_sessions().await
    }
}

/// A notification of which it is settled already that nobody hears it.
struct Unheard;

#[async_trait]
impl PendingNotification for Unheard {
    async fn commit(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl Notifier for Broken {
    async fn notify(&self, notifications: &[Notification]) -> Result<()> {
        let mut all = notifications.to_vec();
        match self.fault {
            Fault::OneChannelACall => {
                let first = all.first().map(|first| first.channel.clone());
                all.iter_mut().zip(first.into_iter().cycle()).for_each(|(next, first)| next.channel = first);
            }
            Fault::MergedInACall => {
                let mut seen = BTreeSet::new();
                all.retain(|next| seen.insert((next.channel.clone(), next.payload.clone())));
            }
            Fault::Sorted => all.sort_by(|one, other| one.payload.cmp(&other.payload)),
            Fault::CheckedOneByOne => {
                for next in notifications {
                    self.pass_on(std::slice::from_ref(next)).await?;
                }
                return Ok(());
            }
            Fault::MergedAcrossCalls => {
                let before = std::mem::replace(&mut *self.sent.lock().unwrap(), all.clone());
                all.retain(|next| !before.contains(next));
                if all.is_empty() {
                    *self.sent.lock().unwrap() = before;
                }
            }
            Fault::WantsAListener if self.testkit.wire().session_count() == 0 => {
                return Err(refused("notify", "nobody listens"));
            }
            Fault::BrokenByDrop => {
                if std::mem::replace(&mut *self.dropped.lock().unwrap(), true) {
                    return Err(refused("notify", "a call was dropped"));
                }
                yield_now().await;
                *self.dropped.lock().unwrap() = false;
            }
            _ => {}
        }
        self.pass_on(&all).await
    }

    fn max_payload_bytes(&self) -> usize {
        self.process.notifier().max_payload_bytes()
    }
}

#[async_trait]
impl Listener for Broken {
    async fn connect(&self) -> Result<Session> {
        let channels = self.testkit.wire().channels();
        let mut session = self.process.listener().connect().await?;
        match self.fault {
            Fault::Inherits => session.control.listen(&channels).await?,
            Fault::ConnectLeaks => {
                self.leaked.lock().unwrap().push(session);
                yield_now().await;
                session = self.leaked.lock().unwrap().pop().unwrap();
            }
            _ => {}
        }
        let shared = Arc::new(Shared::new(self.clone()));
        let control = BrokenControl { inner: session.control, shared: shared.clone() };
        let events = BrokenEvents::new(session.events, shared);
        Ok(Session { control: Box::new(control), events: Box::new(events) })
    }
}
