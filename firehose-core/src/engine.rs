//! What all of an engine's tasks share, and the task that owns the others.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::backend::{Backend, Clock, MonoTime, Session};
use crate::config::Config;
use crate::deliver::{CatchUp, HeadReads, Hub, Sweep};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::listen::supervise;
use crate::naming::Naming;
use crate::observe::{Gauges, MetricsSnapshot, Observer, Stage, State};
use crate::publish::{Announcer, Publisher};
use crate::shutdown::Shutdown;

/// How often the sweep runs at least while only it delivers.
const DEGRADED_SWEEP: Duration = Duration::from_millis(250);

/// One engine. Tasks and subscriptions share it; the handles' drop ends it.
pub(crate) struct Engine {
    pub(crate) config: Config,
    pub(crate) backend: Backend,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) naming: Naming,
    pub(crate) observer: Observer,
    pub(crate) publisher: Publisher,
    pub(crate) announcer: Announcer,
    pub(crate) hub: Hub,
    pub(crate) catch_up: CatchUp,
    pub(crate) heads: HeadReads,
    pub(crate) sweep: Sweep,
    pub(crate) state: watch::Sender<State>,
    pub(crate) shutdown: Shutdown,
    /// Whether it trims in the background.
    pub(crate) retention: bool,
    /// Asks the supervisor for a new session.
    pub(crate) force_reconnect: Notify,
    /// Tasks that come and go: handlers.
    pub(crate) spawn: mpsc::Sender<BoxFuture<'static, ()>>,
    /// When the listening session last showed life, in microseconds of the clock.
    heartbeat: AtomicU64,
    random: Mutex<StdRng>,
    root: CancellationToken,
}

/// What an engine is made from.
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) backend: Backend,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) naming: Naming,
    pub(crate) observer: Observer,
    pub(crate) seed: u64,
    pub(crate) retention: bool,
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> (Arc<Self>, mpsc::Receiver<BoxFuture<'static, ()>>) {
        let Parts { config, backend, clock, naming, observer, seed, retention } = parts;
        let (spawn, spawned) = mpsc::channel(16);
        let engine = Self {
            publisher: Publisher::new(config.max_waiting_broadcasts),
            announcer: Announcer::new(config.max_command_queue_depth),
            hub: Hub::new(naming.clone(), &config),
            catch_up: CatchUp::default(),
            heads: HeadReads::default(),
            sweep: Sweep::default(),
            state: watch::Sender::new(State::Starting),
            shutdown: Shutdown::default(),
            retention,
            force_reconnect: Notify::new(),
            spawn,
            heartbeat: AtomicU64::new(0),
            random: Mutex::new(StdRng::seed_from_u64(seed)),
            root: CancellationToken::new(),
            config,
            backend,
            clock,
            naming,
            observer,
        };
        engine.beat();
        (Arc::new(engine), spawned)
    }

    /// Ends when the engine does.
    pub(crate) async fn cancelled(&self) {
        self.root.cancelled().await;
    }

    /// Ends every task.
    pub(crate) fn cancel(&self) {
        self.root.cancel();
    }

    /// A number in 0..1 from the engine's own source.
    pub(crate) fn random(&self) -> f64 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).random()
    }

    /// The listening session showed life.
    pub(crate) fn beat(&self) {
        let now = self.clock.now().since_origin().as_micros();
        self.heartbeat.store(u64::try_from(now).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How long the sweep pauses: less while messages do not arrive as they should.
    pub(crate) fn sweep_pause(&self) -> Duration {
        match *self.state.borrow() {
            State::Degraded(_) => self.config.sweep_interval.min(DEGRADED_SWEEP),
            _ => self.config.sweep_interval,
        }
    }

    pub(crate) fn heartbeat_age(&self) -> Duration {
        let last = MonoTime::new(Duration::from_micros(self.heartbeat.load(Ordering::Relaxed)));
        self.clock.now().since(last)
    }

    /// A call of a backend: under a deadline whose error names the step, and with a panic that is only an error.
    pub(crate) async fn call<T>(
        &self,
        operation: &'static str,
        step: Step,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        self.call_until(operation, step, self.config.statement_timeout, call).await
    }

    /// As [`Self::call`], with a deadline of its own.
    pub(crate) async fn call_until<T>(
        &self,
        operation: &'static str,
        step: Step,
        limit: Duration,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let deadline = self.clock.now() + limit;
        tokio::select! {
            biased;
            result = AssertUnwindSafe(call).catch_unwind() => result.unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Backend, operation, "the backend panicked"))
            }),
            () = self.clock.sleep_until(deadline) => Err(Error::timeout(operation, step, limit)),
        }
    }

    pub(crate) fn metrics(&self) -> MetricsSnapshot {
        let state = *self.state.borrow();
        let gauges = Gauges {
            command_queue_depth: self.announcer.len() as u64,
            subscribed_channels: self.hub.channels() as u64,
            seconds_since_heartbeat: (self.heartbeat_age().as_secs_f64() * 1000.0).round() / 1000.0,
            supervisor_alive: u64::from(!matches!(state, State::Stopped(_))),
            watchdog_alive: u64::from(self.config.watchdog_enabled && !matches!(state, State::Stopped(_))),
            reconnects_current: match state {
                State::Reconnecting { attempt } => u64::from(attempt),
                _ => 0,
            },
            subscribers_behind: self.hub.behind() as u64,
            broadcasts_in_flight: self.publisher.load() as u64,
        };
        MetricsSnapshot::new(&self.observer.counters, gauges)
    }
}

/// The tasks of an engine, each of which is started again if it panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Publisher,
    Announcer,
    Supervisor,
    Sweep,
    CatchUp,
    Heads,
    Retention,
    Metrics,
}

impl Part {
    const ALL: [Self; 8] = [
        Self::Publisher,
        Self::Announcer,
        Self::Supervisor,
        Self::Sweep,
        Self::CatchUp,
        Self::Heads,
        Self::Retention,
        Self::Metrics,
    ];

    async fn run(self, engine: Arc<Engine>, session: Option<Session>) -> Self {
        let part: BoxFuture<'static, ()> = match self {
            Self::Publisher => Box::pin(Publisher::run(engine.clone())),
            Self::Announcer => Box::pin(Announcer::run(engine.clone())),
            Self::Supervisor => Box::pin(supervise(engine.clone(), session)),
            Self::Sweep => Box::pin(Sweep::run(engine.clone())),
            Self::CatchUp => Box::pin(CatchUp::run(engine.clone())),
            Self::Heads => Box::pin(HeadReads::run(engine.clone())),
            Self::Retention => Box::pin(crate::retention::run(engine.clone())),
            Self::Metrics => Box::pin(emit_metrics(engine.clone())),
        };
        if AssertUnwindSafe(part).catch_unwind().await.is_err() {
            let message = format!("the task {self:?} panicked and is started again");
            engine.observer.error(Stage::Supervisor, &Error::new(ErrorKind::Backend, "supervise", message));
        }
        self
    }
}

/// The root task: owns all others, and ends them.
pub(crate) async fn root(
    engine: Arc<Engine>,
    mut session: Option<Session>,
    mut spawned: mpsc::Receiver<BoxFuture<'static, ()>>,
) {
    let end = crate::shutdown::EndGuard(engine.clone());
    let mut parts = JoinSet::new();
    let mut handlers = JoinSet::new();
    for part in Part::ALL {
        let session = if part == Part::Supervisor { session.take() } else { None };
        parts.spawn(part.run(engine.clone(), session));
    }
    let plan = loop {
        tokio::select! {
            biased;
            plan = engine.shutdown.requested() => break plan,
            Some(done) = parts.join_next() => {
                // `run` catches panics, so this is a part that panicked, or one that was aborted with the runtime.
                if let Ok(part) = done {
                    // A part that panics at once must not spin.
                    let until = engine.clock.now() + Duration::from_millis(100);
                    engine.clock.sleep_until(until).await;
                    parts.spawn(part.run(engine.clone(), None));
                }
            }
            Some(task) = spawned.recv() => drop(handlers.spawn(task)),
            Some(_) = handlers.join_next() => {}
        }
    };
    crate::shutdown::carry_out(&engine, plan, parts, handlers).await;
    drop(end);
}

async fn emit_metrics(engine: Arc<Engine>) {
    loop {
        let until = engine.clock.now() + engine.config.metrics_interval;
        tokio::select! {
            biased;
            () = engine.cancelled() => return,
            () = engine.clock.sleep_until(until) => {}
        }
        let snapshot = engine.metrics();
        snapshot.publish();
        engine.observer.metrics(&snapshot);
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("state", &*self.state.borrow()).finish_non_exhaustive()
    }
}
