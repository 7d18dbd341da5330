//! What an engine tells while it runs: failures by their stage, and events.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::metrics::{Counters, MetricsSnapshot};
use crate::backend::{Clock, MonoTime};
use crate::deliver::{Gap, Lag, Reset};
use crate::error::Error;
use crate::message::Sequence;
use crate::stream::StreamName;

/// Where in the engine something failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// The listening session was lost, or an attempt to get a new one failed.
    ConnectionLost,
    /// LISTEN or UNLISTEN was refused.
    Listen,
    /// Announcing stored messages failed; they are announced again, and the sweep finds them anyway.
    Announce,
    /// Reading the heads of the subscribed streams failed; the next sweep tries again.
    Sweep,
    /// Reading missed messages failed; it is tried again.
    Replay,
    /// Removing old messages failed; the next turn tries again.
    Retention,
    /// A handler of [`on`](crate::Firehose::on) panicked.
    Handler,
    /// As many attempts failed as `reconnect_attempts` allows; the engine is over.
    ReconnectGaveUp,
    /// A notification that was sent to try the way was not heard.
    Probe,
    /// A task of the engine panicked, and was started again.
    Supervisor,
}

impl Stage {
    /// Its name in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConnectionLost => "connection_lost",
            Self::Listen => "listen",
            Self::Announce => "announce",
            Self::Sweep => "sweep",
            Self::Replay => "replay",
            Self::Retention => "retention",
            Self::Handler => "handler",
            Self::ReconnectGaveUp => "reconnect_gave_up",
            Self::Probe => "probe",
            Self::Supervisor => "supervisor",
        }
    }
}

/// A failure that no caller sees, with its stage.
#[derive(Debug)]
#[non_exhaustive]
pub struct ErrorReport<'a> {
    /// Where it happened.
    pub stage: Stage,
    /// What happened.
    pub error: &'a Error,
}

/// Something that happened, to subscriptions or to what is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A new session follows a lost one.
    Reconnected {
        /// How many attempts it took.
        attempts: u32,
        /// How long there was no session.
        outage: Duration,
    },
    /// What a stream missed while there was no session was read from the store.
    Replayed {
        /// The stream.
        stream: StreamName,
        /// How many messages.
        messages: u64,
    },
    /// A subscription fell behind what is kept in memory.
    Lagged {
        /// The stream.
        stream: StreamName,
        /// The first message that it has yet to see.
        from: Sequence,
        /// The last one that was handed out to others.
        to: Sequence,
        /// What becomes of it.
        lag: Lag,
    },
    /// Old messages were removed: one turn of this engine's retention.
    Trimmed {
        /// How many messages, over all streams.
        messages: u64,
        /// In how many calls of the store.
        steps: u64,
        /// From the first call to the end of the last.
        took: Duration,
    },
    /// So many announcements of stored messages wait that something is wrong: the database is slow, or notifications do not
    /// get through. Nothing is lost; who listens hears later.
    Backlog {
        /// How many wait.
        waiting: usize,
    },
    /// A subscription was told of a gap.
    Gap(Gap),
    /// A subscription was told of a reset.
    Reset(Reset),
}

type OnError = Arc<dyn Fn(&ErrorReport<'_>) + Send + Sync>;
type OnEvent = Arc<dyn Fn(&Event) + Send + Sync>;
type OnMetrics = Arc<dyn Fn(&MetricsSnapshot) + Send + Sync>;

/// The counters, the callbacks, and the last failure.
pub(crate) struct Observer {
    pub(crate) counters: Counters,
    pub(crate) on_error: Option<OnError>,
    pub(crate) on_event: Option<OnEvent>,
    pub(crate) on_metrics: Option<OnMetrics>,
    clock: Arc<dyn Clock>,
    logged: Mutex<Vec<Logged>>,
}

/// How a stage's failures were logged lately.
struct Logged {
    stage: Stage,
    at: MonoTime,
    suppressed: u64,
    last: Option<String>,
}

/// A failure loop logs once in this time a stage.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

impl Observer {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            counters: Counters::new(),
            on_error: None,
            on_event: None,
            on_metrics: None,
            clock,
            logged: Mutex::default(),
        }
    }

    /// Tells a failure: to the callback always, to the log at a bounded rate.
    pub(crate) fn error(&self, stage: Stage, error: &Error) {
        if let Some(suppressed) = self.note(stage, error) {
            tracing::warn!(stage = stage.as_str(), suppressed, error = %error.replicate(), "failed");
        }
        if let Some(callback) = &self.on_error {
            guarded("on_error", || callback(&ErrorReport { stage, error }));
        }
    }

    /// Whether to log this failure now, and how many were not logged before it.
    fn note(&self, stage: Stage, error: &Error) -> Option<u64> {
        let now = self.clock.now();
        let text = error.replicate().to_string();
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = logged.iter_mut().find(|l| l.stage == stage) else {
            logged.push(Logged { stage, at: now, suppressed: 0, last: Some(text) });
            return Some(0);
        };
        entry.last = Some(text);
        if now.since(entry.at) < LOG_INTERVAL {
            entry.suppressed += 1;
            return None;
        }
        entry.at = now;
        Some(std::mem::take(&mut entry.suppressed))
    }

    /// The stage works again.
    pub(crate) fn healed(&self, stage: Stage) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = logged.iter_mut().find(|l| l.stage == stage) {
            entry.last = None;
        }
    }

    /// The last failure that has not healed.
    pub(crate) fn reason(&self) -> Option<String> {
        let logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let lasting = logged
            .iter()
            .filter(|l| matches!(l.stage, Stage::ConnectionLost | Stage::Probe | Stage::Announce | Stage::Sweep));
        lasting.filter_map(|l| Some((l.at, l.last.clone()?))).max_by_key(|(at, _)| *at).map(|(_, text)| text)
    }

    pub(crate) fn event(&self, event: &Event) {
        match event {
            Event::Reconnected { attempts, outage } => {
                tracing::info!(attempts, outage_ms = outage.as_millis() as u64, "reconnected");
            }
            Event::Replayed { stream, messages } => tracing::info!(%stream, messages, "replayed"),
            Event::Lagged { stream, from, to, lag } => {
                tracing::debug!(%stream, %from, %to, ?lag, "a subscription fell behind");
            }
            Event::Backlog { waiting } => tracing::warn!(waiting, "many announcements wait"),
            Event::Trimmed { messages, steps, took } => {
                tracing::debug!(messages, steps, took_ms = took.as_millis() as u64, "trimmed");
            }
            Event::Gap(gap) => {
                tracing::info!(stream = %gap.stream, from = %gap.from, to = %gap.to, reason = ?gap.reason, "gap")
            }
            Event::Reset(reset) => {
                tracing::info!(stream = %reset.stream, epoch = %reset.epoch, reason = ?reset.reason, "reset")
            }
        }
        if let Some(callback) = &self.on_event {
            guarded("on_event", || callback(event));
        }
    }

    pub(crate) fn metrics(&self, snapshot: &MetricsSnapshot) {
        if let Some(callback) = &self.on_metrics {
            guarded("on_metrics", || callback(snapshot));
        }
    }
}

/// A callback that panics is the user's fault and nobody else's trouble.
fn guarded(name: &'static str, callback: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(callback)).is_err() {
        tracing::error!(callback = name, "a callback panicked");
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("reason", &self.reason()).finish_non_exhaustive()
    }
}
