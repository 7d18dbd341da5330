//! Counters and gauges: in a snapshot, and through the `metrics` facade.
//!
//! In the facade each is `firehose_` and its key; counters end in `_total`, exist at 0 from the start, and have no label.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// A number that only grows, kept here and told to the facade.
pub(crate) struct Counter {
    value: AtomicU64,
    facade: metrics::Counter,
}

impl Counter {
    fn new(name: &'static str) -> Self {
        let facade = metrics::counter!(name);
        facade.absolute(0);
        Self { value: AtomicU64::new(0), facade }
    }

    pub(crate) fn add(&self, n: u64) {
        if n > 0 {
            self.value.fetch_add(n, Ordering::Relaxed);
            self.facade.increment(n);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
}

macro_rules! metrics_table {
    (
        counters { $($(#[$cdoc:meta])* $counter:ident => $name:literal,)* }
        gauges { $($(#[$gdoc:meta])* $gauge:ident: $t:ty,)* }
    ) => {
        /// Every counter of an engine.
        pub(crate) struct Counters { $(pub(crate) $counter: Counter,)* }

        impl Counters {
            /// Made when an engine starts, so that a recorder installed before that hears all of it.
            pub(crate) fn new() -> Self {
                Self { $($counter: Counter::new($name),)* }
            }
        }

        /// What is read off an engine at one moment.
        #[derive(Debug, Clone, Default)]
        pub(crate) struct Gauges { $(pub(crate) $gauge: $t,)* }

        /// Every key with its value at one moment: the gauges, then the counters since the start.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[non_exhaustive]
        pub struct MetricsSnapshot {
            $($(#[$gdoc])* pub $gauge: $t,)*
            $($(#[$cdoc])* pub $counter: u64,)*
        }

        impl MetricsSnapshot {
            pub(crate) fn new(counters: &Counters, gauges: Gauges) -> Self {
                Self { $($gauge: gauges.$gauge,)* $($counter: counters.$counter.get(),)* }
            }

            /// Tells the facade's gauges.
            pub(crate) fn publish(&self) {
                $(metrics::gauge!(concat!("firehose_", stringify!($gauge))).set(self.$gauge as f64);)*
            }
        }
    };
}

metrics_table! {
    counters {
        /// Messages stored by this engine's broadcasts.
        broadcasts_total => "firehose_broadcasts_total",
        /// Notifications heard.
        notifies_received => "firehose_notifies_received_total",
        /// Calls of the notifier that failed.
        notify_failures => "firehose_notify_failures_total",
        /// Sessions that followed a lost one.
        reconnects_total => "firehose_reconnects_total",
        /// Sessions that were given up because they were silent for too long.
        watchdog_kicks => "firehose_watchdog_kicks_total",
        /// Announcements of stored messages that were dropped because too many waited. Each stream is announced again
        /// when there is room.
        commands_dropped => "firehose_commands_dropped_total",
        /// Messages read from the store after a new session, because their notifications were missed.
        replay_messages_delivered => "firehose_replay_messages_delivered_total",
        /// Messages that only the sweep found.
        sweep_messages_found => "firehose_sweep_messages_found_total",
        /// Gaps told to subscribers.
        gaps_reported => "firehose_gaps_reported_total",
        /// Resets told to subscribers.
        resets_reported => "firehose_resets_reported_total",
        /// Announcements of what had been delivered already.
        duplicates_dropped => "firehose_duplicates_dropped_total",
        /// Announcements that came before an earlier message of their stream, and were held.
        out_of_order_held => "firehose_out_of_order_held_total",
        /// Notifications sent, in so many calls.
        notify_batches => "firehose_notify_batches_total",
        /// Appends sent to the store.
        append_batches => "firehose_append_batches_total",
        /// Old messages that this engine removed.
        messages_trimmed => "firehose_messages_trimmed_total",
        /// Payloads on streams' channels that announce no message.
        payloads_ignored => "firehose_payloads_ignored_total",
    }
    gauges {
        /// Announcements and commands that wait to be sent.
        command_queue_depth: u64,
        /// Channels that should be listened to.
        subscribed_channels: u64,
        /// Seconds since the listening session last showed life.
        seconds_since_heartbeat: f64,
        /// 1 while the engine's tasks run, else 0.
        supervisor_alive: u64,
        /// 1 while sessions are watched, else 0.
        watchdog_alive: u64,
        /// Attempts to connect since the session was lost; 0 with a session.
        reconnects_current: u64,
        /// Subscriptions that read from the store because they fell behind.
        subscribers_behind: u64,
        /// Broadcasts that wait, or are being stored.
        broadcasts_in_flight: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_has_every_key() {
        let counters = Counters::new();
        counters.broadcasts_total.add(2);
        let snapshot = MetricsSnapshot::new(&counters, Gauges { command_queue_depth: 7, ..Gauges::default() });
        let json = serde_json::to_value(&snapshot).unwrap();
        assert_eq!(json["broadcasts_total"], 2);
        assert_eq!(json["command_queue_depth"], 7);
        assert_eq!(json.as_object().unwrap().len(), 24);
    }
}
