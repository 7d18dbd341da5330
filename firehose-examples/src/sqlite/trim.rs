//! Removing: the oldest messages of a stream, and whole streams.

use std::time::Duration;

use firehose_core::{Blocked, Epoch, ErrorKind, Result, Retain, Scope, Step, StreamName, Timestamp, Trimmed};
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbErr, Value};

use super::SqliteStore;
use super::connections::{commit, statement, unfinished};

const OPERATION: &str = "trim";

/// How many streams one transaction of a trim of all looks at, and how many messages it removes at most: publishers wait
/// for no more than that.
const ROUND_STREAMS: i64 = 64;
const ROUND_MESSAGES: u64 = 2_000;

/// ?1 messages kept (-1: all), ?2 what is older goes, ?3 what is younger stays; ?4 the id after which to look, ?5 how
/// many. Only the oldest message of each stream is looked at.
const CANDIDATES: &str = "
SELECT s.id FROM streams s CROSS JOIN messages m ON m.stream_id = s.id
  AND m.sequence = (SELECT min(o.sequence) FROM messages o WHERE o.stream_id = s.id)
WHERE s.id > ?4 AND ((?1 >= 0 AND m.sequence <= s.sequence - ?1) OR m.created_at < ?2) AND m.created_at <= ?3
ORDER BY s.id LIMIT ?5";

/// ?1 to ?3 as above, ?4 the stream, ?5 how many messages to look at. What goes is a prefix: it ends before the first
/// message that stays. Sequences have no holes, so the newest n are those above the head less n.
const DUE: &str = "
SELECT min(l.sequence), coalesce(min(l.sequence) FILTER (WHERE NOT l.goes), max(l.sequence) + 1)
FROM (
  SELECT m.sequence, ((?1 >= 0 AND m.sequence <= s.sequence - ?1) OR m.created_at < ?2) AND m.created_at <= ?3 AS goes
  FROM streams s CROSS JOIN messages m ON m.stream_id = s.id
  WHERE s.id = ?4 ORDER BY m.sequence LIMIT ?5
) l";

/// A trim's limits as values.
#[derive(Debug, Clone, Copy)]
struct Limits {
    kept: i64,
    older: i64,
    younger: i64,
}

impl SqliteStore {
    /// Waits for no other process: where one writes, there is nothing done, and more to do.
    pub(super) async fn trim_scope(&self, scope: &Scope, retain: Retain, budget: u64) -> Result<Trimmed> {
        let limits = Limits::new(retain, Timestamp::from_system_time(self.clock.wall()));
        match scope {
            Scope::Stream(stream) => {
                let find = "SELECT id FROM streams WHERE name = ?1";
                match self.ids(find, vec![stream.as_str().into()]).await?.first() {
                    Some(id) => self.trim_all_of(&[*id], limits, budget).await,
                    None => Ok(Trimmed::default()),
                }
            }
            Scope::All => {
                let Ok(_alone) = self.trimming.try_lock() else { return Ok(Trimmed::default()) };
                let mut trimmed = Trimmed::default();
                let mut after = 0;
                loop {
                    let mut values = limits.values();
                    values.extend([after.into(), ROUND_STREAMS.into()]);
                    let streams = self.ids(CANDIDATES, values).await?;
                    let Some(&last) = streams.last() else { return Ok(trimmed) };
                    let round = self.trim_all_of(&streams, limits, budget - trimmed.messages).await?;
                    trimmed.messages += round.messages;
                    trimmed.more |= round.more;
                    if trimmed.more {
                        return Ok(trimmed);
                    }
                    after = last;
                }
            }
        }
    }

    /// Trims these streams, in transactions of a bounded size.
    async fn trim_all_of(&self, streams: &[i64], limits: Limits, budget: u64) -> Result<Trimmed> {
        let mut trimmed = Trimmed::default();
        loop {
            let left = budget - trimmed.messages;
            let begun = self.connections.begin(OPERATION, Step::Read, Blocked::Skip, &*self.clock).await;
            let transaction = match begun {
                Err(e) if e.kind() == ErrorKind::StreamBlocked => return Ok(Trimmed { more: true, ..trimmed }),
                begun => begun?,
            };
            let round = trim_round(&transaction, streams, limits, left.min(ROUND_MESSAGES)).await;
            let round = round.map_err(unfinished(OPERATION, Step::Read))?;
            commit(OPERATION, Step::Read, transaction).await?;
            trimmed.messages += round.messages;
            if !round.more || trimmed.messages >= budget {
                return Ok(Trimmed { more: round.more, ..trimmed });
            }
        }
    }

    async fn ids(&self, sql: &str, values: Vec<Value>) -> Result<Vec<i64>> {
        let rows = self.connections.rows(OPERATION, Step::Read, sql, values).await?;
        let ids: Result<_, DbErr> = rows.iter().map(|row| row.try_get_by_index(0)).collect();
        ids.map_err(unfinished(OPERATION, Step::Read))
    }

    pub(super) async fn delete(&self, stream: &StreamName) -> Result<Option<Epoch>> {
        const OPERATION: &str = "delete stream";
        let failed = unfinished(OPERATION, Step::Delete);
        let transaction = self.connections.begin(OPERATION, Step::Delete, Blocked::Wait, &*self.clock).await?;
        // Its messages go with it, by the foreign key.
        let delete = statement("DELETE FROM streams WHERE name = ?1 RETURNING id", vec![stream.as_str().into()]);
        let row = transaction.query_one_raw(delete).await.map_err(&failed)?;
        let epoch = row.map(|row| row.try_get_by_index(0).map(Epoch)).transpose().map_err(&failed)?;
        commit(OPERATION, Step::Delete, transaction).await?;
        Ok(epoch)
    }
}

impl Limits {
    fn new(retain: Retain, now: Timestamp) -> Self {
        let before = |age: Duration| now.0.saturating_sub(i64::try_from(age.as_micros()).unwrap_or(i64::MAX));
        Self {
            kept: retain.messages.map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX)),
            older: retain.max_age.map_or(i64::MIN, before),
            younger: before(retain.min_age),
        }
    }

    fn values(self) -> Vec<Value> {
        vec![self.kept.into(), self.older.into(), self.younger.into()]
    }
}

/// Removes at most `budget` messages; `more` where that ended it.
async fn trim_round(
    transaction: &DatabaseTransaction,
    streams: &[i64],
    limits: Limits,
    budget: u64,
) -> Result<Trimmed, DbErr> {
    let mut trimmed = Trimmed::default();
    for &stream in streams {
        let allowed = i64::try_from(budget - trimmed.messages).unwrap_or(i64::MAX - 1);
        let mut values = limits.values();
        values.extend([stream.into(), allowed.saturating_add(1).into()]);
        let Some(row) = transaction.query_one_raw(statement(DUE, values)).await? else { continue };
        let (first, end): (Option<i64>, Option<i64>) = (row.try_get_by_index(0)?, row.try_get_by_index(1)?);
        let Some((first, end)) = first.zip(end) else { continue };
        trimmed.more |= end - first > allowed;
        let end = end.min(first.saturating_add(allowed));
        if end > first {
            let remove = "DELETE FROM messages WHERE stream_id = ?1 AND sequence < ?2";
            let gone = transaction.execute_raw(statement(remove, vec![stream.into(), end.into()])).await?;
            trimmed.messages += gone.rows_affected();
        }
    }
    Ok(trimmed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_are_not_there_or_absurd_keep_everything() {
        let none = Limits::new(Retain::default(), Timestamp(1_000));
        assert_eq!((none.kept, none.older, none.younger), (-1, i64::MIN, 1_000));
        let absurd =
            Retain { messages: Some(u64::MAX), max_age: Some(Duration::MAX), min_age: Duration::from_micros(1) };
        let absurd = Limits::new(absurd, Timestamp(1_000));
        assert_eq!((absurd.kept, absurd.younger), (i64::MAX, 999));
        assert!(absurd.older < 0);
    }
}
