//! Firehose over HTTP: a router that any axum service can nest.
//!
//! | route | does |
//! | --- | --- |
//! | `POST /firehose/streams/{stream}` | stores the body as one message, answers with its place |
//! | `GET /firehose/sse?streams=a,b` | Server-Sent Events of the streams, resumable by `Last-Event-ID` |
//! | `GET /`, `/healthz`, `/readyz` | the page, the process, the engine ([`gateway`] only) |
//!
//! ```
//! # async fn example(firehose: firehose_core::Firehose) {
//! use firehose_http::Options;
//!
//! let options = Options::default();
//! let drain = options.drain.clone(); // cancel it, and every open stream of events ends
//! let app: axum::Router = axum::Router::new().merge(firehose_http::router(firehose, options));
//! # let _ = (app, drain);
//! # }
//! ```
//!
//! Who may read or write a stream is not this crate's question yet: put the router behind the service's own middleware.
//!
//! In reading order: [`Options`], `router`, then the way in (`publish`), the way out (`sse`), and `protocol`, which
//! holds every decision about text on the wire and does no I/O.

mod error;
mod health;
mod options;
mod page;
mod protocol;
mod publish;
mod router;
mod sse;

pub use options::Options;
pub use router::{gateway, router};
