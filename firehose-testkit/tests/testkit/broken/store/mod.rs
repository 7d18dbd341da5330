//! Broken stores.

mod append;
mod broken;
mod changes;
mod mapping;
mod reads;
mod removals;

use firehose_testkit::conformance::store_clauses;

use super::faults;
use broken::{Broken, Fault};

faults! {
    store_clauses, Broken::boxed;

    errors_come_after_the_successes RefusedLast => "store_01_each_entry_has_its_own_result"
        ["expected [None, Some(InvalidData), None, None, None]"];
    a_refused_entry_takes_a_sequence HoleAfterRefused => "store_02_sequences_begin_at_one_and_have_no_hole"
        ["after another append of b, a: the sequences: saw [3, 5], expected [2, 4]"];
    a_reading_leaves_out_messages_with_a_key KeysAreNotReadBack => "store_03_what_is_ok_is_visible_to_every_read"
        ["`read_before` the end: saw []"];
    another_handle_reads_from_a_cache StaleHandle => "store_03_what_is_ok_is_visible_to_other_handles"
        ["append 2 by one handle, read by another: saw []"];
    a_crash_loses_what_was_stored_last LostByCrash => "store_03_what_is_ok_outlives_a_crash"
        ["after a crash, what was stored before it: saw []"];
    commits_overtake_each_other CommitsOutOfOrder => "store_04_a_visible_sequence_implies_those_before_it"
        ["while writers append, a read of the whole stream: saw [", "], expected [1, "];
    ids_do_not_follow_the_order DescendingIds => "store_05_ids_rise_with_the_sequence"
        ["sequence 1 of \"a\" has the id 999998, and 2 has 999996"];
    ids_begin_anew_in_an_empty_store ReusedIds => "store_05_ids_are_never_given_out_twice"
        ["after a trim to nothing, the id 1 is given out a second time"];
    keys_are_of_the_whole_store KeysOfTheStore => "store_06_a_repeated_key_gives_the_first_message"
        ["saw [(1, \"first\"), (1, \"first\"), (1, \"first\"), "];
    keys_are_looked_up_before_they_are_stored KeyRace => "store_06_a_key_repeated_at_the_same_time_is_stored_once"
        ["four callers append one key at the same time: saw [", "expected one message"];
    a_held_stream_blocks_the_whole_call SkipBlocksAll => "store_07_skip_leaves_out_what_another_holds"
        ["saw [Some(StreamBlocked), Some(StreamBlocked), "];
    who_waits_gets_an_error_at_once WaitGivesUp => "store_07_wait_waits_for_what_another_holds"
        ["an append with Wait ended: [Err("];
    messages_are_given_from_a_cache CachedMessages => "store_08_get_many_gives_what_is_visible"
        ["saw [\"deleted\", \"1\", \"2\", \"3\"], expected [\"2\", \"3\"]"];
    a_cursor_of_another_epoch_reads_by_its_sequence AfterAnyEpoch => "store_09_read_after_begins_at_the_position"
        ["the page of a after sequence 3 of another epoch: saw [\"4\"], expected [\"1\", \"2\", \"3\", \"4\"]"];
    a_page_counts_characters CharactersForBytes => "store_09_read_after_is_limited_by_rows_and_bytes"
        ["with at most 9 rows and 7 bytes: (messages, more): saw [(3, true), "];
    a_position_of_another_epoch_reads_back_by_its_sequence BeforeAnyEpoch => "store_10_read_before_ends_at_the_position"
        ["`read_before` sequence 3 of another epoch: saw ([\"1\", \"2\"], false), expected ([], false)"];
    a_reading_back_begins_with_the_oldest OldestBefore => "store_10_read_before_gives_the_newest"
        ["saw ([1, 2], true), expected ([4, 5], true)"];
    a_name_that_is_asked_twice_has_one_head OneHeadAName => "store_11_heads_tell_the_last_commit"
        ["the cheap heads of a, nobody, b, a: saw ["];
    a_head_is_the_last_message_retained HeadOfTheRetained => "store_11_trimming_lowers_no_head"
        ["after all three were trimmed, the full head: saw Some(Head { ", "sequence: Sequence(0)"];
    heads_are_read_one_by_one HeadsOneByOne => "store_11_heads_come_from_one_snapshot"
        ["the heads of [\"", "which never was"];
    a_cursors_time_is_not_compared AnchorsWithoutTime => "store_12_anchors_compare_cursors_with_their_rows"
        ["the anchor of one with a time that is 1 µs later", "saw Same, expected Other"];
    a_budget_that_is_just_enough_says_more MoreAtTheBudget => "store_13_trim_removes_a_prefix_within_its_budget"
        ["saw Trimmed { messages: 2, more: true }, expected Trimmed { messages: 2, more: false }"];
    a_trim_looks_at_no_least_age NoLeastAge => "store_13_trim_goes_by_age"
        ["max_age 1 h, min_age 3 h: how many went, what is left: saw (3, [4, 5]), expected (0, [1, 2, 3, 4, 5])"];
    a_trim_of_all_counts_over_all_streams AllTogether => "store_13_trim_of_all_goes_by_stream"
        ["the same with a budget of 99: saw Trimmed { messages: 4, more: false }"];
    a_trim_takes_the_streams_lock TrimLocks => "store_13_trim_waits_for_no_publisher"
        ["it hangs: nothing more within 20s"];
    a_trim_counts_what_came_meanwhile_twice TrimCountsTwice => "store_13_trim_beside_appends_keeps_the_newest"
        ["the head was ", "and a trim to the newest 5 left ["];
    a_trim_begins_with_the_newest NewestGoFirst => "store_13_trim_beside_reads_leaves_no_hole"
        ["beside a trim that leaves at least 5 of 60, a read: saw ["];
    keys_outlive_their_stream KeysOutliveStreams => "store_14_a_deleted_stream_begins_anew"
        ["created again, its sequences: saw [1, 1], expected [1, 2]"];
    a_deletion_removes_what_came_after_it TornDeletion => "store_14_deletions_beside_appends_mix_no_epochs"
        ["beside deletions and appends, a read of the stream: (epoch, sequence): saw [(Epoch("];
    epochs_begin_anew_after_a_crash ReusedEpochs => "store_14_an_epoch_is_never_given_out_twice"
        ["after all was deleted and the store opened again, the epoch ", "is given out a second time"];
    an_append_stores_entry_by_entry EntryByEntry => "store_15_a_dropped_append_is_stored_whole_or_not_at_all"
        ["of the 3 entries that attempt 1 (", "had for a: saw the sequences ["];
    a_dropped_wait_stores_its_first_entry WaitGoesOn => "store_15_a_dropped_wait_is_stored_whole_or_not_at_all"
        ["of the 2 entries that attempt 1 had for held: saw the sequences [1]"];
    a_dropped_read_breaks_the_store BrokenByRead => "store_15_a_dropped_read_disturbs_nothing"
        ["an error where there should be none: anchors: a call was dropped"];
    a_dropped_trim_keeps_its_lock TrimLockStays => "store_15_a_dropped_trim_disturbs_nothing"
        ["10000 trims of Stream(", "still say that there is more"];
    a_dropped_deletion_leaves_half HalfDeleted => "store_15_a_dropped_deletion_is_whole_or_not_at_all"
        ["after a deletion was dropped, what is read: saw [2, 3], expected [1, 2]"];
    a_mark_is_remembered_by_the_store MarkOfTheStore => "store_16_changed_since_names_what_changed"
        ["from the earlier mark again: it named Some({", "without [\"before\", \"new\"]"];
    what_is_too_much_to_look_at_is_forgotten BoundForgets => "store_16_changed_since_is_bounded"
        ["21 were stored, and 5 may be looked at: it named Some({}), without [\"many\", \"last\"]"];
    the_highest_id_that_was_seen_is_taken_for_safe HighestIdIsSafe => "store_16_changed_since_finds_late_commits"
        ["committed after 1 later ones", "without [\"late\"]"];
    another_stores_mark_stands_for_now ForeignMarkIsNow => "store_16_changed_since_knows_its_marks"
        ["a mark of another store: it named Some({}), without [\"a\"]"];
}
