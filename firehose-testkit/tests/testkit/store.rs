//! What the in-memory store promises beyond the contract of `MessageStore`, which the conformance suite holds.

use std::pin::pin;
use std::time::Duration;

use firehose_core::{Blocked, Capabilities, CleanupThreshold, Layout, MessageStore, NewMessage, Settings, Timestamp};
use firehose_testkit::{ManualClock, Testkit};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_message_has_the_time_of_the_manual_clock() {
    let testkit = Testkit::new(1);
    testkit.clock().advance(Duration::from_micros(1_500_001)).await;
    let message = append(&*store(&testkit), "a", &["x"]).await.remove(0);
    assert_eq!(message.created_at, Some(Timestamp(ManualClock::WALL_AT_ORIGIN.0 + 1_500_001)));
    assert_eq!(store(&testkit).capabilities(), Capabilities::MEMORY);
}

#[tokio::test(start_paused = true)]
async fn an_append_that_is_dropped_while_it_waits_leaves_no_lock_and_no_place_in_a_queue() {
    let testkit = Testkit::new(1);
    let store = store(&testkit);
    let mut foreign = testkit.database().begin();
    foreign.append("held", "1").await.unwrap();
    let entries = [entry("held", "x"), entry("free", "1"), entry("free", "2")];
    {
        let mut dropped = pin!(store.append(&entries, Blocked::Wait));
        tokio::select! {
            biased;
            _ = &mut dropped => panic!("it does not wait"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(testkit.database().waiting_count(), 1);
        assert_eq!(sequences(&testkit.database().messages("free")), [1, 2], "who waits holds up nobody else's entries");
    }
    assert_eq!(testkit.database().waiting_count(), 0);
    foreign.commit().unwrap();
    assert_eq!(testkit.database().held_count(), 0);
    assert_eq!(sequences(&testkit.database().messages("held")), [1]);
}

#[tokio::test(start_paused = true)]
async fn epochs_hang_on_the_seed_and_are_never_repeated() {
    let epochs = async |seed| {
        let testkit = Testkit::new(seed);
        let entries: Vec<NewMessage> = (0..50).map(|n| entry(&format!("s{n}"), "x")).collect();
        let stored = store(&testkit).append(&entries, Blocked::Skip).await;
        stored.into_iter().map(|m| m.unwrap().channel_id.0).collect::<Vec<_>>()
    };
    let first = epochs(1).await;
    assert_eq!(first, epochs(1).await);
    assert_ne!(first, epochs(2).await);
    assert!(first.iter().all(|&e| e > 0 && e < 1 << 53));
    assert_eq!(first.iter().collect::<std::collections::HashSet<_>>().len(), 50);
}

#[tokio::test(start_paused = true)]
async fn settings_are_those_of_the_database() {
    let testkit = Testkit::new(1);
    let store = store(&testkit);
    assert_eq!(store.settings().await.unwrap(), Settings::default());
    let settings = Settings::default().with_prefix("blue").with_layout(Layout::Buckets, 16);
    let settings = settings.with_gem(false).with_cleanup_threshold(CleanupThreshold::Newest(7));
    testkit.database().set_settings(settings.clone());
    assert_eq!(store.settings().await.unwrap(), settings);
}
