//! What a router may be told.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use firehose_core::{Clock, SystemClock};
use tokio_util::sync::CancellationToken;

/// How the routes behave. Every option has a default.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The longest body of a publish, in bytes; a longer one is refused with 413 and never held whole. Set it to the
    /// engine's own limit. Default 1 MiB.
    pub max_message_bytes: usize,

    /// How long a stream of events may be silent before a comment goes out, so that proxies keep the connection and a
    /// client that is gone is noticed. Default 30 s.
    pub keep_alive: Duration,

    /// How often the resume token is sent by itself where it does not come with each event. Default 1 s.
    pub token_interval: Duration,

    /// Ends every stream of events when it is cancelled: with the resume token last, so that clients come back and miss
    /// nothing. Cancel it together with the server's graceful shutdown, which does not finish while a stream is open.
    pub drain: CancellationToken,

    /// Where time comes from. Default: the system's clock.
    pub clock: Arc<dyn Clock>,

    /// Seeds the jitter of `retry:` lines. Default: drawn at random.
    pub seed: u64,

    /// Where messages are kept, for people: the page says it at its foot. Default: nothing is said.
    pub kept_in: Option<String>,
}

impl Options {
    /// The same options with the longest body of a publish, in bytes.
    #[must_use]
    pub fn with_max_message_bytes(mut self, bytes: usize) -> Self {
        self.max_message_bytes = bytes;
        self
    }

    /// The same options with the longest silence of a stream of events.
    #[must_use]
    pub fn with_keep_alive(mut self, keep_alive: Duration) -> Self {
        self.keep_alive = keep_alive;
        self
    }

    /// The same options with the pace at which tokens are sent by themselves.
    #[must_use]
    pub fn with_token_interval(mut self, interval: Duration) -> Self {
        self.token_interval = interval;
        self
    }

    /// The same options with the token that ends every stream of events.
    #[must_use]
    pub fn with_drain(mut self, drain: CancellationToken) -> Self {
        self.drain = drain;
        self
    }

    /// The same options with another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The same options with a word on where messages are kept.
    #[must_use]
    pub fn with_kept_in(mut self, kept_in: impl Into<String>) -> Self {
        self.kept_in = Some(kept_in.into());
        self
    }

    /// The same options with the seed of the jitter.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_message_bytes: 1 << 20,
            keep_alive: Duration::from_secs(30),
            token_interval: Duration::from_secs(1),
            drain: CancellationToken::new(),
            clock: Arc::new(SystemClock::new()),
            // Not a secret, only different from one process to the next: the hasher's keys are.
            seed: RandomState::new().hash_one("firehose-http"),
            kept_in: None,
        }
    }
}
