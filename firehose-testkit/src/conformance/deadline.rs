//! How long a clause may take.

use std::time::Duration;

/// Long enough for a busy machine, and short enough to be waited for.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// How long one step of a clause may take, where the clause has more to say than that it hangs.
const STEP: Duration = Duration::from_secs(10);

/// What `work` gives, `None` where it takes longer than [`DEADLINE`].
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> Option<T> {
    at_most(DEADLINE, work).await
}

/// What one step of a clause gives, `None` where it takes too long.
pub(crate) async fn step<T>(work: impl Future<Output = T>) -> Option<T> {
    at_most(STEP, work).await
}

#[allow(clippy::disallowed_methods, reason = "a backend that hangs must fail, and it may have no clock")]
async fn at_most<T>(time: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(time, work).await.ok()
}
