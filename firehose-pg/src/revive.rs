//! Pooled connections that went silent, replaced in their place.
//!
//! sqlx pings a connection that is given back, with no time limit and with its place taken, and closes one that it does
//! not want in good order, which over TLS waits for the other end. Behind a network that went silent either lasts until
//! the kernel gives up. So nothing that may be silent is handed back to sqlx: another connection is put where it was.
//! What goes silent in the very moment between our question and that ping keeps its place until a caller's deadline passes
//! or the engine sees its session lost, and the pool is replaced.
//!
//! Nor does sqlx see that a transaction is open whose BEGIN was sent by a caller who did not wait for its answer: whoever
//! got that connection next would work inside it, commit nothing, and hold his locks.

use std::future::pending;
use std::sync::Weak;
use std::time::Duration;

use sea_orm::sqlx::postgres::PgConnectOptions;
use sea_orm::sqlx::{self, ConnectOptions as _, Executor as _, PgConnection, Row as _};

use crate::deadline::Deadline;

/// How long a connection may take to show that it lives.
const PING: Duration = Duration::from_secs(1);

/// How long an attempt to connect may take: one that was begun in the silence must not outlast it by much.
const ATTEMPT: Duration = Duration::from_secs(2);

/// The pause after an attempt that failed; doubled up to the longest.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Whether no transaction was open before this statement began one of its own.
const CLEAN: &str = "SELECT pg_catalog.transaction_timestamp() = pg_catalog.statement_timestamp()";

/// What the connections of a pool are replaced by.
pub(crate) struct Revive {
    pub(crate) options: PgConnectOptions,
    /// Gone when nobody wants connections any more.
    pub(crate) wanted: Weak<()>,
}

impl Revive {
    /// Asks `connection` for a sign of life, ends a transaction that was left open on it, and puts another in its place
    /// where no answer comes. Says whether it can be used: it cannot where it was closed, or where nobody wants
    /// connections any more.
    pub(crate) async fn check(&self, connection: &mut PgConnection) -> bool {
        if let Some(answer) = Deadline::after(PING).bound(clean(connection)).await {
            return answer.is_ok();
        }
        tracing::debug!("a pooled connection went silent");
        let mut pause = PAUSE;
        while self.wanted.strong_count() > 0 {
            if let Some(Ok(fresh)) = Deadline::after(ATTEMPT).bound(self.options.connect()).await {
                // The old one is dropped: its socket is closed, and nobody waits for the other end.
                *connection = fresh;
                return true;
            }
            Deadline::after(pause).bound(pending::<()>()).await.unwrap_or_default();
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        false
    }
}

async fn clean(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let answer = connection.fetch_one(sqlx::raw_sql(CLEAN)).await.and_then(|row| row.try_get(0));
    match answer {
        Ok(true) => Ok(()),
        // 25P02: it is open, and failed.
        Ok(false) => connection.execute(sqlx::raw_sql("ROLLBACK")).await.map(drop),
        Err(sqlx::Error::Database(e)) if e.code().as_deref() == Some("25P02") => {
            connection.execute(sqlx::raw_sql("ROLLBACK")).await.map(drop)
        }
        Err(e) => Err(e),
    }
}
