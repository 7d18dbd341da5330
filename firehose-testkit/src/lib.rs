//! Firehose in memory, for tests: a backend that behaves like the real one until it is told not to.
//!
//! A [`Testkit`] holds a [`Database`] with transactions and commit visibility, the [`Wire`] that carries its
//! notifications, a [`ManualClock`], and [`Faults`]. Nothing here sleeps, and everything random hangs on one seed: a
//! test gives the same course of events every time. It runs on tokio's current-thread runtime with its time paused,
//! `#[tokio::test(start_paused = true)]`.
//!
//! | to let happen | call |
//! | --- | --- |
//! | a notification is lost, doubled, late, out of order | `wire().drop_next(1)`, `duplicate_with(p)`, `delay(d)`, `shuffle(n)` |
//! | connections are lost, or go silent | `wire().cut()`, `cut_next_session_after(k)`, `freeze()` |
//! | registrations are lost behind a session's back | `wire().forget_listens()` |
//! | connecting fails | `faults().on(Operation::Connect).refuse(kind)` |
//! | a call fails and does nothing, or does its work and says nothing | `faults().on(op).fail(n, kind)`, `lose_answer(n)` |
//! | a call hangs until the test goes on, or takes time | `faults().on(op).hang()`, `hang_after()`, `delay(d)` |
//! | a row is not visible yet | `faults().hide_messages(n)` |
//! | somebody else writes | `database().begin()`, `announce_raw(…)` |
//! | the database goes back in time | `database().snapshot()`, `restore(&snapshot)` |
//! | one process has trouble, others not | `process()`, and its own `faults()`, `cut()`, `freeze()` |
//!
//! Whoever writes a backend of his own finds in [`conformance`] the tests that tell when it is right.

mod clock;
pub mod conformance;
mod database;
mod faults;
mod inbox;
mod listener;
mod notifier;
mod random;
mod store;
mod testkit;
mod wire;

// Where to begin, and the time it runs on.
pub use clock::ManualClock;
pub use testkit::{Process, Testkit};

// The backend.
pub use database::{Database, Snapshot, Transaction};
pub use listener::WireListener;
pub use notifier::WireNotifier;
pub use store::MemoryStore;
pub use wire::Wire;

// What goes wrong, and what happened.
pub use faults::{Faults, Hold, On, Operation, Phase, Traced};
