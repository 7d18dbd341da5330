//! From a broadcast to a committed message, and from there to a hint.

mod announcer;
mod batch;
mod marks;
mod publisher;
mod receipt;

pub(crate) use announcer::Announcer;
pub use receipt::Receipt;

pub(crate) use publisher::{Publisher, answer};
