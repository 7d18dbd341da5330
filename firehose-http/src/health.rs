//! `/healthz` and `/readyz`.

use axum::Json;
use axum::extract::State as Extract;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use firehose_core::State;
use serde::Serialize;

use crate::router::App;

#[derive(Debug, Serialize)]
struct Health {
    status: &'static str,
}

/// Whether this process answers.
pub(crate) async fn healthz() -> Response {
    Json(Health { status: "ok" }).into_response()
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Readiness {
    ready: bool,
    state: &'static str,
    /// Why it is not ready, or what is wrong although it is.
    reason: Option<String>,
}

/// Whether the engine hears and stores: 200 while it does, else 503.
pub(crate) async fn readyz(Extract(app): Extract<App>) -> Response {
    let readiness = if app.options.drain.is_cancelled() {
        Readiness { ready: false, state: "draining", reason: Some("this server is shutting down".to_owned()) }
    } else {
        let health = app.firehose.health();
        Readiness::of(health.state, health.reason)
    };
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(readiness)).into_response()
}

impl Readiness {
    /// `failure` is the last thing that went wrong, while it lasts.
    fn of(state: State, failure: Option<String>) -> Self {
        let name = match state {
            State::Live => return Self { ready: true, state: "live", reason: failure },
            // The sweep delivers, and what is broadcast is stored.
            State::Degraded(_) => return Self { ready: true, state: "degraded", reason: Some(told(state, failure)) },
            State::Starting => "starting",
            State::Reconnecting { .. } => "reconnecting",
            State::Stopped(_) => "stopped",
            _ => "other",
        };
        Self { ready: false, state: name, reason: Some(told(state, failure)) }
    }
}

fn told(state: State, failure: Option<String>) -> String {
    match failure {
        Some(failure) => format!("{state}: {failure}"),
        None => state.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use firehose_core::Degradation;

    use super::*;

    #[test]
    fn an_engine_that_delivers_is_ready() {
        assert_eq!(Readiness::of(State::Live, None), Readiness { ready: true, state: "live", reason: None });
        let lost = Readiness::of(State::Reconnecting { attempt: 2 }, Some("connection lost".to_owned()));
        let reason = Some("reconnecting (attempt 2): connection lost".to_owned());
        assert_eq!(lost, Readiness { ready: false, state: "reconnecting", reason });
        assert!(!Readiness::of(State::Starting, None).ready);
        let degraded = Readiness::of(State::Degraded(Degradation::TransactionPooler), None);
        assert_eq!((degraded.ready, degraded.reason.as_deref()), (true, Some("degraded (transaction_pooler)")));
    }
}
