//! The two halves of a session with a fault.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use firehose_core::{ChannelIdentifier, Error, ErrorKind, ListenControl, ListenEvent, ListenEvents, Result};
use tokio::task::yield_now;

use super::broken::{Broken, Fault, UNREAD};

/// What the halves share.
pub(super) struct Shared {
    broken: Broken,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Somebody waits for events.
    waiting: bool,
    /// What is to be listened to when nobody waits any more.
    later: Vec<ChannelIdentifier>,
    listening: BTreeSet<ChannelIdentifier>,
    /// What UNLISTEN was asked for.
    unlistened: BTreeSet<ChannelIdentifier>,
    closed: bool,
    dropped: bool,
    /// Events that nobody has any more.
    kept: Vec<Box<dyn ListenEvents>>,
}

impl Shared {
    pub(super) fn new(broken: Broken) -> Self {
        Self { broken, state: Mutex::default() }
    }

    fn is(&self, fault: Fault) -> bool {
        self.broken.fault == fault
    }

    fn check(&self, operation: &'static str) -> Result<()> {
        let state = self.state.lock().unwrap();
        let why = match self.broken.fault {
            Fault::HearsOn if state.closed => "the session was closed",
            Fault::BrokenByCommand if state.dropped => "a command was dropped",
            _ => return Ok(()),
        };
        Err(Error::new(ErrorKind::ConnectionLost, operation, why))
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.broken.fault.fmt(f)
    }
}

#[derive(Debug)]
pub(super) struct BrokenControl {
    pub(super) inner: Box<dyn ListenControl>,
    pub(super) shared: Arc<Shared>,
}

#[async_trait]
impl ListenControl for BrokenControl {
    async fn listen(&self, channels: &[ChannelIdentifier]) -> Result<()> {
        self.shared.check("listen")?;
        {
            let mut state = self.shared.state.lock().unwrap();
            state.listening.extend(channels.iter().cloned());
            state.unlistened.retain(|channel| !channels.contains(channel));
            if self.shared.is(Fault::AfterTheWait) && state.waiting {
                state.later.extend(channels.iter().cloned());
                return Ok(());
            }
        }
        let listened = self.inner.listen(channels).await;
        let refused = listened.as_ref().is_err_and(|error| error.kind() == ErrorKind::Backend);
        if self.shared.is(Fault::LostByAnError) && refused {
            self.shared.broken.testkit.wire().cut();
        }
        listened
    }

    async fn unlisten(&self, channels: &[ChannelIdentifier]) -> Result<()> {
        self.shared.check("unlisten")?;
        {
            let mut state = self.shared.state.lock().unwrap();
            for channel in channels {
                let known = state.listening.remove(channel);
                if self.shared.is(Fault::UnlistenFails) && !known {
                    let message = format!("{channel} is not listened to");
                    return Err(Error::new(ErrorKind::Backend, "unlisten", message));
                }
            }
            state.unlistened.extend(channels.iter().cloned());
        }
        if self.shared.is(Fault::DeafUnlisten) { Ok(()) } else { self.inner.unlisten(channels).await }
    }

    async fn registered(&self) -> Result<Option<Vec<ChannelIdentifier>>> {
        if self.shared.is(Fault::AnybodysChannels) {
            return Ok(Some(self.shared.broken.testkit.wire().channels()));
        }
        let mut channels = self.inner.registered().await?;
        let state = self.shared.state.lock().unwrap();
        channels.iter_mut().for_each(|channels| channels.retain(|channel| !state.unlistened.contains(channel)));
        Ok(channels)
    }

    async fn ping(&self) -> Result<()> {
        self.shared.check("ping")?;
        if self.shared.is(Fault::BrokenByCommand) {
            self.shared.state.lock().unwrap().dropped = true;
            yield_now().await;
            self.shared.state.lock().unwrap().dropped = false;
        }
        if self.shared.is(Fault::FalsePing) { Ok(()) } else { self.inner.ping().await }
    }

    async fn close(&self) {
        match self.shared.broken.fault {
            Fault::HearsOn => self.shared.state.lock().unwrap().closed = true,
            Fault::CloseEndsAll => self.shared.broken.testkit.wire().cut(),
            _ => self.inner.close().await,
        }
    }
}

pub(super) struct BrokenEvents {
    inner: Option<Box<dyn ListenEvents>>,
    shared: Arc<Shared>,
    taken: VecDeque<ListenEvent>,
    lost: bool,
    drained: bool,
}

impl BrokenEvents {
    pub(super) fn new(inner: Box<dyn ListenEvents>, shared: Arc<Shared>) -> Self {
        Self { inner: Some(inner), shared, taken: VecDeque::new(), lost: false, drained: false }
    }

    fn inner(&mut self) -> &mut dyn ListenEvents {
        &mut **self.inner.as_mut().unwrap()
    }

    /// Takes all that is there.
    async fn drain(&mut self) {
        loop {
            let polled = {
                let mut next = pin!(self.inner().next());
                poll_fn(|context| Poll::Ready(next.as_mut().poll(context))).await
            };
            match polled {
                Poll::Ready(event @ ListenEvent::Notification { .. }) => self.taken.push_back(event),
                Poll::Ready(ListenEvent::Lost(_)) | Poll::Pending => return,
            }
        }
    }
}

fn channel_of(event: &ListenEvent) -> Option<ChannelIdentifier> {
    match event {
        ListenEvent::Notification { channel, .. } => Some(channel.clone()),
        ListenEvent::Lost(_) => None,
    }
}

#[async_trait]
impl ListenEvents for BrokenEvents {
    async fn next(&mut self) -> ListenEvent {
        match self.shared.broken.fault {
            Fault::QueueAChannel => {
                self.drain().await;
                self.taken.make_contiguous().sort_by_key(channel_of);
            }
            Fault::ForgetsTheOldest if !self.drained => {
                self.drained = true;
                self.drain().await;
                let surplus = self.taken.len().saturating_sub(UNREAD);
                self.taken.drain(..surplus);
            }
            Fault::LostOnce if self.lost => std::future::pending().await,
            _ => {}
        }
        if let Some(event) = self.taken.pop_front() {
            return event;
        }
        let fault = self.shared.broken.fault;
        let shared = self.shared.clone();
        let mut next = self.inner().next();
        let event = match fault {
            Fault::NotWoken => poll_fn(|_| next.as_mut().poll(&mut Context::from_waker(Waker::noop()))).await,
            Fault::AfterTheWait => {
                shared.state.lock().unwrap().waiting = true;
                let event = (&mut next).await;
                shared.state.lock().unwrap().waiting = false;
                event
            }
            _ => (&mut next).await,
        };
        drop(next);
        if fault == Fault::TakesItAlong {
            yield_now().await;
        }
        self.lost |= matches!(event, ListenEvent::Lost(_));
        event
    }
}

impl Drop for BrokenEvents {
    fn drop(&mut self) {
        if self.shared.is(Fault::EventsStay) {
            self.shared.state.lock().unwrap().kept.extend(self.inner.take());
        }
    }
}

impl fmt::Debug for BrokenEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokenEvents").field("shared", &self.shared).finish_non_exhaustive()
    }
}
