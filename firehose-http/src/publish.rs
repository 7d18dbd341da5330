//! The way in: a request becomes a stored message.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use firehose_core::{MessageKey, NewMessage};
use futures_util::StreamExt;
use serde::Serialize;

use crate::error::ApiError;
use crate::protocol;
use crate::router::App;

/// How much of a body that is too long is still read, and thrown away, so that the client hears the answer: one that
/// is cut off while it sends often sees a broken connection instead.
const DISCARD_MAX: usize = 4 << 20;

#[derive(Debug, Serialize)]
struct Published<'a> {
    id: i64,
    channel_id: i64,
    sequence: i64,
    stream: &'a str,
}

/// `POST /firehose/streams/{stream}`: the body is the data, whatever its type is said to be.
///
/// 201 means that it is committed.
pub(crate) async fn publish(
    State(app): State<App>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let stream = protocol::stream_of_path(uri.path())?;
    let key = headers.get("idempotency-key").map(idempotency_key).transpose()?;
    let limit = app.options.max_message_bytes;
    // A client that waits for "100 Continue" never sends what is refused here.
    if headers.contains_key(header::EXPECT) && content_length(&headers).is_some_and(|length| length > limit) {
        return Err(ApiError::too_large(limit));
    }
    let data = read(body, limit).await?;
    let mut message = NewMessage::new(stream, data)?;
    message.key = key;
    let stored = app.firehose.broadcast_message(message).await?;
    let published = Published {
        id: stored.id.0,
        channel_id: stored.channel_id.0,
        sequence: stored.sequence.0,
        stream: stored.stream.as_str(),
    };
    Ok((StatusCode::CREATED, Json(published)).into_response())
}

fn idempotency_key(value: &HeaderValue) -> Result<MessageKey, ApiError> {
    let key = std::str::from_utf8(value.as_bytes())
        .map_err(|_| ApiError::bad_request("invalid_key", "Idempotency-Key: not UTF-8"))?;
    Ok(MessageKey::new(key)?)
}

fn content_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Reads a body of at most `limit` bytes of UTF-8.
async fn read(body: Body, limit: usize) -> Result<String, ApiError> {
    let mut chunks = body.into_data_stream();
    let mut data = Vec::new();
    let mut seen = 0_usize;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| ApiError::bad_request("incomplete_body", "the body broke off"))?;
        seen = seen.saturating_add(chunk.len());
        if seen <= limit {
            data.extend_from_slice(&chunk);
        } else {
            data = Vec::new();
            if seen - limit > DISCARD_MAX {
                break;
            }
        }
    }
    if seen > limit {
        return Err(ApiError::too_large(limit));
    }
    String::from_utf8(data).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        ApiError::bad_request("invalid_data", format!("the body is not UTF-8 at byte {at}"))
    })
}
