//! The contracts of `Notifier`, of `Listener`, and of a session's two halves.

mod control;
mod events;
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
            Notifier 1 notifier_01_who_listens_hears_it
                "who listens before a call hears what it sends" notifier::who_listens_hears;
            Notifier 2 notifier_02_equal_notifications_all_arrive
                "equal notifications of one call all arrive" notifier::equal_ones;
            Notifier 3 notifier_03_a_channels_order_is_kept
                "notifications on one channel arrive in the order given" notifier::order;
            Notifier 4 notifier_04_the_longest_payload_is_whole_and_a_longer_one_refused
                "the longest payload is sent whole, and with a longer one nothing is sent" notifier::payloads;
            Notifier 5 notifier_05_what_is_sent_again_arrives_again
                "what is sent again arrives again" notifier::again;
            Notifier 6 notifier_06_it_depends_on_no_listener
                "a notifier depends on no listener" notifier::nobody_listens;
            Notifier 7 notifier_07_a_dropped_call_disturbs_nothing
                "notify may be dropped at any poll" notifier::dropped;
        }
    };
}

/// The one list of the clauses of `Listener` and of a session's halves, for whoever makes something of them.
#[doc(hidden)]
#[macro_export]
macro_rules! __firehose_listener_clauses {
    ({ $($then:tt)+ } $given:tt) => {
        $($then)+! { $given
            Listener 1 listener_01_each_session_is_one_of_its_own
                "connect gives a session of its own each time" listener::of_its_own;
            Listener 2 listener_02_a_session_listens_on_nothing_at_first
                "a session listens on nothing at first" listener::nothing_at_first;
            Listener 3 listener_03_dropping_a_half_ends_the_session
                "dropping either half of a session ends it at once" listener::dropped_half;
            Listener 4 listener_04_a_dropped_connect_leaves_no_session
                "a dropped connect leaves no session" listener::dropped_connect;
            ListenControl 1 control_01_what_commits_after_listen_is_heard
                "after listen, what commits later is heard, whenever it was begun" control::later_commit;
            ListenControl 1 control_01_listen_does_not_wait_for_the_next_event
                "after listen, what commits later is heard, also by who waits for events already" control::beside_the_wait;
            ListenControl 2 control_02_listening_twice_changes_nothing
                "listen and unlisten are idempotent" control::twice;
            ListenControl 3 control_03_after_unlisten_nothing_is_heard
                "after unlisten, nothing that is sent later is heard" control::unlisten;
            ListenControl 4 control_04_after_an_error_the_session_goes_on
                "after an error, what is not lost goes on" control::after_an_error;
            ListenControl 5 control_05_a_ping_is_answered_while_the_session_lives
                "ping gets a real answer" control::ping;
            ListenControl 6 control_06_registered_says_what_is_listened_to
                "registered says what the session listens to" control::registered;
            ListenControl 7 control_07_close_ends_the_events
                "after close, events ends with Lost" control::close;
            ListenControl 8 control_08_a_dropped_command_may_be_repeated
                "every command may be dropped at any poll" control::dropped;
            ListenEvents 1 events_01_they_come_in_their_order
                "events come in the order of their arrival" events::order;
            ListenEvents 1 events_01_next_waits
                "next waits where there is nothing" events::waits;
            ListenEvents 2 events_02_after_lost_there_is_nothing_more
                "after Lost there is nothing more" events::after_lost;
            ListenEvents 3 events_03_a_dropped_next_loses_nothing
                "a dropped next loses no event" events::dropped;
            ListenEvents 4 events_04_who_does_not_keep_up_is_lost
                "a session never goes on with a hole" events::overflow;
        }
    };
}

/// The tests of the contract of [`Notifier`](firehose_core::Notifier), in its order.
pub fn notifier_clauses() -> &'static [Clause<dyn TransportFixture>] {
    __firehose_notifier_clauses!({ clause_table } [dyn TransportFixture])
}

/// The tests of the contracts of [`Listener`](firehose_core::Listener) and a session's halves, in their order.
pub fn listener_clauses() -> &'static [Clause<dyn TransportFixture>] {
    __firehose_listener_clauses!({ clause_table } [dyn TransportFixture])
}
