//! The way out: a subscription becomes a stream of events.

use std::collections::HashMap;
use std::convert::Infallible;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use firehose_core::{Delivery, MessageId, MonoTime, StreamName, Subscriptions};
use futures_util::{FutureExt, stream};

use crate::error::ApiError;
use crate::protocol::{self, GapContext, MAX_INLINE_STREAMS, SseRequest};
use crate::router::App;

/// A chunk that has grown to this many bytes is sent before more is put into it.
const CHUNK: usize = 16 << 10;

const HEADERS: [(header::HeaderName, HeaderValue); 4] = [
    (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store")),
    (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    (header::CONNECTION, HeaderValue::from_static("keep-alive")),
];

/// `GET /firehose/sse`: answers 200 when every stream is subscribed, and sends what arrives from then on.
pub(crate) async fn sse(
    State(app): State<App>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let last_event_id = headers.get("last-event-id").and_then(|id| std::str::from_utf8(id.as_bytes()).ok());
    let request = SseRequest::parse(query.as_deref().unwrap_or_default(), last_event_id)?;
    let drain = app.options.drain.clone();
    let connection = tokio::select! {
        biased;
        () = drain.cancelled() => return Err(ApiError::draining()),
        connection = Connection::open(app, request) => connection?,
    };
    // Pulled by the socket: what a slow client has not taken is not made yet, and waits in the engine, which bounds it.
    let chunks = stream::unfold(connection, async |mut connection| {
        let chunk = connection.next_chunk().await?;
        Some((Ok::<_, Infallible>(chunk), connection))
    });
    Ok((HEADERS, Body::from_stream(chunks)).into_response())
}

/// One client: its subscriptions, and what it has not been sent yet.
struct Connection {
    app: App,
    set: Subscriptions,
    /// What the next chunk begins with.
    out: String,
    /// Whether the token comes with each message.
    inline: bool,
    /// Since when the client's token is behind.
    behind_since: Option<MonoTime>,
    /// When the last chunk was made.
    wrote_at: MonoTime,
    /// The last message of each stream that the client has; a gap names it.
    last_ids: HashMap<StreamName, MessageId>,
    ended: bool,
}

impl Connection {
    async fn open(app: App, request: SseRequest) -> Result<Self, ApiError> {
        let mut set = app.firehose.subscriptions();
        let mut last_ids = HashMap::new();
        for stream in &request.streams {
            set.add(stream.clone(), request.resume.start(stream)).await?;
            last_ids.extend(request.resume.last_id(stream).map(|id| (stream.clone(), id)));
        }
        let mut out = String::new();
        protocol::retry(&mut out, app.jitter());
        if request.announce {
            let mut heads = Vec::with_capacity(request.streams.len());
            for stream in &request.streams {
                heads.push((stream.clone(), app.firehose.head(stream).await?));
            }
            protocol::subscribed(&mut out, &set.token(), &heads);
        } else {
            // A client that is cut off before its first message still knows where it was.
            protocol::id_block(&mut out, &set.token());
        }
        let inline = request.streams.len() <= MAX_INLINE_STREAMS;
        let wrote_at = app.options.clock.now();
        Ok(Self { app, set, out, inline, behind_since: None, wrote_at, last_ids, ended: false })
    }

    /// What to send next; `None` at the end.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        while self.out.is_empty() {
            if self.ended {
                return None;
            }
            self.turn().await;
        }
        self.wrote_at = self.app.options.clock.now();
        Some(Bytes::from(std::mem::take(&mut self.out)))
    }

    /// Waits for one thing to happen, and writes it down.
    async fn turn(&mut self) {
        let options = &self.app.options;
        let token_due = self.behind_since.map(|since| since + options.token_interval);
        if token_due.is_some_and(|due| options.clock.now() >= due) {
            // Not left to the timer below: it has no turn while messages keep coming.
            return self.write_token();
        }
        let deadline = token_due.unwrap_or(self.wrote_at + options.keep_alive);
        tokio::select! {
            biased;
            () = options.drain.cancelled() => self.end(),
            delivery = self.set.next() => self.take(delivery).await,
            () = options.clock.sleep_until(deadline) => {
                if token_due.is_none() {
                    self.out.push_str(protocol::KEEP_ALIVE);
                }
            }
        }
    }

    /// Writes a delivery, and those that are ready behind it as long as the chunk has room.
    async fn take(&mut self, first: Option<(StreamName, Delivery)>) {
        let mut next = Some(first);
        while let Some(delivery) = next {
            match delivery {
                Some((_, delivery)) => self.write(delivery).await,
                None => self.end(),
            }
            if self.ended || self.out.len() >= CHUNK {
                return;
            }
            next = self.set.next().now_or_never();
        }
    }

    async fn write(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Message(message) => {
                if self.inline {
                    protocol::message(&mut self.out, Some(&self.set.token()), &message);
                    self.behind_since = None;
                } else {
                    protocol::message(&mut self.out, None, &message);
                    self.token_moved();
                }
                self.last_ids.insert(message.stream.clone(), message.id);
            }
            Delivery::Gap(gap) => {
                // The gem names ids; only the store knows them. A gap is worth a read, and told without them if it fails.
                let head = self.app.firehose.head(&gap.stream).await.ok().flatten();
                let last_event_id = self.last_ids.get(&gap.stream).copied();
                protocol::gap(&mut self.out, &gap, GapContext { last_event_id, head });
                self.token_moved();
            }
            Delivery::Reset(reset) => {
                self.last_ids.remove(&reset.stream);
                protocol::reset(&mut self.out, &reset);
                self.token_moved();
            }
            // One stream that ended would be missed silently: the client comes back for all of them.
            Delivery::Closed(reason) => {
                tracing::debug!(?reason, "an event stream ends");
                self.end();
            }
            other => tracing::debug!(?other, "a delivery that this version cannot tell of"),
        }
    }

    fn token_moved(&mut self) {
        if self.behind_since.is_none() {
            self.behind_since = Some(self.app.options.clock.now());
        }
    }

    fn write_token(&mut self) {
        self.behind_since = None;
        protocol::id_block(&mut self.out, &self.set.token());
    }

    fn end(&mut self) {
        self.write_token();
        self.ended = true;
    }
}
