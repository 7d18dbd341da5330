//! What the in-memory backend promises: the contracts of the traits, clause by clause, its transactions and its faults.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod broken;
mod clock;
mod conformance;
mod contracts;
mod harness;
mod operation_faults;
mod store;
mod support;
mod transactions;
mod transport;
mod wire_faults;
