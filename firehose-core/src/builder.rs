//! From a backend and a configuration to a running engine.

use std::fmt;
use std::sync::Arc;

use rand::RngExt;

use crate::backend::{Backend, Clock, SystemClock};
use crate::config::Config;
use crate::engine::{self, Engine, Parts};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::firehose::Firehose;
use crate::naming::Naming;
use crate::observe::{ErrorReport, Event, MetricsSnapshot, Observer};

type OnError = Arc<dyn Fn(&ErrorReport<'_>) + Send + Sync>;
type OnEvent = Arc<dyn Fn(&Event) + Send + Sync>;
type OnMetrics = Arc<dyn Fn(&MetricsSnapshot) + Send + Sync>;

/// Puts an engine together. From [`Firehose::builder`](crate::Firehose::builder).
#[must_use = "an engine begins with `start`"]
pub struct Builder {
    backend: Backend,
    config: Config,
    clock: Arc<dyn Clock>,
    seed: Option<u64>,
    retention: bool,
    on_error: Option<OnError>,
    on_event: Option<OnEvent>,
    on_metrics: Option<OnMetrics>,
}

impl Builder {
    pub(crate) fn new(backend: Backend) -> Self {
        let clock = Arc::new(SystemClock::new());
        Self {
            backend,
            config: Config::default(),
            clock,
            seed: None,
            retention: true,
            on_error: None,
            on_event: None,
            on_metrics: None,
        }
    }

    /// How it behaves. Default: [`Config::default`].
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Where it takes its time from. Default: [`SystemClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// What its randomness (jitter) begins with. Default: drawn at random.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// An engine that does not trim by itself: for programs that come and go, and leave retention to services that stay.
    /// [`Firehose::trim`] works all the same.
    pub fn without_retention(mut self) -> Self {
        self.retention = false;
        self
    }

    /// Called with each failure that no caller sees. It runs on the engine's tasks: it must return soon. A panic in it
    /// is logged and costs nothing else.
    pub fn on_error(mut self, callback: impl Fn(&ErrorReport<'_>) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Arc::new(callback));
        self
    }

    /// Called with each [`Event`]. As [`Self::on_error`].
    pub fn on_event(mut self, callback: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.on_event = Some(Arc::new(callback));
        self
    }

    /// Called with a snapshot each `metrics_interval`. As [`Self::on_error`].
    pub fn on_metrics(mut self, callback: impl Fn(&MetricsSnapshot) + Send + Sync + 'static) -> Self {
        self.on_metrics = Some(Arc::new(callback));
        self
    }

    /// Starts the engine on the current tokio runtime: checks the configuration, reads the store's settings, and opens
    /// the listening session. Each is tried once, under `statement_timeout`.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config), [`SettingsMismatch`](ErrorKind::SettingsMismatch) where the configuration names a
    /// setting that the database has otherwise, and what the backend says of the first connection.
    ///
    /// # Cancel safety
    /// Dropped half way, nothing runs.
    ///
    /// # Panics
    /// Outside a tokio runtime, as `tokio::spawn` does.
    pub async fn start(self) -> Result<Firehose> {
        self.config.validate()?;
        let mut observer = Observer::new(self.clock.clone());
        (observer.on_error, observer.on_event, observer.on_metrics) = (self.on_error, self.on_event, self.on_metrics);
        let seed = self.seed.unwrap_or_else(ambient_seed);
        let (config, backend, clock, retention) = (self.config, self.backend, self.clock, self.retention);
        let limit = config.statement_timeout;

        let deadline = clock.now() + limit;
        let settings = tokio::select! {
            biased;
            settings = backend.store.settings() => settings?,
            () = clock.sleep_until(deadline) => return Err(Error::timeout("start", Step::Settings, limit)),
        };
        mismatch("layout", config.layout.as_ref(), &settings.layout)?;
        mismatch("buckets", config.buckets.as_ref(), &settings.buckets)?;
        mismatch("prefix", config.prefix.as_ref(), &settings.prefix)?;
        mismatch("gem", config.gem.as_ref(), &settings.gem)?;
        mismatch("cleanup_threshold", config.cleanup_threshold.as_ref(), &settings.cleanup_threshold)?;
        let naming = Naming::new(settings.prefix, settings.layout, settings.buckets);

        let session = match &backend.listener {
            None => None,
            Some(listener) => {
                let deadline = clock.now() + limit;
                Some(tokio::select! {
                    biased;
                    session = listener.connect() => session?,
                    () = clock.sleep_until(deadline) => return Err(Error::timeout("start", Step::Connect, limit)),
                })
            }
        };
        let (engine, spawned) = Engine::new(Parts { config, backend, clock, naming, observer, seed, retention });
        tokio::spawn(engine::root(engine.clone(), session, spawned));
        Ok(Firehose::new(engine))
    }
}

fn mismatch<T: PartialEq + fmt::Debug>(key: &str, configured: Option<&T>, stored: &T) -> Result<()> {
    match configured {
        Some(value) if value != stored => {
            let message = format!("{key} is {value:?} in the configuration and {stored:?} in the database");
            let error = Error::new(ErrorKind::SettingsMismatch, "start", message);
            Err(error.with_hint("leave the key out of the configuration, or change the database's setting"))
        }
        _ => Ok(()),
    }
}

#[allow(clippy::disallowed_methods, reason = "this is where ambient randomness enters, unless a seed was given")]
fn ambient_seed() -> u64 {
    rand::rng().random()
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("backend", &self.backend).field("config", &self.config).finish_non_exhaustive()
    }
}
