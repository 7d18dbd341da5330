//! The routes, asked over a real connection.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper fails its test")]

mod bad_input;
mod events;
mod failures;
mod lifecycle;
mod publishing;
mod resume;
mod support;
