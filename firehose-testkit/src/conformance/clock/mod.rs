//! The contract of `Clock`.

mod clauses;
mod fixture;

pub use fixture::ClockFixture;

use super::clause::{Clause, clause_table};

/// Makes a test of each clause of [`Clock`](firehose_core::Clock)'s contract; takes an expression that makes a
/// [`ClockFixture`](crate::conformance::ClockFixture). See [`conformance`](crate::conformance).
#[doc(hidden)]
#[macro_export]
macro_rules! __firehose_test_clock {
    ($fixture:expr $(,)?) => {
        $crate::__firehose_test_clock!($fixture, runtime = $crate::conformance::threads());
    };
    ($fixture:expr, runtime = $runtime:expr $(,)?) => {
        $crate::__firehose_clock_clauses!(
            { $crate::__firehose_clause_tests } [clock_clauses ClockFixture [$fixture] [$runtime]]
        );
    };
}

/// The one list of the clauses, for whoever makes something of them.
#[doc(hidden)]
#[macro_export]
macro_rules! __firehose_clock_clauses {
    ({ $($then:tt)+ } $given:tt) => {
        $($then)+! { $given
            1 clock_01_now_never_goes_back
                "now never goes back" clauses::never_back;
        }
    };
}

/// The tests of the contract of [`Clock`](firehose_core::Clock), in its order.
pub fn clock_clauses() -> &'static [Clause<dyn ClockFixture>] {
    __firehose_clock_clauses!({ clause_table } ["Clock", dyn ClockFixture])
}
