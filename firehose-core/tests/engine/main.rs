//! The engine on the in-memory backend, with faults, on virtual time.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod announcing;
mod chaos;
mod delivering;
mod field;
mod fleet;
mod gem_assertions;
mod gem_assertions_server;
mod gem_backpressure;
mod gem_loss;
mod gem_publishing;
mod gem_state;
mod lagging;
mod lifecycle;
mod listening;
mod publishing;
mod queues;
mod resets;
mod retention;
mod starting;
mod supervision;
mod sweeping;
mod vectors;

use std::time::Duration;

use firehose_core::*;
use firehose_testkit::Testkit;

/// An engine on the testkit's clock, with a seed.
async fn engine(testkit: &Testkit) -> Firehose {
    engine_with(testkit, Config::default()).await
}

async fn engine_with(testkit: &Testkit, config: Config) -> Firehose {
    Firehose::builder(testkit.backend()).config(config).clock(testkit.clock()).seed(7).start().await.unwrap()
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// What the subscription has to say now, in short, without waiting longer than `within` of virtual time.
async fn said_within(testkit: &Testkit, subscription: &mut Subscription, within: Duration) -> Vec<String> {
    let mut said = Vec::new();
    let mut rest = within;
    let mut quiet = 0;
    loop {
        testkit.clock().idle().await;
        quiet += 1;
        while let Some(delivery) = futures_util::FutureExt::now_or_never(subscription.next()) {
            let Some(delivery) = delivery else { return said };
            said.push(tell(&delivery));
            quiet = 0;
        }
        // A poll may only have begun a read: what it brings comes with the next.
        if quiet < 3 {
            continue;
        }
        if rest.is_zero() {
            return said;
        }
        let step = rest.min(ms(50));
        testkit.clock().advance(step).await;
        rest -= step;
    }
}

/// As `assert_eq`, but tells of long lists only where they begin to differ.
#[track_caller]
fn assert_said(left: &[String], right: &[String], what: &str) {
    if let Some(at) = (0..left.len().max(right.len())).find(|&at| left.get(at) != right.get(at)) {
        let short = |list: &[String]| {
            list.iter().skip(at).take(5).map(|s| s.chars().take(60).collect()).collect::<Vec<String>>()
        };
        panic!("{what}: at {at} of {} and {}: {:?} is not {:?}", left.len(), right.len(), short(left), short(right));
    }
}

async fn said(testkit: &Testkit, subscription: &mut Subscription) -> Vec<String> {
    said_within(testkit, subscription, Duration::ZERO).await
}

fn tell(delivery: &Delivery) -> String {
    match delivery {
        Delivery::Message(m) => format!("{}:{}", m.sequence, m.data),
        Delivery::Gap(g) => format!("gap {}-{}{}", g.from, g.to, if g.exact { "" } else { " at most" }),
        Delivery::Reset(r) => format!("reset {:?}", r.reason),
        Delivery::Closed(why) => format!("closed {why:?}"),
        other => format!("{other:?}"),
    }
}

/// `1:x 2:x …` for the sequences given.
fn numbered(sequences: impl IntoIterator<Item = i64>) -> Vec<String> {
    sequences.into_iter().map(|s| format!("{s}:{s}")).collect()
}

/// Broadcasts the sequences as data on `stream`.
async fn broadcast_numbers(firehose: &Firehose, stream: &str, numbers: impl IntoIterator<Item = i64>) {
    for n in numbers {
        assert_eq!(firehose.broadcast(stream, n.to_string()).await.unwrap().sequence, Sequence(n));
    }
}
