//! The store on SQLite: the conformance suite, and what the suite cannot know of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper fails its test")]

mod appending;
mod conformance;
mod files;
mod harness;
mod sharing;
mod trimming;
