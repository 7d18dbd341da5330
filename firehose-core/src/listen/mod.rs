//! The listening session: what should be heard, brought to what is heard.

mod backoff;
mod probe;
mod registry;
mod serve;
mod supervisor;
mod watchdog;

pub(crate) use backoff::Backoff;
pub(crate) use registry::{Command, Registry};
pub(crate) use supervisor::supervise;
