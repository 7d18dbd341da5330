//! Keeps a session, and brings it to what should be listened to.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::backoff::Backoff;
use super::registry::Command;
use crate::backend::{ListenControl, ListenEvent, Listener, MonoTime, Session};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::observe::{Event, Stage, State};

/// How many channels one LISTEN asks for.
const CHANNELS: usize = 1_000;

/// How long a session that ends in order may take to say so.
const CLOSE: Duration = Duration::from_millis(500);

/// The task: session after session, until the engine ends. `session` is the one that the start opened.
pub(crate) async fn supervise(engine: Arc<Engine>, session: Option<Session>) {
    let Some(listener) = engine.backend.listener.clone() else {
        engine.state.send_replace(State::Live);
        return engine.cancelled().await;
    };
    let mut backoff = Backoff::new(engine.config.reconnect_delay, engine.config.reconnect_max_delay);
    let mut first = session;
    let mut lost_at = None;
    loop {
        // Whatever an earlier session, or an earlier run of this task, had acknowledged is void.
        engine.hub.session_lost();
        engine.sweep.session_lost();
        let (session, attempts) = match first.take() {
            Some(session) => (session, 0),
            None => tokio::select! {
                biased;
                () = engine.cancelled() => return,
                session = connect(&engine, listener.as_ref(), &mut backoff) => session,
            },
        };
        engine.beat();
        let began = engine.clock.now();
        let again = attempts > 0;
        if again {
            engine.observer.counters.reconnects_total.add(1);
        }
        let outage = lost_at.map_or(Duration::ZERO, |at: MonoTime| began.since(at));
        let Err(error) = serve(&engine, session, again.then_some((attempts, outage))).await else { return };
        let now = engine.clock.now();
        backoff.session_ended(now.since(began));
        lost_at = Some(now);
        engine.state.send_replace(State::Reconnecting { attempt: 1 });
        engine.observer.error(Stage::ConnectionLost, &error);
    }
}

/// Attempts until there is a session. The first one after a loss is made at once, unless sessions keep failing.
async fn connect(engine: &Engine, listener: &dyn Listener, backoff: &mut Backoff) -> (Session, u32) {
    let mut attempt = 0;
    loop {
        attempt += 1;
        engine.state.send_replace(State::Reconnecting { attempt });
        if attempt > 1 || backoff.failures() > 0 {
            let until = engine.clock.now() + backoff.next(engine.random());
            engine.clock.sleep_until(until).await;
        } else {
            backoff.next(0.0);
        }
        // What may hang with the lost connection goes first.
        if let Err(error) = engine.call("recover", Step::Connect, engine.backend.store.recover()).await {
            engine.observer.error(Stage::ConnectionLost, &error);
        }
        match engine.call("connect", Step::Connect, listener.connect()).await {
            Ok(session) => return (session, attempt),
            Err(error) => engine.observer.error(Stage::ConnectionLost, &error),
        }
    }
}

/// One session: commands and events, until it is lost (`Err`) or the engine ends (`Ok`).
async fn serve(engine: &Arc<Engine>, session: Session, after: Option<(u32, Duration)>) -> Result<()> {
    let Session { control, mut events } = session;
    let control = control.as_ref();
    let mut command: Option<BoxFuture<'_, (Command, Result<()>)>> = None;
    let mut refused = Backoff::new(engine.config.reconnect_delay, engine.config.reconnect_max_delay);
    let mut retry_at: Option<MonoTime> = None;
    let mut live = false;
    loop {
        if command.is_none() {
            match engine.hub.next_command(CHANNELS) {
                Some(next) => command = Some(Box::pin(carry_out(engine, control, next))),
                None if !live => {
                    live = true;
                    engine.state.send_replace(State::Live);
                    engine.observer.healed(Stage::ConnectionLost);
                    if let Some((attempts, outage)) = after {
                        engine.observer.event(&Event::Reconnected { attempts, outage });
                    }
                }
                None => {}
            }
        }
        // In this order: the end, what was asked for, what is to be asked for, and only then the flood of events.
        tokio::select! {
            biased;
            () = engine.cancelled() => {
                drop(command);
                let until = engine.clock.now() + CLOSE;
                tokio::select! {
                    biased;
                    () = control.close() => {}
                    () = engine.clock.sleep_until(until) => {}
                }
                return Ok(());
            }
            () = engine.force_reconnect.notified() => {
                return Err(Error::new(ErrorKind::ConnectionLost, "listen", "a new session was asked for"));
            }
            (done, result) = pending_or(command.as_mut()) => {
                command = None;
                engine.beat();
                if let Some(until) = settle(engine, done, result, after.is_some(), &mut refused)? {
                    retry_at = Some(retry_at.map_or(until, |earlier| earlier.min(until)));
                }
            }
            () = engine.hub.changed.notified() => {}
            () = sleep_or_never(engine, retry_at) => {
                retry_at = None;
                engine.hub.retry_refused();
            }
            event = events.next() => match event {
                ListenEvent::Notification { channel, payload } => {
                    engine.beat();
                    engine.observer.counters.notifies_received.add(1);
                    engine.hub.heard(engine, &channel, &payload);
                }
                ListenEvent::Lost(error) => return Err(error),
            }
        }
    }
}

async fn carry_out(engine: &Engine, control: &dyn ListenControl, command: Command) -> (Command, Result<()>) {
    let result = match &command {
        Command::Listen(channels) => engine.call("listen", Step::Listen, control.listen(channels)).await,
        Command::Unlisten(channels) => engine.call("listen", Step::Unlisten, control.unlisten(channels)).await,
    };
    (command, result)
}

/// What a command's end means. `Err` where the session is to be given up; else when refused channels are tried again.
fn settle(
    engine: &Engine,
    command: Command,
    result: Result<()>,
    again: bool,
    refused: &mut Backoff,
) -> Result<Option<MonoTime>> {
    match (command, result) {
        (Command::Listen(channels), Ok(())) => {
            let topics = engine.hub.listened(&channels);
            if again && !topics.is_empty() {
                engine.sweep.replay(topics);
            }
            engine.observer.healed(Stage::Listen);
            refused.session_ended(engine.config.reconnect_max_delay);
            Ok(None)
        }
        (Command::Unlisten(channels), Ok(())) => {
            engine.hub.unlistened(&channels);
            Ok(None)
        }
        // No answer, or no connection: nobody knows what the other end believes.
        (_, Err(error)) if matches!(error.kind(), ErrorKind::Timeout(_) | ErrorKind::ConnectionLost) => Err(error),
        (Command::Listen(channels), Err(error)) => {
            engine.observer.error(Stage::Listen, &error);
            engine.hub.refused(&channels, &error);
            let retry = engine.hub.has_refused();
            Ok(retry.then(|| engine.clock.now() + refused.next(engine.random())))
        }
        (Command::Unlisten(channels), Err(error)) => {
            engine.observer.error(Stage::Listen, &error);
            engine.hub.unlisten_failed(&channels);
            Ok(None)
        }
    }
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
