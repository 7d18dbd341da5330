//! What changed since a look before, in one statement and so from one snapshot.

use firehose_core::{Changed, Epoch, Head, Look, MessageId, Result, SafeId, Sequence, Step, StreamName, SweepMark};
use sea_orm::{DbErr, QueryResult};

use super::PgStore;
use super::read::broken;

const OPERATION: &str = "changed since";

/// Where a look stood, and on which server.
struct Mark {
    server: String,
    safe: SafeId,
}

impl PgStore {
    /// A writer locks the stream's row before it draws a message's id, and with the lock it has a transaction number: that
    /// is what [`SafeId`] asks for. Savepoints change nothing, since their numbers are above that of their transaction;
    /// nor do prepared transactions, which count as open.
    pub(super) async fn what_changed(&self, mark: SweepMark, most: usize) -> Result<(Changed, SweepMark)> {
        let (safe, server) = mark.get::<Mark>().map_or((SafeId::default(), ""), |mark| (mark.safe, &*mark.server));
        let most = i64::try_from(most).unwrap_or(i64::MAX - 1).min(i64::MAX - 1);
        let table = format!("{}.firehose_messages", self.schema.quoted());
        let values = vec![safe.get().map(|id| id.0).into(), most.into(), table.into(), server.into()];
        let rows = self.rows(OPERATION, Step::Heads, &self.sql.changed, values).await?;
        let read = || {
            let Some(first) = rows.first() else { return Err(DbErr::RecordNotFound("the look".to_owned())) };
            let (look, now_on) = look(first)?;
            let news: i64 = first.try_get_by_index(4)?;
            let safe = if now_on == server { safe } else { SafeId::default() };
            let known = safe.get().is_some_and(|safe| safe <= look.highest) && news <= most;
            let changed = if known { Changed::Streams(streams(&rows)?) } else { Changed::Unknown };
            Ok((changed, Mark { server: now_on, safe: safe.after(look) }))
        };
        let (changed, mark) = read().map_err(|e| broken(OPERATION, e))?;
        Ok((changed, SweepMark::new(mark)))
    }
}

/// The look that each row has, and the server.
fn look(row: &QueryResult) -> Result<(Look, String), DbErr> {
    let (oldest_open, next): (i64, i64) = (row.try_get_by_index(1)?, row.try_get_by_index(2)?);
    let look = Look {
        highest: MessageId(row.try_get_by_index(0)?),
        oldest_open: oldest_open.unsigned_abs(),
        next: next.unsigned_abs(),
    };
    Ok((look, row.try_get_by_index(3)?))
}

fn streams(rows: &[QueryResult]) -> Result<Vec<(StreamName, Head)>, DbErr> {
    let mut streams = Vec::with_capacity(rows.len());
    for row in rows {
        let Some(epoch) = row.try_get_by_index::<Option<i64>>(5)? else { continue };
        let name: String = row.try_get_by_index(7)?;
        // A name that the gem stored and that is none here belongs to no stream of ours.
        let Ok(stream) = StreamName::new(name) else { continue };
        let head = Head::new(Epoch(epoch), Sequence(row.try_get_by_index(6)?));
        streams.push((stream, head.with_retained(Some(MessageId(row.try_get_by_index(8)?)), None)));
    }
    Ok(streams)
}
