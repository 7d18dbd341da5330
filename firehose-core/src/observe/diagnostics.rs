//! Everything that a person on call wants to see of one engine.

use serde::Serialize;

use super::health::State;
use super::metrics::MetricsSnapshot;
use crate::message::Sequence;
use crate::stream::StreamName;

/// What an engine knows of itself.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Diagnostics {
    /// The process.
    pub pid: u32,
    /// Whether it was started and not shut down.
    pub running: bool,
    /// What it is doing.
    pub state: State,
    /// The last failure, while it lasts.
    pub reason: Option<String>,
    /// The prefix of its channel names.
    pub prefix: String,
    /// The streams with the longest distance between what is known to exist and what was handed out; at most 20.
    pub streams: Vec<StreamDiagnosis>,
    /// Every counter and gauge.
    pub metrics: MetricsSnapshot,
}

/// One subscribed stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StreamDiagnosis {
    /// Its name.
    pub stream: StreamName,
    /// How many subscriptions it has.
    pub subscribers: usize,
    /// How many of them are behind what is kept in memory, and read from the store.
    pub behind: usize,
    /// The last sequence handed to them; `None` until the start is fixed.
    pub tail: Option<Sequence>,
    /// The highest sequence that was announced, or read as the head.
    pub known: Sequence,
    /// How many messages came early and are held.
    pub held: usize,
    /// How many messages are kept in memory for who has not read them yet.
    pub kept: usize,
    /// What those take, in bytes of data.
    pub kept_bytes: usize,
}
