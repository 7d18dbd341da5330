//! What the tests stand on: a private cluster, a database a test, a proxy that can go silent.

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

/// Waits for something that the server does in its own time.
#[allow(clippy::disallowed_methods, reason = "the server has no event to wait for")]
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    for _ in 0..500 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("{what} did not happen within 10 s");
}

/// What `work` gives within `seconds`.
#[allow(clippy::disallowed_methods, reason = "a test that hangs must fail")]
pub(crate) async fn within<T>(seconds: u64, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(std::time::Duration::from_secs(seconds), work).await {
        Ok(done) => done,
        Err(_) => panic!("nothing within {seconds} s"),
    }
}
