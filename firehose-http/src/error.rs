//! From what went wrong to a status and a body that says so.

use std::borrow::Cow;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use firehose_core::{Error, ErrorKind, Outcome};
use serde::Serialize;

/// How long a client should wait before it repeats a request that got 503, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// A request that failed, as the client is told: `{"error":"<kind>","message":"…"}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: Cow<'static, str>,
    outcome: Outcome,
}

#[derive(Serialize)]
struct Body<'a> {
    error: &'a str,
    message: &'a str,
    /// Only where it is not plain that nothing happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'a str>,
}

impl ApiError {
    pub(crate) fn bad_request(kind: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, kind, message: message.into(), outcome: Outcome::NotDone }
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("the body is longer than {limit} bytes").into();
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, kind: "too_large", message, outcome: Outcome::NotDone }
    }

    pub(crate) fn not_found() -> Self {
        let message = "there is nothing at this path".into();
        Self { status: StatusCode::NOT_FOUND, kind: "not_found", message, outcome: Outcome::NotDone }
    }

    pub(crate) fn draining() -> Self {
        let message = "this server is shutting down".into();
        Self { status: StatusCode::SERVICE_UNAVAILABLE, kind: "shut_down", message, outcome: Outcome::NotDone }
    }

    #[cfg(test)]
    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }
}

/// The status of each kind of failure, and the word for it. What is new to this table is a failure of the server.
fn classify(kind: ErrorKind) -> (StatusCode, &'static str) {
    match kind {
        ErrorKind::InvalidName => (StatusCode::BAD_REQUEST, "invalid_name"),
        ErrorKind::InvalidData => (StatusCode::BAD_REQUEST, "invalid_data"),
        ErrorKind::InvalidKey => (StatusCode::BAD_REQUEST, "invalid_key"),
        ErrorKind::InvalidCursor => (StatusCode::BAD_REQUEST, "invalid_cursor"),
        ErrorKind::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
        ErrorKind::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, "overloaded"),
        ErrorKind::StreamBlocked => (StatusCode::SERVICE_UNAVAILABLE, "stream_blocked"),
        ErrorKind::Timeout(_) => (StatusCode::SERVICE_UNAVAILABLE, "timeout"),
        ErrorKind::OutcomeUnknown => (StatusCode::SERVICE_UNAVAILABLE, "outcome_unknown"),
        ErrorKind::ConnectionLost => (StatusCode::SERVICE_UNAVAILABLE, "connection_lost"),
        ErrorKind::ShutDown => (StatusCode::SERVICE_UNAVAILABLE, "shut_down"),
        ErrorKind::NotSupported => (StatusCode::NOT_IMPLEMENTED, "not_supported"),
        ErrorKind::Config => (StatusCode::INTERNAL_SERVER_ERROR, "config"),
        ErrorKind::SettingsMismatch => (StatusCode::INTERNAL_SERVER_ERROR, "settings_mismatch"),
        ErrorKind::Backend => (StatusCode::INTERNAL_SERVER_ERROR, "backend"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let (status, kind) = classify(error.kind());
        Self { status, kind, message: error.to_string().into(), outcome: error.outcome() }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (message, outcome): (Cow<'_, str>, _) = match self.outcome {
            Outcome::NotDone => (self.message, None),
            Outcome::Unknown => (
                format!(
                    "{}; the outcome is unknown: it may have been stored, and repeating it is safe exactly with the \
                     same Idempotency-Key as this request",
                    self.message
                )
                .into(),
                Some("unknown"),
            ),
        };
        let mut response = (self.status, Json(Body { error: self.kind, message: &message, outcome })).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use firehose_core::Step;

    use super::*;

    /// Every kind there is, each with its place.
    const TABLE: [(ErrorKind, u16, &str); 15] = [
        (ErrorKind::InvalidName, 400, "invalid_name"),
        (ErrorKind::InvalidData, 400, "invalid_data"),
        (ErrorKind::InvalidKey, 400, "invalid_key"),
        (ErrorKind::InvalidCursor, 400, "invalid_cursor"),
        (ErrorKind::TooLarge, 413, "too_large"),
        (ErrorKind::Overloaded, 503, "overloaded"),
        (ErrorKind::StreamBlocked, 503, "stream_blocked"),
        (ErrorKind::Timeout(Step::Append), 503, "timeout"),
        (ErrorKind::OutcomeUnknown, 503, "outcome_unknown"),
        (ErrorKind::ConnectionLost, 503, "connection_lost"),
        (ErrorKind::ShutDown, 503, "shut_down"),
        (ErrorKind::NotSupported, 501, "not_supported"),
        (ErrorKind::Config, 500, "config"),
        (ErrorKind::SettingsMismatch, 500, "settings_mismatch"),
        (ErrorKind::Backend, 500, "backend"),
    ];

    #[test]
    fn each_kind_has_its_status_and_its_word() {
        for (kind, status, word) in TABLE {
            assert_eq!(classify(kind), (StatusCode::from_u16(status).unwrap(), word), "{kind:?}");
        }
    }

    #[test]
    fn what_may_help_later_says_when() {
        for (kind, status, _) in TABLE {
            let response = ApiError::from(Error::new(kind, "append", "x")).into_response();
            assert_eq!(response.status(), status);
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), status == 503, "{kind:?}");
        }
    }
}
