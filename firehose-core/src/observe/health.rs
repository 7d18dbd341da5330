//! How an engine is.

use std::fmt;

use serde::Serialize;

/// What an engine is doing. In a watch channel, so that it can be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum State {
    /// It was started, and has not listened yet.
    Starting,
    /// It has a session, and everything that should be listened to is. An engine that only publishes is live at once.
    Live,
    /// It has a session, and messages do not arrive as they should. The sweep delivers meanwhile, and runs more often.
    Degraded(Degradation),
    /// It has no session; this attempt to get one is next, or under way. The sweep goes on meanwhile.
    Reconnecting {
        /// 1 for the first attempt after the loss.
        attempt: u32,
    },
    /// It is over.
    Stopped(StopReason),
}

/// Why messages do not arrive as they should, most likely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Degradation {
    /// The other end does not answer. After `watchdog_deadline` there is a new session.
    Silent,
    /// LISTEN is acknowledged and nothing was ever heard: a pooler stands in between that gives each transaction another
    /// server connection. Nothing is listened to; set `listen_url` to a direct address.
    TransactionPooler,
    /// The server does not know any more that this session listens: someone ran `UNLISTEN *` on it. A new session
    /// follows at once.
    RegistrationLost,
    /// Notifications cannot be sent: the server refuses them, or does not answer. What is broadcast is stored.
    NotifyFailed,
    /// Notifications are sent, and not heard, although the session answers.
    Unheard,
}

impl Degradation {
    /// Its name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::TransactionPooler => "transaction_pooler",
            Self::RegistrationLost => "registration_lost",
            Self::NotifyFailed => "notify_failed",
            Self::Unheard => "unheard",
        }
    }
}

/// Why an engine is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// [`shutdown`](crate::Firehose::shutdown) was called.
    Shutdown,
    /// The last handle, or the runtime, was dropped.
    Dropped,
    /// As many attempts to get a session failed as `reconnect_attempts` allows.
    GaveUp,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("starting"),
            Self::Live => f.write_str("live"),
            Self::Degraded(why) => write!(f, "degraded ({})", why.as_str()),
            Self::Reconnecting { attempt } => write!(f, "reconnecting (attempt {attempt})"),
            Self::Stopped(StopReason::Shutdown) => f.write_str("stopped (shut down)"),
            Self::Stopped(StopReason::Dropped) => f.write_str("stopped (dropped)"),
            Self::Stopped(StopReason::GaveUp) => f.write_str("stopped (gave up)"),
        }
    }
}

/// One look at an engine's health.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Health {
    /// What it is doing.
    pub state: State,
    /// The last failure of the session, the sweep or the announcer, as text, while it lasts.
    pub reason: Option<String>,
    /// Seconds since the listening session last showed life.
    pub seconds_since_heartbeat: f64,
}

impl Health {
    /// Whether messages are announced and heard as they should be.
    pub fn is_live(&self) -> bool {
        self.state == State::Live
    }
}
