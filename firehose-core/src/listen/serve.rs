//! One session: commands, questions and events, until it is lost or the engine ends.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::backoff::Backoff;
use super::probe::{Ask, Probe};
use super::registry::Command;
use super::watchdog::{Pulse, Watchdog};
use crate::backend::{ListenControl, ListenEvent, MonoTime, Notification, Session};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::observe::{Degradation, Event, Stage, State};
use crate::stream::ChannelIdentifier;

/// How many channels one LISTEN asks for.
const CHANNELS: usize = 1_000;

/// How long a session that ends in order may take to say so.
const CLOSE: Duration = Duration::from_millis(500);

/// A session that follows a lost one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct After {
    /// How many attempts it took.
    pub(crate) attempts: u32,
    /// How long there was none.
    pub(crate) outage: Duration,
}

/// Serves `session` until it is lost (`Err`) or the engine ends (`Ok`).
pub(crate) async fn serve(engine: &Arc<Engine>, session: Session, after: Option<After>) -> Result<()> {
    let Session { control, mut events } = session;
    let mut serving = Serving::new(engine, control.as_ref(), after);
    loop {
        serving.advance()?;
        let wake = serving.wake();
        // In this order: the end, what was asked for, what is to be asked for, and only then the flood of events.
        tokio::select! {
            biased;
            () = engine.cancelled() => break,
            () = engine.force_reconnect.notified() => {
                return Err(Error::new(ErrorKind::ConnectionLost, "listen", "a new session was asked for"));
            }
            (done, result) = pending_or(serving.command.as_mut()) => serving.commanded(done, result)?,
            result = pending_or(serving.ping.as_mut()) => serving.pinged(result)?,
            (ask, answer) = pending_or(serving.asking.as_mut()) => serving.answered(ask, answer)?,
            () = engine.hub.changed.notified() => {}
            () = sleep_or_never(engine, wake) => {}
            event = events.next() => match event {
                ListenEvent::Notification { channel, payload } => serving.heard(&channel, &payload),
                ListenEvent::Lost(error) => return Err(error),
            }
        }
    }
    drop(serving);
    let until = engine.clock.now() + CLOSE;
    tokio::select! {
        biased;
        () = control.close() => {}
        () = engine.clock.sleep_until(until) => {}
    }
    Ok(())
}

/// What is under way in one session.
struct Serving<'a> {
    engine: &'a Arc<Engine>,
    control: &'a dyn ListenControl,
    after: Option<After>,
    command: Option<BoxFuture<'a, (Command, Result<()>)>>,
    refused: Backoff,
    /// When refused channels are tried again.
    retry_at: Option<MonoTime>,
    /// `None` where nobody watches.
    watchdog: Option<Watchdog>,
    ping: Option<BoxFuture<'a, Result<()>>>,
    probe: Probe,
    probe_channel: ChannelIdentifier,
    /// What the probe asked; the answer to `Registered` is whether.
    asking: Option<BoxFuture<'a, (Ask, Result<Option<bool>>)>>,
    /// What was told last of why messages do not arrive as they should.
    told: Option<Degradation>,
    live: bool,
    /// That the session is there was told.
    welcomed: bool,
}

impl<'a> Serving<'a> {
    fn new(engine: &'a Arc<Engine>, control: &'a dyn ListenControl, after: Option<After>) -> Self {
        let (config, now) = (&engine.config, engine.clock.now());
        Self {
            engine,
            control,
            after,
            command: None,
            refused: Backoff::new(config.reconnect_delay, config.reconnect_max_delay),
            retry_at: None,
            watchdog: config
                .watchdog_enabled
                .then(|| Watchdog::new(config.watchdog_interval, config.watchdog_deadline, now)),
            ping: None,
            probe: Probe::new(config.probe_interval, now),
            probe_channel: engine.naming.probe(engine.random().to_bits()),
            asking: None,
            told: None,
            live: false,
            welcomed: false,
        }
    }

    /// Begins whatever is due, and tells the state. `Err` where the session is to be given up.
    fn advance(&mut self) -> Result<()> {
        let (engine, control, now) = (self.engine, self.control, self.engine.clock.now());
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            engine.hub.retry_refused();
        }
        if let Some(watchdog) = &mut self.watchdog {
            if watchdog.pulse(now) == Pulse::Dead {
                engine.observer.counters.watchdog_kicks.add(1);
                return Err(Error::new(ErrorKind::ConnectionLost, "listen", "the session was silent for too long"));
            }
            if self.ping.is_none() && watchdog.ask(now) {
                self.ping = Some(Box::pin(engine.call("ping", Step::Ping, control.ping())));
            }
        }
        if self.asking.is_none()
            && let Some(ask) = self.probe.next(now)
        {
            self.asking = Some(self.ask(ask));
        }
        engine.hub.set_deaf(self.probe.verdict() == Some(Degradation::TransactionPooler));
        if self.command.is_none() && !self.probe.holds_back() {
            match engine.hub.next_command(CHANNELS) {
                Some(next) => self.command = Some(Box::pin(carry_out(engine, control, next))),
                None => self.live = true,
            }
        }
        self.tell(now);
        Ok(())
    }

    fn ask(&self, ask: Ask) -> BoxFuture<'a, (Ask, Result<Option<bool>>)> {
        let (engine, control, channel) = (self.engine, self.control, self.probe_channel.clone());
        Box::pin(async move {
            let answer = match ask {
                Ask::Listen => engine.call("probe", Step::Listen, control.listen(&[channel])).await.map(|()| None),
                Ask::Notify => {
                    let probe = [Notification::new(channel, "probe")];
                    engine.call("probe", Step::Notify, engine.backend.notifier.notify(&probe)).await.map(|()| None)
                }
                Ask::Registered => engine
                    .call("probe", Step::Listen, control.registered())
                    .await
                    .map(|all| all.map(|all| all.contains(&channel))),
            };
            (ask, answer)
        })
    }

    /// When there is something to begin or to tell, if nothing happens before.
    fn wake(&self) -> Option<MonoTime> {
        let now = self.engine.clock.now();
        let watchdog = self.watchdog.as_ref().map(|watchdog| watchdog.wake(now));
        let probe = self.probe.wake().filter(|_| self.asking.is_none());
        [self.retry_at, watchdog, probe].into_iter().flatten().min()
    }

    fn life(&mut self) {
        self.engine.beat();
        let now = self.engine.clock.now();
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.life(now);
        }
    }

    fn heard(&mut self, channel: &ChannelIdentifier, payload: &Arc<str>) {
        self.life();
        if *channel == self.probe_channel {
            return self.probe.heard(self.engine.clock.now());
        }
        self.engine.observer.counters.notifies_received.add(1);
        self.engine.hub.heard(self.engine, channel, payload);
    }

    fn pinged(&mut self, result: Result<()>) -> Result<()> {
        self.ping = None;
        let well = match result {
            Ok(()) => true,
            Err(error) if disconnected(&error) => return Err(error),
            Err(error) => !matches!(error.kind(), ErrorKind::Timeout(_)),
        };
        if well {
            self.engine.beat();
        }
        let now = self.engine.clock.now();
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.answered(well, now);
        }
        Ok(())
    }

    fn answered(&mut self, ask: Ask, answer: Result<Option<bool>>) -> Result<()> {
        self.asking = None;
        let now = self.engine.clock.now();
        if ask != Ask::Notify {
            match &answer {
                Ok(_) => self.life(),
                // How long it may stay silent, the watchdog says.
                Err(error) if ask == Ask::Registered && self.watchdog.is_some() && !disconnected(error) => {}
                Err(error) if lost(error) => return Err(error.replicate()),
                Err(_) => {}
            }
        }
        match ask {
            Ask::Listen => self.probe.listened(answer.is_ok(), now),
            Ask::Notify => self.probe.sent(answer.is_ok(), now),
            Ask::Registered => self.probe.registered(answer.ok().flatten(), now),
        }
        if self.probe.verdict() == Some(Degradation::RegistrationLost) {
            self.tell(now);
            let message = "the server does not know any more that this session listens";
            return Err(Error::new(ErrorKind::ConnectionLost, "listen", message));
        }
        Ok(())
    }

    fn commanded(&mut self, command: Command, result: Result<()>) -> Result<()> {
        self.command = None;
        let engine = self.engine;
        if result.as_ref().is_err_and(lost) {
            return result;
        }
        self.life();
        match (command, result) {
            (Command::Listen(channels), Ok(())) => {
                let topics = engine.hub.listened(&channels);
                if self.after.is_some() && !topics.is_empty() {
                    engine.sweep.replay(topics);
                }
                engine.observer.healed(Stage::Listen);
                self.refused.session_ended(engine.config.reconnect_max_delay);
            }
            (Command::Unlisten(channels), Ok(())) => engine.hub.unlistened(&channels),
            (Command::Listen(channels), Err(error)) => {
                engine.observer.error(Stage::Listen, &error);
                engine.hub.refused(&channels, &error);
                if engine.hub.has_refused() {
                    let until = engine.clock.now() + self.refused.next(engine.random());
                    self.retry_at = Some(self.retry_at.map_or(until, |earlier| earlier.min(until)));
                }
            }
            (Command::Unlisten(channels), Err(error)) => {
                engine.observer.error(Stage::Listen, &error);
                engine.hub.unlisten_failed(&channels);
            }
        }
        Ok(())
    }

    /// The state, and what became of it.
    fn tell(&mut self, now: MonoTime) {
        let engine = self.engine;
        let silent = self.watchdog.as_ref().is_some_and(|watchdog| watchdog.pulse(now) != Pulse::Fine);
        let degraded = if silent { Some(Degradation::Silent) } else { self.probe.verdict() };
        if degraded != self.told {
            self.told = degraded;
            match degraded {
                Some(why) => engine.observer.error(Stage::Probe, &explain(why)),
                None => engine.observer.healed(Stage::Probe),
            }
        }
        let state = match degraded {
            Some(why) => State::Degraded(why),
            None if self.live => State::Live,
            None => return,
        };
        let changed = engine.state.send_if_modified(|known| std::mem::replace(known, state) != state);
        if changed {
            engine.observer.healed(Stage::ConnectionLost);
            if degraded.is_none() {
                engine.observer.healed(Stage::Probe);
            }
            engine.sweep.state_changed();
            if let Some(After { attempts, outage }) =
                self.after.filter(|_| !std::mem::replace(&mut self.welcomed, true))
            {
                engine.observer.event(&Event::Reconnected { attempts, outage });
            }
        }
    }
}

fn disconnected(error: &Error) -> bool {
    error.kind() == ErrorKind::ConnectionLost
}

/// No answer, or no connection: nobody knows what the other end believes.
fn lost(error: &Error) -> bool {
    disconnected(error) || matches!(error.kind(), ErrorKind::Timeout(_))
}

fn explain(why: Degradation) -> Error {
    let (kind, message, hint) = match why {
        Degradation::Silent => (ErrorKind::Timeout(Step::Ping), "the session does not answer", None),
        Degradation::TransactionPooler => (
            ErrorKind::Pooler,
            "LISTEN is acknowledged and nothing is heard: a pooler gives each transaction another server connection",
            Some("set listen_url to a direct address of the server, or use the pooler's session mode"),
        ),
        Degradation::RegistrationLost => (
            ErrorKind::Backend,
            "the server does not know any more that this session listens",
            Some("something ran UNLISTEN * on this session: a pooler between, or a proxy"),
        ),
        Degradation::NotifyFailed => (
            ErrorKind::Backend,
            "notifications cannot be sent",
            Some(
                "the server's notification queue may be full: look for a session that listens and stays in a transaction",
            ),
        ),
        Degradation::Unheard => (
            ErrorKind::Backend,
            "notifications are sent and not heard",
            Some("database_url and listen_url may name different databases"),
        ),
    };
    let error = Error::new(kind, "probe", message);
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

async fn carry_out(engine: &Engine, control: &dyn ListenControl, command: Command) -> (Command, Result<()>) {
    let result = match &command {
        Command::Listen(channels) => engine.call("listen", Step::Listen, control.listen(channels)).await,
        Command::Unlisten(channels) => engine.call("listen", Step::Unlisten, control.unlisten(channels)).await,
    };
    (command, result)
}

async fn pending_or<T>(future: Option<&mut (impl Future<Output = T> + Unpin)>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

async fn sleep_or_never(engine: &Engine, until: Option<MonoTime>) {
    match until {
        Some(until) => engine.clock.sleep_until(until).await,
        None => std::future::pending().await,
    }
}
