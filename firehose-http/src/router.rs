//! Which path leads where.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::routing::{get, post};
use firehose_core::Firehose;

use crate::error::ApiError;
use crate::options::Options;
use crate::{health, page, publish, sse};

/// What every request shares.
#[derive(Debug, Clone)]
pub(crate) struct App(Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) firehose: Firehose,
    pub(crate) options: Options,
    /// Counts connections, so that each gets a delay of its own.
    connections: AtomicU64,
}

impl App {
    fn new(firehose: Firehose, options: Options) -> Self {
        Self(Arc::new(Shared { firehose, options, connections: AtomicU64::new(0) }))
    }

    /// A number that no other connection of this router gets.
    pub(crate) fn jitter(&self) -> u64 {
        self.options.seed.wrapping_add(self.connections.fetch_add(1, Ordering::Relaxed))
    }
}

impl Deref for App {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// The routes under `/firehose`, for a service to merge or nest: publishing and Server-Sent Events.
///
/// They do not ask who the client is; put the service's own middleware before them.
pub fn router(firehose: Firehose, options: Options) -> Router {
    routes().with_state(App::new(firehose, options))
}

/// A whole small service: the routes of [`router`], and at the root the page, `/healthz` and `/readyz`.
pub fn gateway(firehose: Firehose, options: Options) -> Router {
    routes()
        .route("/", get(page::page))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .fallback(async || ApiError::not_found())
        .with_state(App::new(firehose, options))
}

fn routes() -> Router<App> {
    Router::new()
        .route("/firehose/sse", get(sse::sse))
        .route("/firehose/streams/{stream}", post(publish::publish))
        // The empty name: refused as a name, not as a path.
        .route("/firehose/streams/", post(publish::publish))
}
