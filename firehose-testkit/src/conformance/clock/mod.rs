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
            Clock 1 clock_01_now_never_goes_back
                "now never goes back" clauses::never_back;
            Clock 2 clock_02_a_sleep_does_not_end_before_its_deadline
                "a sleep ends at its deadline or later" clauses::not_before_its_deadline;
            Clock 2 clock_02_a_deadline_that_has_passed_is_no_sleep
                "a sleep whose deadline has passed ends at once" clauses::at_once_where_it_has_passed;
            Clock 3 clock_03_sleepers_end_in_the_order_of_their_deadlines
                "sleepers end in the order of their deadlines" clauses::in_order;
            Clock 4 clock_04_a_dropped_sleep_leaves_nothing
                "a dropped sleep leaves nothing behind" clauses::dropped;
            Clock 5 clock_05_wall_is_the_time_of_day
                "wall is the time of day" clauses::time_of_day;
        }
    };
}

/// The tests of the contract of [`Clock`](firehose_core::Clock), in its order.
pub fn clock_clauses() -> &'static [Clause<dyn ClockFixture>] {
    __firehose_clock_clauses!({ clause_table } [dyn ClockFixture])
}
