//! The contracts of `Notifier`, of `Listener`, and of a session's two halves.

mod fixture;
mod listener;
mod notifier;
mod words;

pub use fixture::{PendingNotification, TransportFixture};

use super::clause::{Clause, clause_table};

/// Makes a test of each clause of [`Notifier`](firehose_core::Notifier)'s contract; takes an expression that makes a
/// [`TransportFixture`](crate::conformance::TransportFixture). See [`conformance`](crate::conformance).
#[doc(hidden)]
#[macro_export]
macro_rules! __firehose_test_notifier {
    ($fixture:expr $(,)?) => {
        $crate::__firehose_test_notifier!($fixture, runtime = $crate::conformance::threads());
    };
    ($fixture:expr, runtime = $runtime:expr $(,)?) => {
        $crate::__firehose_notifier_clauses!(
            { $crate::__firehose_clause_tests } [notifier_clauses TransportFixture [$fixture] [$runtime]]
        );
    };
}

/// Makes a test of each clause of the contracts of [`Listener`](firehose_core::Listener),
/// [`ListenControl`](firehose_core::ListenControl) and [`ListenEvents`](firehose_core::ListenEvents); takes an expression
/// that makes a [`TransportFixture`](crate::conformance::TransportFixture). See [`conformance`](crate::conformance).
#[doc(hidden)]
#[macro_export]
macro_rules! __firehose_test_listener {
    ($fixture:expr $(,)?) => {
        $crate::__firehose_test_listener!($fixture, runtime = $crate::conformance::threads());
    };
    ($fixture:expr, runtime = $runtime:expr $(,)?) => {
        $crate::__firehose_listener_clauses!(
            { $crate::__firehose_clause_tests } [listener_clauses TransportFixture [$fixture] [$runtime]]
        );
    };
}

/// The one list of `Notifier`'s clauses, for whoever makes something of them.
#[doc(hidden)]
#[macro_export]
macro_rules! __firehose_notifier_clauses {
    ({ $($then:tt)+ } $given:tt) => {
        $($then)+! { $given
            1 notifier_01_who_listens_hears_it
                "who listens before a call hears what it sends" notifier::who_listens_hears;
        }
    };
}

/// The one list of `Listener`'s clauses, for whoever makes something of them.
#[doc(hidden)]
#[macro_export]
macro_rules! __firehose_listener_clauses {
    ({ $($then:tt)+ } $given:tt) => {
        $($then)+! { $given
            2 listener_02_a_session_listens_on_nothing_at_first
                "a session listens on nothing at first" listener::nothing_at_first;
        }
    };
}

/// The tests of the contract of [`Notifier`](firehose_core::Notifier), in its order.
pub fn notifier_clauses() -> &'static [Clause<dyn TransportFixture>] {
    __firehose_notifier_clauses!({ clause_table } ["Notifier", dyn TransportFixture])
}

/// The tests of the contracts of [`Listener`](firehose_core::Listener) and a session's halves, in their order.
pub fn listener_clauses() -> &'static [Clause<dyn TransportFixture>] {
    __firehose_listener_clauses!({ clause_table } ["Listener", dyn TransportFixture])
}
