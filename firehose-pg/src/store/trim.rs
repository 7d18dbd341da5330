//! Removing: the oldest messages of a stream, and whole streams.

use std::sync::Arc;
use std::time::Duration;

use firehose_core::{Epoch, Result, Retain, Scope, Step, StreamName, Trimmed};
use sea_orm::{
    AccessMode, ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, IsolationLevel, Statement,
    TransactionTrait, Value,
};

use super::PgStore;
use crate::error::Work;
use crate::pool::Lost;

/// How many streams one round of a trim of all looks at.
const ROUND: i64 = 64;

impl PgStore {
    pub(super) async fn trim_scope(&self, scope: Scope, retain: Retain, budget: u64) -> Result<Trimmed> {
        let trimmed = match scope {
            Scope::Stream(stream) => {
                self.pool.run(Step::Trim, Lost::Tell, |db| self.trim_stream(db, stream.clone(), retain, budget)).await
            }
            Scope::All => self.trim_all(retain, budget).await,
        };
        trimmed.map_err(|cause| cause.explain("trim", Work::Harmless))
    }

    async fn trim_stream(
        &self,
        db: Arc<DatabaseConnection>,
        stream: StreamName,
        retain: Retain,
        budget: u64,
    ) -> Result<Trimmed, DbErr> {
        let txn = self.begin_trim(&db).await?;
        let channel = txn.query_one_raw(statement(&self.sql.channel, vec![stream.as_str().into()])).await?;
        let Some(channel) = channel else { return Ok(Trimmed::default()) };
        let channel: i64 = channel.try_get_by_index(0)?;
        if !self.lock(&txn, &format!("stream {channel}")).await? {
            return Ok(Trimmed { messages: 0, more: true });
        }
        let gone = self.trim_channels(&txn, &[channel], retain, budget).await?;
        let more = gone >= budget && self.is_due(&txn, channel, retain).await?;
        txn.commit().await?;
        self.count_anew(&db, &[channel], gone).await?;
        Ok(Trimmed { messages: gone, more })
    }

    /// Whether a stream still has something to trim.
    async fn is_due(&self, txn: &DatabaseTransaction, channel: i64, retain: Retain) -> Result<bool, DbErr> {
        let mut values = limits(retain);
        values.extend([vec![channel].into(), 1_i64.into()]);
        let row = txn.query_one_raw(statement(&self.sql.trim_due, values)).await?;
        Ok(row.map_or(Ok(0), |row| row.try_get_by_index::<i64>(0))? > 0)
    }

    /// Rounds of some streams each, until there are no more or the budget is used up. Each round is a transaction.
    async fn trim_all(&self, retain: Retain, budget: u64) -> Result<Trimmed, crate::error::Cause> {
        let mut trimmed = Trimmed::default();
        let mut after = 0;
        loop {
            let left = budget - trimmed.messages;
            let (last, gone) =
                self.pool.run(Step::Trim, Lost::Tell, |db| self.trim_round(db, retain, after, left)).await?;
            trimmed.messages += gone;
            match last {
                Some(last) if trimmed.messages < budget => after = last,
                _ => break,
            }
        }
        if trimmed.messages >= budget {
            let mut values = limits(retain);
            values.extend([0_i64.into(), 1_i64.into()]);
            let next = |db: Arc<DatabaseConnection>| {
                let candidates = statement(&self.sql.trim_candidates, values.clone());
                async move { db.query_one_raw(candidates).await }
            };
            trimmed.more = self.pool.run(Step::Trim, Lost::Repeat, next).await?.is_some();
        }
        Ok(trimmed)
    }

    /// The last stream of the round, where there may be others, and how many messages went.
    async fn trim_round(
        &self,
        db: Arc<DatabaseConnection>,
        retain: Retain,
        after: i64,
        budget: u64,
    ) -> Result<(Option<i64>, u64), DbErr> {
        let txn = self.begin_trim(&db).await?;
        if !self.lock(&txn, "all").await? {
            return Ok((None, 0));
        }
        let mut values = limits(retain);
        values.extend([after.into(), ROUND.into()]);
        let mut channels = Vec::new();
        for row in txn.query_all_raw(statement(&self.sql.trim_candidates, values)).await? {
            channels.push(row.try_get_by_index::<i64>(0)?);
        }
        let mut free = Vec::new();
        for &channel in &channels {
            if self.lock(&txn, &format!("stream {channel}")).await? {
                free.push(channel);
            }
        }
        let gone = self.trim_channels(&txn, &free, retain, budget).await?;
        txn.commit().await?;
        self.count_anew(&db, &free, gone).await?;
        Ok((channels.last().copied().filter(|_| channels.len() as i64 == ROUND), gone))
    }

    async fn trim_channels(
        &self,
        txn: &DatabaseTransaction,
        channels: &[i64],
        retain: Retain,
        budget: u64,
    ) -> Result<u64, DbErr> {
        if channels.is_empty() {
            return Ok(0);
        }
        let mut values = limits(retain);
        values.extend([channels.to_vec().into(), i64::try_from(budget).unwrap_or(i64::MAX).into()]);
        Ok(txn.execute_raw(statement(&self.sql.trim, values)).await?.rows_affected())
    }

    /// Counts the messages of trimmed streams anew. Publishers need the rows that this locks, so it is one message to the
    /// server and its own transaction: a process that stands still, or loses its network, holds none of them.
    async fn count_anew(&self, db: &DatabaseConnection, channels: &[i64], gone: u64) -> Result<(), DbErr> {
        if gone == 0 {
            return Ok(());
        }
        let channels: Vec<String> = channels.iter().map(i64::to_string).collect();
        let update = self.sql.trim_counters.replace("{channels}", &channels.join(","));
        let whatever_the_role_has = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE";
        db.execute_unprepared(&format!("{whatever_the_role_has}; {update}")).await.map(drop)
    }

    /// A transaction that the server ends when its owner went away: nobody else could trim before that.
    async fn begin_trim(&self, db: &DatabaseConnection) -> Result<DatabaseTransaction, DbErr> {
        let txn = begin(db).await?;
        let most = self.timeout.as_millis().clamp(1, 2_147_483_647);
        let limits =
            format!("SET LOCAL statement_timeout = {most}; SET LOCAL idle_in_transaction_session_timeout = {most}");
        txn.execute_unprepared(&limits).await?;
        Ok(txn)
    }

    async fn lock(&self, txn: &DatabaseTransaction, what: &str) -> Result<bool, DbErr> {
        let name = format!("firehose trim {} {what}", self.schema.quoted());
        let row = txn.query_one_raw(statement(&self.sql.trim_lock, vec![name.into()])).await?;
        row.map_or(Ok(false), |row| row.try_get_by_index(0))
    }

    pub(super) async fn delete(&self, stream: &StreamName) -> Result<Option<Epoch>> {
        // The server gives up first, so that what became of it is known.
        let wait = self.timeout.mul_f32(0.85).as_millis().max(1);
        let work = |db: Arc<DatabaseConnection>| async move {
            let txn = begin(&db).await?;
            txn.execute_unprepared(&format!("SET LOCAL lock_timeout = {wait}")).await?;
            let row = txn.query_one_raw(statement(&self.sql.delete, vec![stream.as_str().into()])).await?;
            txn.commit().await?;
            row.map(|row| row.try_get_by_index(0).map(Epoch)).transpose()
        };
        self.pool.run(Step::Delete, Lost::Tell, work).await.map_err(|cause| cause.explain("delete stream", Work::Write))
    }
}

fn statement(sql: &str, values: Vec<Value>) -> Statement {
    Statement::from_sql_and_values(DbBackend::Postgres, sql, values)
}

/// A transaction of a known kind, whatever the role's defaults are.
async fn begin(db: &DatabaseConnection) -> Result<DatabaseTransaction, DbErr> {
    db.begin_with_config(Some(IsolationLevel::ReadCommitted), Some(AccessMode::ReadWrite)).await
}

/// Messages kept, longest age and least age, in µs; -1 where there is no limit.
fn limits(retain: Retain) -> Vec<Value> {
    // More than anyone keeps, and what the server's calendar can subtract: it begins in 4713 BC.
    const MOST: u128 = 5_000 * 365 * 24 * 3_600 * 1_000_000;
    let micros = |age: Duration| i64::try_from(age.as_micros().min(MOST)).unwrap_or(i64::MAX);
    let kept = retain.messages.map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX));
    vec![kept.into(), retain.max_age.map_or(-1, micros).into(), micros(retain.min_age).into()]
}
