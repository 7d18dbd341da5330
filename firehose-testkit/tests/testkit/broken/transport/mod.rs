//! Broken transports.

mod broken;
mod halves;

use firehose_testkit::conformance::{listener_clauses, notifier_clauses};

use super::faults;
use broken::{Broken, Fault};

mod notifier {
    use super::*;

    faults! {
        notifier_clauses, Broken::boxed;

        a_call_goes_to_one_channel OneChannelACall => "notifier_01_who_listens_hears_it"
            ["what a session on channel a hears of 1 (a), 2 (b), 3 (a): saw [\"1\", \"2\", \"3\""];
        equal_ones_of_a_call_are_merged MergedInACall => "notifier_02_equal_notifications_all_arrive"
            ["saw [\"x\"], expected [\"x\", \"x\", \"x\"]"];
        a_call_is_sorted Sorted => "notifier_03_a_channels_order_is_kept"
            ["two calls of 250 on one channel, at place 2 of 500 heard: saw Some(\"10\"), expected Some(\"2\")"];
        a_payload_is_checked_when_its_turn_comes CheckedOneByOne
            => "notifier_04_the_longest_payload_is_whole_and_a_longer_one_refused"
            ["in bytes: saw [8, 7999, 0], expected [7999, 0]"];
        equal_ones_of_two_calls_are_merged MergedAcrossCalls => "notifier_05_what_is_sent_again_arrives_again"
            ["saw [\"x\", \"y\"], expected [\"x\", \"y\", \"x\", \"y\", \"x\", \"y\"]"];
        it_wants_somebody_to_listen WantsAListener => "notifier_06_it_depends_on_no_listener"
            ["an error where there should be none: notify: nobody listens"];
        a_dropped_call_breaks_it BrokenByDrop => "notifier_07_a_dropped_call_disturbs_nothing"
            ["an error where there should be none: notify: a call was dropped"];
    }
}

mod listener {
    use super::*;

    faults! {
        listener_clauses, Broken::boxed;

        closing_one_session_ends_all CloseEndsAll => "listener_01_each_session_is_one_of_its_own"
            ["the session was lost where nothing ended it"];
        a_session_listens_to_what_others_do Inherits => "listener_02_a_session_listens_on_nothing_at_first"
            ["saw \"unheard\", expected \"heard\""];
        the_dropped_events_do_not_end_it EventsStay => "listener_03_dropping_a_half_ends_the_session"
            ["after its events were dropped, a session still takes a LISTEN"];
        a_dropped_connect_leaves_its_session ConnectLeaks => "listener_04_a_dropped_connect_leaves_no_session"
            ["after a connect was dropped at poll 1, how many sessions the other end has: saw 1, expected 0"];
        a_transaction_goes_to_who_listened_at_its_begin AsOfItsBegin => "control_01_what_commits_after_listen_is_heard"
            ["saw [], expected [\"begun before\"]"];
        a_listen_waits_for_the_events AfterTheWait => "control_01_listen_does_not_wait_for_the_next_event"
            ["it hangs: nothing more within 20s"];
        an_unlisten_of_what_is_not_listened_to_fails UnlistenFails => "control_02_listening_twice_changes_nothing"
            ["an error where there should be none: unlisten: never is not listened to"];
        unlisten_does_nothing DeafUnlisten => "control_03_after_unlisten_nothing_is_heard"
            ["saw [\"after\"], expected []"];
        an_error_ends_the_session LostByAnError => "control_04_after_an_error_the_session_goes_on"
            ["the session was lost where nothing ended it"];
        a_ping_is_answered_by_nobody FalsePing => "control_05_a_ping_is_answered_while_the_session_lives"
            ["a session that was closed answers a ping"];
        registered_says_what_anybody_listens_to AnybodysChannels => "control_06_registered_says_what_is_listened_to"
            ["saw [\"a\", \"b\", \"c\", \"d\"], expected [\"a\", \"b\", \"c\"]"];
        a_closed_session_hears_on HearsOn => "control_07_close_ends_the_events" ["saw [\"2\", \"3\", \"too late\"] after it"];
        a_dropped_command_breaks_the_session BrokenByCommand => "control_08_a_dropped_command_may_be_repeated"
            ["an error where there should be none: listen: a command was dropped"];
        each_channel_has_a_queue_of_its_own QueueAChannel => "events_01_they_come_in_their_order"
            ["saw [\"0\", \"2\", \"4\""];
        who_waits_is_not_woken NotWoken => "events_01_next_waits" ["a `next` that waits is not woken by a notification"];
        the_second_lost_never_comes LostOnce => "events_02_after_lost_there_is_nothing_more"
            ["it hangs: nothing more within 20s"];
        a_dropped_next_takes_the_event_with_it TakesItAlong => "events_03_a_dropped_next_loses_nothing"
            ["saw \"1\", expected \"0\""];
        a_queue_that_is_full_forgets_the_oldest ForgetsTheOldest => "events_04_who_does_not_keep_up_is_lost"
            ["saw 00500, expected 00000 or Lost"];
    }
}
