//! Persistent, ordered publish/subscribe: every message is stored with a gapless sequence in its stream, announced by a
//! mere hint, and brought to every subscriber in order, once, and whole, whatever fails.
//!
//! This crate holds the engine and the four traits that it stands on ([`MessageStore`], [`Notifier`], [`Listener`],
//! [`Clock`]). A backend comes from another crate: PostgreSQL's in production, testkit's in unit tests, or your own.
//!
//! ```
//! use firehose_core::{Firehose, Start};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> firehose_core::Result<()> {
//! let backend = firehose_testkit::Testkit::new(7).backend(); // firehose_pg::connect(&config).await? in production
//! let firehose = Firehose::builder(backend).start().await?;
//!
//! firehose.broadcast("orders", "placed").await?;
//! let mut orders = firehose.subscribe_from("orders", Start::Earliest).await?;
//! firehose.broadcast("orders", "paid").await?;
//!
//! for expected in ["placed", "paid"] {
//!     let delivery = orders.next().await;
//!     assert_eq!(&*delivery.as_ref().and_then(|d| d.message()).expect("a message").data, expected);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! In reading order:
//!
//! - [`Firehose`], the handle, and [`Builder`], which makes it.
//! - [`NewMessage`] and [`Message`]; [`StreamName`]; [`Cursor`], [`Token`] and [`Start`].
//! - [`Subscription`] and [`Subscriptions`], which give [`Delivery`]s; [`Queue`] and [`RawListener`] beside them.
//! - The traits, each with a numbered contract, and [`Backend`], which holds one of each.
//! - [`Config`], [`Error`], [`State`], [`Health`], [`Diagnostics`], [`MetricsSnapshot`].

mod backend;
mod builder;
mod config;
mod cursor;
mod deliver;
mod engine;
mod error;
mod firehose;
mod listen;
mod message;
mod naming;
mod observe;
mod publish;
mod queue;
mod raw;
mod retention;
mod shutdown;
mod stream;
mod token;
pub mod wire;

pub use backend::*;
pub use builder::Builder;
pub use config::{CleanupThreshold, Config, Loaded, Secret};
pub use cursor::{Before, Cursor, Start};
pub use deliver::{
    CloseReason, Delivery, Gap, GapReason, HandlerGuard, Lag, Reset, ResetReason, SubscribeOptions, Subscription,
    Subscriptions,
};
pub use error::{Error, ErrorKind, Outcome, Result, Step};
pub use firehose::Firehose;
pub use message::{Epoch, Message, MessageId, MessageKey, NewMessage, Sequence, Timestamp};
pub use naming::{Layout, Naming};
pub use observe::{
    Degradation, Diagnostics, ErrorReport, Event, Health, MetricsSnapshot, Stage, State, StopReason, StreamDiagnosis,
};
pub use publish::Receipt;
pub use queue::{Elapsed, Queue};
pub use raw::RawListener;
pub use shutdown::ShutdownReceipt;
pub use stream::{ChannelIdentifier, StreamName};
pub use token::Token;
