//! How long a clause may take.

use std::time::Duration;

/// Long enough for a busy machine, and short enough to be waited for.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// What `work` gives, `None` where it takes longer than [`DEADLINE`].
#[allow(clippy::disallowed_methods, reason = "a backend that hangs must fail, and it may have no clock")]
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(DEADLINE, work).await.ok()
}
