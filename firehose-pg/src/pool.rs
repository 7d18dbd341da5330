//! sea-orm's pool, behind a handle that can be swapped.
//!
//! sqlx' pool does not recover from a network that went silent. So every call has a deadline, and where one passes, or
//! the engine saw its session lost, the whole pool is replaced, and who only reads goes on with the new one at once.
//! Where nobody's deadline passes, since callers went away before, `revive` frees the places one by one.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use firehose_core::Step;
use sea_orm::sqlx::postgres::PgPoolOptions;
use sea_orm::{DatabaseConnection, DbErr, SqlxPostgresConnector};
use tokio::sync::watch;

use crate::deadline::Deadline;
use crate::error::Cause;
use crate::revive::Revive;
use crate::session::Dialler;
use crate::target::Address;

/// How long a connection may be idle before it is asked whether it lives.
const TRUST: Duration = Duration::from_secs(1);

/// How often a read is repeated that the server could not serialise.
const REPEATS: usize = 5;

/// A write on a server that takes none any more (`read_only_sql_transaction`).
const DEMOTED: &str = "25006";

/// What to do where a connection turns out to be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Repeat the work on new connections, once: it only reads.
    Repeat,
    /// Tell the caller.
    Tell,
}

/// The connections that the store reads through.
pub(crate) struct Pool {
    dialler: Arc<Dialler>,
    /// Where the last good connection was made, for the driver that knows no second host.
    address: Mutex<Address>,
    size: u32,
    timeout: Duration,
    current: watch::Sender<Arc<DatabaseConnection>>,
    /// There as long as anybody wants connections.
    wanted: Arc<()>,
}

impl Pool {
    /// A pool of at most `size` connections to `address`; none is opened yet.
    pub(crate) fn new(dialler: Arc<Dialler>, address: Address, size: usize, timeout: Duration) -> Self {
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let wanted = Arc::new(());
        let current = watch::Sender::new(Arc::new(open(&dialler, &address, size, timeout, Arc::downgrade(&wanted))));
        Self { dialler, address: Mutex::new(address), size, timeout, current, wanted }
    }

    /// The connections of the moment.
    pub(crate) fn current(&self) -> Arc<DatabaseConnection> {
        self.current.borrow().clone()
    }

    /// Drops all connections, those that hang too, and finds out anew which host takes writes where there are several.
    pub(crate) async fn replace(&self) {
        if self.dialler.target.addresses.len() > 1
            && let Ok(dialled) = self.dialler.dial().await
        {
            *self.address.lock().unwrap_or_else(PoisonError::into_inner) = dialled.address;
        }
        self.swap();
    }

    fn swap(&self) {
        let address = self.address.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let wanted = Arc::downgrade(&self.wanted);
        self.current.send_replace(Arc::new(open(&self.dialler, &address, self.size, self.timeout, wanted)));
    }

    /// Runs `work` under a deadline. Where the deadline passes, the pool is replaced; where a plan went stale, or as `lost`
    /// says, `work` is repeated once on new connections, also while it waits and the pool is replaced under it; where the
    /// server could not serialise it, it is repeated as it is.
    pub(crate) async fn run<T, F>(
        &self,
        step: Step,
        lost: Lost,
        work: impl Fn(Arc<DatabaseConnection>) -> F,
    ) -> Result<T, Cause>
    where
        F: Future<Output = Result<T, DbErr>>,
    {
        let deadline = Deadline::after(self.timeout);
        let mut renewed = false;
        let mut repeats = 0;
        loop {
            let pool = self.current();
            let mut replaced = self.current.subscribe();
            let done = tokio::select! {
                biased;
                done = deadline.bound(work(pool.clone())) => done,
                // Its connection may be one that hangs.
                _ = replaced.wait_for(|current| !Arc::ptr_eq(current, &pool)), if lost == Lost::Repeat && !renewed => {
                    renewed = true;
                    continue;
                }
            };
            let Some(done) = done else {
                self.swap_if(&pool);
                return Err(Cause::Late(step));
            };
            let cause = match done {
                Ok(value) => return Ok(value),
                Err(e) => Cause::from(e),
            };
            let again = cause.is_stale_plan() || (lost == Lost::Repeat && cause.ends_session());
            if again && !renewed {
                renewed = true;
                self.swap_if(&pool);
            } else if cause.code() == Some("40001") && repeats < REPEATS {
                repeats += 1;
            } else {
                if cause.code() == Some(DEMOTED) {
                    deadline.bound(self.replace()).await.unwrap_or_default();
                } else if cause.ends_session() {
                    self.swap_if(&pool);
                }
                return Err(cause);
            }
        }
    }

    /// Replaces `pool` unless someone did so already.
    fn swap_if(&self, pool: &Arc<DatabaseConnection>) {
        if Arc::ptr_eq(pool, &self.current()) {
            self.swap();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("address", &self.address).field("size", &self.size).finish_non_exhaustive()
    }
}

/// A connection pool that opens its first connection when it is needed.
pub(crate) fn open(
    dialler: &Dialler,
    address: &Address,
    size: u32,
    timeout: Duration,
    wanted: Weak<()>,
) -> DatabaseConnection {
    let options = dialler.target.sqlx_options(address, dialler.tls.pem.as_deref());
    let revive = Arc::new(Revive { options: options.clone(), wanted });
    let on_release = revive.clone();
    let pool = PgPoolOptions::new()
        .max_connections(size)
        .acquire_timeout(timeout)
        // Both close connections without a time limit.
        .max_lifetime(None)
        .idle_timeout(None)
        .test_before_acquire(false)
        .before_acquire(move |connection, meta| {
            let revive = revive.clone();
            Box::pin(async move { Ok(meta.idle_for < TRUST || revive.check(connection).await) })
        })
        .after_release(move |connection, _| {
            let revive = on_release.clone();
            Box::pin(async move { Ok(revive.check(connection).await) })
        })
        .connect_lazy_with(options);
    SqlxPostgresConnector::from_sqlx_postgres_pool(pool)
}
