//! The store on SQLite: what the conformance suite cannot know of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper fails its test")]

mod appending;
mod files;
mod harness;
mod sharing;
mod trimming;
