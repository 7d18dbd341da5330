//! The contract of `MessageStore`.

mod append;
mod cancel;
mod delete;
mod fixture;
mod heads;
mod held;
mod keys;
mod order;
mod read;
mod trim;
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
            MessageStore 1 store_01_each_entry_has_its_own_result
                "each entry has its own result, and a bad one fails alone" append::results_of_their_own;
            MessageStore 2 store_02_sequences_begin_at_one_and_have_no_hole
                "a stream's entries get consecutive sequences, from 1 and without a hole" append::consecutive;
            MessageStore 3 store_03_what_is_ok_is_visible_to_every_read
                "what is Ok is visible to every later read" append::visible_at_once;
            MessageStore 3 store_03_what_is_ok_is_visible_to_other_handles
                "what is Ok is visible to every later read, of others too" append::visible_to_another;
            MessageStore 3 store_03_what_is_ok_outlives_a_crash
                "what is Ok outlives a crash of a durable store" append::outlives_a_crash;
            MessageStore 4 store_04_a_visible_sequence_implies_those_before_it
                "a visible sequence implies those before it" order::no_hole_is_seen;
            MessageStore 5 store_05_ids_rise_with_the_sequence
                "the id rises with the sequence" order::ids_rise;
            MessageStore 5 store_05_ids_are_never_given_out_twice
                "an id is never given out twice" order::ids_are_given_once;
            MessageStore 6 store_06_a_repeated_key_gives_the_first_message
                "a repeated key gives the message that was stored first" keys::the_first_is_given;
            MessageStore 6 store_06_a_key_repeated_at_the_same_time_is_stored_once
                "a repeated key gives the message that was stored first, also to callers at the same time"
                keys::repeats_at_the_same_time;
            MessageStore 7 store_07_skip_leaves_out_what_another_holds
                "with Skip, what another transaction holds is left out" held::skip_leaves_out;
            MessageStore 7 store_07_wait_waits_for_what_another_holds
                "with Wait, the call waits for what another transaction holds" held::wait_waits;
            MessageStore 8 store_08_get_many_gives_what_is_visible
                "get_many gives what is visible" read::get_many;
            MessageStore 9 store_09_read_after_begins_at_the_position
                "read_after gives the messages after the position" read::after_positions;
            MessageStore 9 store_09_read_after_is_limited_by_rows_and_bytes
                "read_after gives at most as the limit says" read::after_limits;
            MessageStore 10 store_10_read_before_ends_at_the_position
                "read_before gives the messages before the position" read::before_positions;
            MessageStore 10 store_10_read_before_gives_the_newest
                "read_before gives the newest" read::before_limits;
            MessageStore 11 store_11_heads_tell_the_last_commit
                "a head's sequence is that of the last message committed" heads::heads;
            MessageStore 11 store_11_trimming_lowers_no_head
                "trimming does not lower a head" heads::trimming_lowers_no_head;
            MessageStore 11 store_11_heads_come_from_one_snapshot
                "heads come from one snapshot" heads::one_snapshot;
            MessageStore 12 store_12_anchors_compare_cursors_with_their_rows
                "anchors compare each cursor with its row" heads::anchors;
            MessageStore 13 store_13_trim_removes_a_prefix_within_its_budget
                "trim removes a prefix, at most the budget" trim::a_prefix_within_the_budget;
            MessageStore 13 store_13_trim_goes_by_age
                "trim removes what is too old, and leaves what is too young" trim::ages;
            MessageStore 13 store_13_trim_of_all_goes_by_stream
                "trim of all streams goes by each of them" trim::all_streams;
            MessageStore 13 store_13_trim_waits_for_no_publisher
                "trim never waits for a publisher" trim::waits_for_nobody;
            MessageStore 13 store_13_trim_beside_appends_keeps_the_newest
                "trim removes a prefix, beside appends too" trim::beside_appends;
            MessageStore 13 store_13_trim_beside_reads_leaves_no_hole
                "trim removes a prefix, to the eyes of readers too" trim::beside_reads;
            MessageStore 14 store_14_a_deleted_stream_begins_anew
                "a deleted stream begins anew, in another epoch" delete::begins_anew;
            MessageStore 14 store_14_deletions_beside_appends_mix_no_epochs
                "a deleted stream goes with all its messages, and no other" delete::beside_appends;
            MessageStore 14 store_14_an_epoch_is_never_given_out_twice
                "created again it has another epoch, after a crash too" delete::epochs_are_given_once;
            MessageStore 15 store_15_a_dropped_append_is_stored_whole_or_not_at_all
                "a dropped append is stored as a whole, stream by stream, or not at all" cancel::append_whole_or_not;
            MessageStore 15 store_15_a_dropped_wait_is_stored_whole_or_not_at_all
                "a dropped append that waited is stored as a whole or not at all" cancel::a_dropped_wait;
            MessageStore 15 store_15_a_dropped_read_disturbs_nothing
                "reads may be dropped at any poll" cancel::reads;
            MessageStore 15 store_15_a_dropped_trim_disturbs_nothing
                "trims may be dropped at any poll" cancel::trims;
            MessageStore 15 store_15_a_dropped_deletion_is_whole_or_not_at_all
                "deletions may be dropped at any poll" cancel::deletions;
        }
    };
}

/// The tests of the contract of [`MessageStore`](firehose_core::MessageStore), in its order.
pub fn store_clauses() -> &'static [Clause<dyn StoreFixture>] {
    __firehose_store_clauses!({ clause_table } [dyn StoreFixture])
}
