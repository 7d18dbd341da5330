//! The end of an engine: in order where there is time, at once where there is none, and always whole.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::backend::MonoTime;
use crate::cursor::Cursor;
use crate::deliver::CloseReason;
use crate::engine::Engine;
use crate::observe::{State, StopReason};
use crate::stream::StreamName;

/// What a shutdown left undone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReceipt {
    /// Messages that are stored and were not announced. Subscribers find them by their sweep.
    pub not_announced: Vec<(StreamName, Cursor)>,
    /// Broadcasts that were accepted and are not stored; each caller got an error that says so.
    pub not_stored: usize,
}

impl ShutdownReceipt {
    /// Whether nothing was left undone.
    pub fn is_clean(&self) -> bool {
        self.not_announced.is_empty() && self.not_stored == 0
    }
}

/// Why and until when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShutdownPlan {
    reason: StopReason,
    deadline: MonoTime,
}

/// The request to end, and the receipt.
#[derive(Debug)]
pub(crate) struct Shutdown {
    plan: watch::Sender<Option<ShutdownPlan>>,
    receipt: watch::Sender<Option<ShutdownReceipt>>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { plan: watch::Sender::new(None), receipt: watch::Sender::new(None) }
    }
}

impl Shutdown {
    /// Asks for the end; the first one to ask says why and until when. Needs no runtime.
    pub(crate) fn request(&self, engine: &Engine, reason: StopReason, within: Duration) {
        let deadline = engine.clock.now() + within;
        self.plan.send_if_modified(|plan| {
            let first = plan.is_none();
            plan.get_or_insert(ShutdownPlan { reason, deadline });
            first
        });
        if reason == StopReason::Dropped {
            engine.hub.close(CloseReason::EngineDropped);
        }
    }

    /// Whether the engine takes nothing in any more.
    pub(crate) fn is_closing(&self) -> bool {
        self.plan.borrow().is_some()
    }

    /// Ends when the end was asked for.
    pub(crate) async fn requested(&self) -> ShutdownPlan {
        let mut plan = self.plan.subscribe();
        match plan.wait_for(Option::is_some).await.map(|plan| *plan) {
            Ok(Some(plan)) => plan,
            _ => std::future::pending().await,
        }
    }

    /// The receipt, once there is one.
    pub(crate) async fn receipt(&self) -> ShutdownReceipt {
        let mut receipt = self.receipt.subscribe();
        let receipt = receipt.wait_for(Option::is_some).await.map(|r| r.clone());
        receipt.ok().flatten().unwrap_or_default()
    }
}

/// Ends an engine: store what was accepted, announce what was stored, close what is open, each while there is time.
pub(crate) async fn carry_out<P: 'static>(
    engine: &Engine,
    plan: ShutdownPlan,
    mut parts: JoinSet<P>,
    mut handlers: JoinSet<()>,
) {
    let time_is_up = || engine.clock.sleep_until(plan.deadline);
    tokio::select! {
        biased;
        () = async { engine.publisher.drained().await; engine.announcer.drained().await } => {}
        () = time_is_up() => {}
    }
    let not_stored = engine.publisher.refuse_waiting();
    let reason = match plan.reason {
        StopReason::Shutdown => CloseReason::Shutdown,
        StopReason::Dropped => CloseReason::EngineDropped,
        StopReason::GaveUp => CloseReason::GaveUp,
    };
    engine.hub.close(reason);
    engine.cancel();
    engine.catch_up.close();
    engine.heads.close();
    tokio::select! {
        biased;
        () = async { while parts.join_next().await.is_some() {} } => {}
        () = time_is_up() => {}
    }
    parts.shutdown().await;
    // Only now is nothing stored or announced any more.
    let unannounced = engine.announcer.give_up();
    // Handlers see their stream end; one that never returns is not waited for.
    tokio::select! {
        biased;
        () = async { while handlers.join_next().await.is_some() {} } => {}
        () = time_is_up() => {}
    }
    handlers.shutdown().await;
    engine.state.send_replace(State::Stopped(plan.reason));
    let not_announced = unannounced.into_iter().map(|m| (m.stream.clone(), m.cursor())).collect();
    engine.shutdown.receipt.send_replace(Some(ShutdownReceipt { not_announced, not_stored }));
}

/// Whatever ends the root task, a dropped runtime included, the engine is over and everyone is told.
pub(crate) struct EndGuard(pub(crate) Arc<Engine>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        let engine = &self.0;
        engine.cancel();
        engine.shutdown.request(engine, StopReason::Dropped, Duration::ZERO);
        engine.hub.close(CloseReason::EngineDropped);
        engine.catch_up.close();
        engine.heads.close();
        let not_stored = engine.publisher.refuse_waiting();
        let unannounced = engine.announcer.give_up();
        engine.state.send_if_modified(|state| {
            let running = !matches!(state, State::Stopped(_));
            if running {
                *state = State::Stopped(StopReason::Dropped);
            }
            running
        });
        engine.shutdown.receipt.send_if_modified(|receipt| {
            let first = receipt.is_none();
            receipt.get_or_insert_with(|| ShutdownReceipt {
                not_announced: unannounced.into_iter().map(|m| (m.stream.clone(), m.cursor())).collect(),
                not_stored,
            });
            first
        });
    }
}
