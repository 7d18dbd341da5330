//! Recognising a pooler that does not keep prepared statements, before it loses one under load.

use std::pin::pin;
use std::time::Duration;

use firehose_core::Step;
use sea_orm::TransactionTrait;

use crate::deadline::Deadline;
use crate::error::Cause;
use crate::pool::Pool;
use crate::session::Session;

/// How long the answer may take while another session is in a transaction. A pooler that has one connection to the
/// server, and no second to be had, gives none.
const PATIENCE: Duration = Duration::from_secs(1);

const STATEMENT: &str = "SELECT 1";

/// Refuses what mixes up the prepared statements of its clients.
///
/// In transaction mode a pooler lends a connection to the server for the length of a transaction. So a statement is
/// prepared on `session`, the pool's own session takes the connection on which that was done into a transaction, and
/// the statement is run: a pooler that does not prepare it again where it needs it has to run it where it is not known.
/// On a direct connection, or in session mode, nobody can take anything away.
///
/// # Errors
/// What the server says of the statement: `Pooler`, where it does not know it.
pub(crate) async fn refuse(session: &Session, pool: &Pool, deadline: &Deadline) -> Result<(), Cause> {
    let late = || Cause::Late(Step::Connect);
    let prepare = session.drive(session.client.prepare(STATEMENT));
    let statement = deadline.bound(prepare).await.ok_or_else(late)???;
    let current = pool.current();
    let held = deadline.bound(current.begin()).await.ok_or_else(late)??;
    let mut run = pin!(session.drive(session.client.query(&statement, &[])));
    let patience = Deadline::after(PATIENCE.min(deadline.left()));
    let ran = patience.bound(run.as_mut()).await;
    deadline.bound(held.rollback()).await.ok_or_else(late)??;
    match ran {
        Some(ran) => ran?.map(drop)?,
        // No second connection was to be had. What a lost statement leads to is told when it happens.
        None => deadline.bound(run).await.ok_or_else(late)?.and_then(|ran| Ok(ran.map(drop)?))?,
    }
    Ok(())
}
