//! firehose-pg on a real PostgreSQL: each numbered clause of the traits, on both shapes of the tables, and the cases
//! of the field that only a server can show. One binary, so one server serves the whole run.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod append;
#[cfg(feature = "cli")]
mod bench;
mod changed;
#[cfg(feature = "cli")]
mod command;
mod concurrency;
mod conformance;
mod connection;
mod engine;
mod failover;
mod functions;
mod gem;
mod gem_faults;
mod gem_live;
mod harness;
mod horizon;
mod leak;
mod migrations;
mod mixed;
mod names;
mod names_apart;
mod phantom;
mod poolers;
#[cfg(feature = "cli")]
mod publish;
mod read;
mod recovery;
mod refused;
mod retention;
mod silence;
#[cfg(feature = "cli")]
mod tail;
mod transaction;
mod transport;
mod trim;
