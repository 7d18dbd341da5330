//! From a broadcast to a committed message, and from there to a hint.

mod announcer;
mod batch;
mod marks;
mod publisher;

pub(crate) use announcer::Announcer;
pub(crate) use publisher::{Accepted, Publisher, answer};
