//! sea-orm's pool, behind a handle that can be swapped.
//!
//! sqlx' pool does not recover from a network that went silent: giving a connection back pings it, with no time limit
//! and with its place taken. So every call has a deadline, and where one passes, the whole pool is replaced.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use firehose_core::Step;
use sea_orm::sqlx::postgres::PgPoolOptions;
use sea_orm::{DatabaseConnection, DbErr, SqlxPostgresConnector};

use crate::deadline::Deadline;
use crate::error::Cause;
use crate::session::Dialler;
use crate::target::Address;

/// How long a connection may be idle before it is asked whether it lives.
const TRUST: Duration = Duration::from_secs(5);

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
    current: ArcSwap<DatabaseConnection>,
}

impl Pool {
    /// A pool of at most `size` connections to `address`; none is opened yet.
    pub(crate) fn new(dialler: Arc<Dialler>, address: Address, size: usize, timeout: Duration) -> Self {
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let current = ArcSwap::from_pointee(open(&dialler, &address, size, timeout));
        Self { dialler, address: Mutex::new(address), size, timeout, current }
    }

    /// The connections of the moment.
    pub(crate) fn current(&self) -> Arc<DatabaseConnection> {
        self.current.load_full()
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
        self.current.store(Arc::new(open(&self.dialler, &address, self.size, self.timeout)));
    }

    /// Runs `work` under a deadline. Where the deadline passes, the pool is replaced; where a plan went stale, or as `lost`
    /// says, `work` is repeated once on new connections; where the server could not serialise it, it is repeated as it is.
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
            let Some(done) = deadline.bound(work(pool.clone())).await else {
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
        if Arc::ptr_eq(pool, &self.current.load()) {
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
pub(crate) fn open(dialler: &Dialler, address: &Address, size: u32, timeout: Duration) -> DatabaseConnection {
    let options = dialler.target.sqlx_options(address, dialler.tls.pem.as_deref());
    let pool = PgPoolOptions::new()
        .max_connections(size)
        .acquire_timeout(timeout)
        // Both close connections without a time limit.
        .max_lifetime(None)
        .idle_timeout(None)
        .test_before_acquire(false)
        .before_acquire(|connection, meta| {
            Box::pin(async move {
                if meta.idle_for < TRUST {
                    return Ok(true);
                }
                let ping = sea_orm::sqlx::Connection::ping(connection);
                Ok(Deadline::after(TRUST).bound(ping).await.is_some_and(|answer| answer.is_ok()))
            })
        })
        .connect_lazy_with(options);
    SqlxPostgresConnector::from_sqlx_postgres_pool(pool)
}
