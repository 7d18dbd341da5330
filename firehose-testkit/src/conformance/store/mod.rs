//! The contract of `MessageStore`.

mod append;
mod fixture;
mod words;

pub use fixture::{ForeignTransaction, StoreFixture};

use super::clause::{Clause, clause_table};

/// Makes a test of each clause of [`MessageStore`](firehose_core::MessageStore)'s contract; takes an expression that
/// makes a [`StoreFixture`](crate::conformance::StoreFixture). See [`conformance`](crate::conformance).
#[doc(hidden)]
#[macro_export]
macro_rules! __firehose_test_message_store {
    ($fixture:expr $(,)?) => {
        $crate::__firehose_test_message_store!($fixture, runtime = $crate::conformance::threads());
    };
    ($fixture:expr, runtime = $runtime:expr $(,)?) => {
        $crate::__firehose_store_clauses!(
            { $crate::__firehose_clause_tests } [store_clauses StoreFixture [$fixture] [$runtime]]
        );
    };
}

/// The one list of the clauses, for whoever makes something of them.
#[doc(hidden)]
#[macro_export]
macro_rules! __firehose_store_clauses {
    ({ $($then:tt)+ } $given:tt) => {
        $($then)+! { $given
            1 store_01_each_entry_has_its_own_result
                "each entry has its own result, and a bad one fails alone" append::results_of_their_own;
            2 store_02_sequences_begin_at_one_and_have_no_hole
                "a stream's entries get consecutive sequences, from 1 and without a hole" append::consecutive;
            3 store_03_what_is_ok_is_visible_to_every_read
                "what is Ok is visible to every later read" append::visible_at_once;
            3 store_03_what_is_ok_is_visible_to_other_handles
                "what is Ok is visible to every later read, of others too" append::visible_to_another;
            3 store_03_what_is_ok_outlives_a_crash
                "what is Ok outlives a crash of a durable store" append::outlives_a_crash;
        }
    };
}

/// The tests of the contract of [`MessageStore`](firehose_core::MessageStore), in its order.
pub fn store_clauses() -> &'static [Clause<dyn StoreFixture>] {
    __firehose_store_clauses!({ clause_table } ["MessageStore", dyn StoreFixture])
}
