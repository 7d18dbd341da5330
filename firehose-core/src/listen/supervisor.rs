//! Keeps a session, and brings it to what should be listened to.

use std::sync::Arc;
use std::time::Duration;

use super::backoff::Backoff;
use super::serve::{After, serve};
use crate::backend::{Listener, MonoTime, Session};
use crate::engine::Engine;
use crate::error::{Error, Step};
use crate::observe::{Stage, State, StopReason};

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
        let (session, attempts) = match first.take() {
            Some(session) => (session, 0),
            None => tokio::select! {
                biased;
                () = engine.cancelled() => return,
                session = connect(&engine, listener.as_ref(), &mut backoff) => match session {
                    Some(session) => session,
                    None => return engine.cancelled().await,
                },
            },
        };
        engine.beat();
        let began = engine.clock.now();
        let again = attempts > 0;
        if again {
            engine.observer.counters.reconnects_total.add(1);
        }
        let outage = lost_at.map_or(Duration::ZERO, |at: MonoTime| began.since(at));
        let after = again.then_some(After { attempts, outage });
        let Err(error) = serve(&engine, session, after).await else { return };
        let now = engine.clock.now();
        backoff.session_ended(now.since(began));
        lost_at = Some(now);
        engine.state.send_replace(State::Reconnecting { attempt: 1 });
        engine.observer.error(Stage::ConnectionLost, &error);
    }
}

/// Attempts until there is a session. The first one after a loss is made at once, unless sessions keep failing. `None`
/// where `reconnect_attempts` have failed; the engine is asked to end then.
async fn connect(engine: &Engine, listener: &dyn Listener, backoff: &mut Backoff) -> Option<(Session, u32)> {
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
            Ok(session) => return Some((session, attempt)),
            Err(error) if engine.config.reconnect_attempts.is_some_and(|most| attempt >= most) => {
                let message = format!("{attempt} attempts to connect have failed");
                let gave_up = Error::new(error.kind(), "connect", message).with_source(error);
                engine.observer.error(Stage::ReconnectGaveUp, &gave_up);
                engine.shutdown.request(engine, StopReason::GaveUp, engine.config.shutdown_timeout);
                return None;
            }
            Err(error) => engine.observer.error(Stage::ConnectionLost, &error),
        }
    }
}
