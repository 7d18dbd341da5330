//! What the tests stand on: a private cluster, a database a test, a proxy that can go silent.

use std::time::Duration;

mod cluster;
mod database;
mod owner;
mod pgbouncer;
mod proxy;
#[cfg(feature = "cli")]
mod running;

pub(crate) use cluster::{Cluster, PASSWORD, Shared};
pub(crate) use database::{GEM, TestDatabase, run};
pub(crate) use pgbouncer::{PgBouncer, Pooling, keeps_statements};
pub(crate) use proxy::Proxy;
#[cfg(feature = "cli")]
pub(crate) use running::{Running, cut};

/// Which tables a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Made here.
    Fresh,
    /// Made by the gem, with 32-bit sequences, and adopted.
    Adopted,
    /// None yet.
    Empty,
}

/// Runs a test on the tables that are made here and on those of the gem.
macro_rules! both_shapes {
    ($($(#[$meta:meta])* async fn $name:ident($db:ident) $body:block)+) => {$(
        $(#[$meta])*
        mod $name {
            use super::*;
            async fn test($db: $crate::harness::TestDatabase) $body
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn fresh() {
                $crate::harness::run($crate::harness::Shape::Fresh, test).await;
            }
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn adopted() {
                $crate::harness::run($crate::harness::Shape::Adopted, test).await;
            }
        }
    )+};
}
pub(crate) use both_shapes;

/// Waits for something that the server does in its own time, by looking again and again, 10 s at most. Only where nothing
/// tells: what a message, an answer, an event of the engine or a process says is waited for as such.
#[allow(clippy::disallowed_methods, reason = "the server has no event to wait for")]
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    for _ in 0..500 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what} did not happen within 10 s");
}

/// Whether the long forms of cases were asked for: `scripts/test --full`.
pub(crate) fn full() -> bool {
    std::env::var_os("TEST_FULL").is_some_and(|value| !value.is_empty() && value != "0")
}

/// What `work` gives within `seconds`.
pub(crate) async fn within<T>(seconds: u64, work: impl Future<Output = T>) -> T {
    match waited(Duration::from_secs(seconds), work).await {
        Some(done) => done,
        None => panic!("nothing within {seconds} s"),
    }
}

/// What `work` gives, or `None` for a caller who loses patience first.
#[allow(clippy::disallowed_methods, reason = "a test that hangs must fail, and a caller's patience is real time")]
pub(crate) async fn waited<T>(patience: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(patience, work).await.ok()
}
