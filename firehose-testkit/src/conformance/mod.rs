//! The contracts of the four traits, as tests: whoever writes a backend learns here when it is right.
//!
//! One macro a trait makes a `#[test]` of each clause of its numbered contract, by name: [`message_store!`],
//! [`notifier!`], [`listener!`] (a session's two halves too) and [`clock!`]. Each takes an expression that makes a
//! *fixture*, what the tests need to get at the backend: a [`StoreFixture`], a [`TransportFixture`] or a
//! [`ClockFixture`]. It is evaluated once a test, in an `async` block on the test's runtime, so it may `await`; each
//! fixture is to be fresh and empty. A crate needs nothing but this one for it:
//!
//! ```
//! use std::sync::Arc;
//! use firehose_core::MessageStore;
//! use firehose_testkit::conformance::StoreFixture;
//! use firehose_testkit::Testkit;
//!
//! /// A fresh store of mine.
//! struct Mine(Arc<dyn MessageStore>);
//!
//! impl Mine {
//!     async fn new() -> Self {
//!         Self(Testkit::new(7).backend().store)
//!     }
//! }
//!
//! #[firehose_testkit::conformance::async_trait]
//! impl StoreFixture for Mine {
//!     fn store(&self) -> Arc<dyn MessageStore> {
//!         self.0.clone()
//!     }
//! }
//!
//! # fn main() {}
//! mod mine {
//!     firehose_testkit::conformance::message_store!(super::Mine::new().await);
//! }
//! ```
//!
//! What a fixture can do beyond that (open the store again, write as somebody else, let time pass) are methods that have
//! a default, `None` or `false`. A clause that needs what the fixture or, by its
//! [`Capabilities`](firehose_core::Capabilities), the backend lacks is skipped, and a line on standard error says so.
//!
//! A test that fails says which clause is broken, how, and what was seen:
//!
//! ```text
//! clause 4 of MessageStore (a visible sequence implies those before it): while four writers append, a read: saw
//! sequences [1, 3], expected [1, 2, 3]
//! ```
//!
//! Tests run on a runtime of several threads; `message_store!(…, runtime = …)` takes another, an expression that gives a
//! [`tokio::runtime::Runtime`]. A clause that takes longer than [`Clause::DEADLINE`] fails, and so does one that blocks
//! its thread.

mod clause;
mod clock;
mod deadline;
mod expect;
mod poll;
mod run;
mod store;
mod transport;

/// The attribute that an implementation of a fixture wants, so that no other crate is needed for it.
pub use async_trait::async_trait;
pub use clause::{Clause, Outcome, Violation};
pub use clock::{ClockFixture, clock_clauses};
pub use run::threads;
pub use store::{ForeignTransaction, StoreFixture, store_clauses};
pub use transport::{PendingNotification, TransportFixture, listener_clauses, notifier_clauses};

#[doc(inline)]
pub use crate::{
    __firehose_test_clock as clock, __firehose_test_listener as listener,
    __firehose_test_message_store as message_store, __firehose_test_notifier as notifier,
};

#[doc(hidden)]
pub use run::{Finish, run};
