//! The hearing half.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use firehose_core::{
    ChannelIdentifier, ListenControl, ListenEvent, ListenEvents, Listener, Notification, Result, Session,
};

use crate::faults::{Faults, Operation};
use crate::inbox::{Inbox, Read};
use crate::wire::Wire;

/// Opens sessions on a [`Wire`].
#[derive(Debug, Clone)]
pub struct WireListener {
    wire: Wire,
    faults: Faults,
}

impl WireListener {
    /// A listener on `wire`, without faults.
    pub fn new(wire: &Wire) -> Self {
        Self { wire: wire.clone(), faults: Faults::new(wire.clock().clone()) }
    }

    /// The same listener, failing as `faults` says.
    #[must_use]
    pub fn with_faults(mut self, faults: &Faults) -> Self {
        self.faults = faults.clone();
        self
    }
}

#[async_trait]
impl Listener for WireListener {
    async fn connect(&self) -> Result<Session> {
        let call = self.faults.begin(Operation::Connect, []).await?;
        let (number, inbox) = self.wire.open(self.faults.process());
        let place = Arc::new(Place { wire: self.wire.clone(), faults: self.faults.clone(), number, inbox });
        let session = Session { control: Box::new(Control(place.clone())), events: Box::new(Events(place)) };
        call.end(Ok(session)).await
    }
}

/// A session's place on the wire; the first half that is dropped gives it up.
struct Place {
    wire: Wire,
    faults: Faults,
    number: u64,
    inbox: Arc<Inbox>,
}

impl Place {
    async fn command<T>(
        &self,
        operation: Operation,
        channels: &[ChannelIdentifier],
        work: impl FnOnce(&Wire) -> T + Send,
    ) -> Result<T> {
        let call = self.faults.begin(operation, channels.iter().map(ToString::to_string)).await?;
        let result = self.inbox.answer().await.map(|()| work(&self.wire));
        call.end(result).await
    }
}

struct Control(Arc<Place>);

#[async_trait]
impl ListenControl for Control {
    async fn listen(&self, channels: &[ChannelIdentifier]) -> Result<()> {
        self.0.command(Operation::Listen, channels, |wire| wire.listen(self.0.number, channels)).await
    }

    async fn unlisten(&self, channels: &[ChannelIdentifier]) -> Result<()> {
        self.0.command(Operation::Unlisten, channels, |wire| wire.unlisten(self.0.number, channels)).await
    }

    async fn registered(&self) -> Result<Option<Vec<ChannelIdentifier>>> {
        self.0.command(Operation::Registered, &[], |wire| Some(wire.registered(self.0.number))).await
    }

    async fn ping(&self) -> Result<()> {
        self.0.command(Operation::Ping, &[], |_| ()).await
    }

    async fn close(&self) {
        // Nobody is told of what goes wrong: the session ends either way.
        if let Ok(call) = self.0.faults.begin(Operation::Close, []).await {
            self.0.wire.close(self.0.number);
            let _ = call.end(Ok(())).await;
        } else {
            self.0.wire.cut_one(self.0.number);
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.0.wire.close(self.0.number);
    }
}

struct Events(Arc<Place>);

#[async_trait]
impl ListenEvents for Events {
    async fn next(&mut self) -> ListenEvent {
        let Place { wire, inbox, number, .. } = &*self.0;
        loop {
            match wire.read(inbox) {
                Read::Notification(Notification { channel, payload }) => {
                    return ListenEvent::Notification { channel, payload };
                }
                Read::Lost(error) => return ListenEvent::Lost(error),
                Read::Cut => wire.cut_one(*number),
                Read::Wait(None) => inbox.arrival().await,
                Read::Wait(Some(at)) => tokio::select! {
                    biased;
                    () = inbox.arrival() => {}
                    () = wire.clock().sleep_until(at) => {}
                },
            }
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.0.wire.close(self.0.number);
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
