//! What Firehose asks of the outside: a store, a transport in two halves, and a clock.

mod changes;
mod clock;
mod in_process;
mod listener;
mod notifier;
mod store;

use std::sync::Arc;

pub use changes::{Changed, Look, SafeId, SweepMark};
pub use clock::{Clock, MonoTime, SystemClock};
pub use in_process::InProcess;
pub use listener::{ListenControl, ListenEvent, ListenEvents, Listener, Session};
pub use notifier::{Notification, Notifier};
pub use store::{
    Anchor, Blocked, Capabilities, Head, HeadDetail, MessageStore, Page, PageLimit, Position, Retain, Scope, Settings,
    Trimmed,
};

/// A store and a transport that belong together: what an engine is built on.
///
/// The parts may come from different places: a store of your own with the transport of PostgreSQL, say.
#[derive(Debug, Clone)]
pub struct Backend {
    /// The source of truth.
    pub store: Arc<dyn MessageStore>,
    /// Sends hints.
    pub notifier: Arc<dyn Notifier>,
    /// Hears hints; `None` for an engine that only publishes.
    pub listener: Option<Arc<dyn Listener>>,
}

impl Backend {
    /// A backend that publishes and subscribes.
    pub fn new(store: impl MessageStore, notifier: impl Notifier, listener: impl Listener) -> Self {
        Self { store: Arc::new(store), notifier: Arc::new(notifier), listener: Some(Arc::new(listener)) }
    }

    /// A backend that only publishes: subscribing is an error, and no session is opened for it.
    pub fn publishing(store: impl MessageStore, notifier: impl Notifier) -> Self {
        Self { store: Arc::new(store), notifier: Arc::new(notifier), listener: None }
    }
}
