//! Reading: pages, heads, single messages and cursors, each in one statement and so from one snapshot.

use std::sync::Arc;

use firehose_core::{
    Anchor, CleanupThreshold, Cursor, Epoch, Error, ErrorKind, Head, HeadDetail, Layout, Message, MessageId, Page,
    PageLimit, Position, Result, Sequence, Settings, Step, StreamName, Timestamp,
};
use sea_orm::prelude::DateTime;
use sea_orm::{ConnectionTrait, DbBackend, DbErr, QueryResult, Statement, Value};

use super::PgStore;
use crate::error::{Cause, Work};
use crate::pool::Lost;

impl PgStore {
    pub(super) async fn get_by_id(&self, ids: &[MessageId]) -> Result<Vec<Arc<Message>>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
        let rows = self.rows("get messages", Step::Read, &self.sql.get_many, vec![ids.into()]).await?;
        let message = |row: &QueryResult| {
            let name: String = row.try_get_by_index(5)?;
            let stream = StreamName::new(name).map_err(|e| DbErr::Custom(e.to_string()))?;
            message(row, 0, stream).map(Arc::new)
        };
        // A name that the gem stored and that is none here (the empty one) belongs to no stream of ours.
        Ok(rows.iter().filter_map(|row| message(row).ok()).collect())
    }

    pub(super) async fn pages_after(&self, requests: &[(StreamName, Position)], limit: PageLimit) -> Result<Vec<Page>> {
        let mut pages = vec![Page::default(); requests.len()];
        if requests.is_empty() {
            return Ok(pages);
        }
        let names: Vec<String> = requests.iter().map(|(stream, _)| stream.as_str().to_owned()).collect();
        let (mut epochs, mut sequences, mut ids) = (Vec::new(), Vec::new(), Vec::new());
        for (_, position) in requests {
            let (epoch, sequence, id) = coordinates(*position);
            epochs.push(epoch);
            sequences.push(sequence);
            // An id of 0 is the beginning of the stream, which sequence 0 says as well.
            ids.push(id.max(0));
        }
        let [more, rows, bytes] = limits(limit);
        let values = vec![names.into(), epochs.into(), sequences.into(), ids.into(), more, rows, bytes];
        let mut found = vec![0; requests.len()];
        for row in self.rows("read", Step::Read, &self.sql.read_after, values).await? {
            let at = place(&row).and_then(|at| requests.get(at).map(|(stream, _)| (at, stream.clone())));
            let Some((at, stream)) = at else { continue };
            let read = || Ok((message(&row, 1, stream)?, row.try_get_by_index::<i64>(6)?));
            let (message, there) = read().map_err(|e| broken("read", e))?;
            pages[at].messages.push(Arc::new(message));
            found[at] = there;
        }
        for (page, found) in pages.iter_mut().zip(found) {
            page.more = (page.messages.len() as i64) < found;
        }
        Ok(pages)
    }

    pub(super) async fn page_before(&self, stream: &StreamName, position: Position, limit: PageLimit) -> Result<Page> {
        let (epoch, sequence, id) = match position {
            Position::Cursor(_) => coordinates(position),
            // Nothing has an id below 1, and 0 would read by the sequence.
            Position::Id(id) => (0, i64::MAX, id.0.max(1)),
        };
        let [more, rows, bytes] = limits(limit);
        let values = vec![stream.as_str().into(), epoch.into(), sequence.into(), id.into(), more, rows, bytes];
        let mut page = Page::default();
        for row in self.rows("read back", Step::Read, &self.sql.read_before, values).await? {
            let read = || Ok((message(&row, 0, stream.clone())?, row.try_get_by_index::<i64>(5)?));
            let (message, there) = read().map_err(|e| broken("read back", e))?;
            page.messages.push(Arc::new(message));
            page.more = (page.messages.len() as i64) < there;
        }
        Ok(page)
    }

    pub(super) async fn read_heads(&self, streams: &[StreamName], detail: HeadDetail) -> Result<Vec<Option<Head>>> {
        let mut heads = vec![None; streams.len()];
        if streams.is_empty() {
            return Ok(heads);
        }
        let names: Vec<String> = streams.iter().map(|stream| stream.as_str().to_owned()).collect();
        let sql = match detail {
            HeadDetail::Cheap => &self.sql.heads,
            HeadDetail::Full => &self.sql.heads_full,
        };
        for row in self.rows("heads", Step::Heads, sql, vec![names.into()]).await? {
            let read = || {
                let head = Head::new(Epoch(row.try_get_by_index(1)?), Sequence(row.try_get_by_index(2)?));
                if detail == HeadDetail::Cheap {
                    return Ok(head);
                }
                let newest: Option<i64> = row.try_get_by_index(3)?;
                Ok(head.with_retained(newest.map(MessageId), oldest(&row, 4)?))
            };
            let head = read().map_err(|e| broken("heads", e))?;
            if let Some(slot) = place(&row).and_then(|at| heads.get_mut(at)) {
                *slot = Some(head);
            }
        }
        Ok(heads)
    }

    pub(super) async fn compare(&self, cursors: &[Cursor]) -> Result<Vec<Anchor>> {
        let mut anchors = vec![Anchor::Gone; cursors.len()];
        if cursors.iter().all(|cursor| cursor.epoch.is_none()) {
            return Ok(anchors);
        }
        let epochs: Vec<i64> = cursors.iter().map(|cursor| cursor.epoch.map_or(0, |epoch| epoch.0)).collect();
        let sequences: Vec<i64> = cursors.iter().map(|cursor| cursor.sequence.0).collect();
        for row in self.rows("anchors", Step::Anchors, &self.sql.anchors, vec![epochs.into(), sequences.into()]).await?
        {
            let Some(at) = place(&row).filter(|at| *at < cursors.len()) else { continue };
            anchors[at] = anchor(&row, &cursors[at]).map_err(|e| broken("anchors", e))?;
        }
        Ok(anchors)
    }

    pub(super) async fn read_settings(&self) -> Result<Settings> {
        let rows = self.rows("settings", Step::Settings, &self.sql.settings, Vec::new()).await?;
        let Some(row) = rows.first() else {
            let message = "firehose_settings has no row".to_owned();
            return Err(Cause::Known { kind: ErrorKind::NotMigrated, message }.explain("settings", Work::Harmless));
        };
        settings(row).map_err(|e| broken("settings", e))
    }

    pub(super) async fn rows(
        &self,
        operation: &'static str,
        step: Step,
        sql: &str,
        values: Vec<Value>,
    ) -> Result<Vec<QueryResult>> {
        let query = |pool: Arc<sea_orm::DatabaseConnection>| {
            let statement = Statement::from_sql_and_values(DbBackend::Postgres, sql, values.clone());
            async move { pool.query_all_raw(statement).await }
        };
        self.pool.run(step, Lost::Repeat, query).await.map_err(|cause| cause.explain(operation, Work::Harmless))
    }
}

/// A row that is not as the statement makes it.
pub(super) fn broken(operation: &'static str, e: DbErr) -> Error {
    Cause::from(e).explain(operation, Work::Harmless)
}

/// layout, buckets, prefix, gem, cleanup_threshold.
fn settings(row: &QueryResult) -> Result<Settings, DbErr> {
    let layout: String = row.try_get_by_index(0)?;
    let layout = if layout == "buckets" { Layout::Buckets } else { Layout::PerStream };
    let buckets: i32 = row.try_get_by_index(1)?;
    let prefix: String = row.try_get_by_index(2)?;
    let threshold: Option<i64> = row.try_get_by_index(4)?;
    let threshold = threshold.map_or(CleanupThreshold::Everything, |n| CleanupThreshold::Newest(n.unsigned_abs()));
    let settings = Settings::default().with_prefix(prefix).with_layout(layout, buckets.unsigned_abs());
    Ok(settings.with_gem(row.try_get_by_index(3)?).with_cleanup_threshold(threshold))
}

/// Epoch, sequence and id of a position, 0 for what it does not name.
fn coordinates(position: Position) -> (i64, i64, i64) {
    match position {
        Position::Cursor(cursor) => (cursor.epoch.map_or(0, |epoch| epoch.0), cursor.sequence.0, 0),
        Position::Id(id) => (0, 0, id.0),
    }
}

/// Rows and one more, rows, bytes.
fn limits(limit: PageLimit) -> [Value; 3] {
    let clamp = |n: usize| i64::try_from(n).unwrap_or(i64::MAX).min(1 << 40);
    let rows = clamp(limit.rows.max(1));
    [(rows + 1).into(), rows.into(), clamp(limit.bytes).into()]
}

/// Which request a row answers, by its `ord`.
fn place(row: &QueryResult) -> Option<usize> {
    let ord: i64 = row.try_get_by_index(0).ok()?;
    usize::try_from(ord - 1).ok()
}

/// id, channel_id, sequence, data, created_at, from column `at` on.
fn message(row: &QueryResult, at: usize, stream: StreamName) -> Result<Message, DbErr> {
    let data: String = row.try_get_by_index(at + 3)?;
    let created_at: DateTime = row.try_get_by_index(at + 4)?;
    let message = Message::new(
        MessageId(row.try_get_by_index(at)?),
        Epoch(row.try_get_by_index(at + 1)?),
        Sequence(row.try_get_by_index(at + 2)?),
        stream,
        data.into(),
    );
    Ok(message.with_created_at(Timestamp(created_at.and_utc().timestamp_micros())))
}

fn oldest(row: &QueryResult, at: usize) -> Result<Option<(Sequence, MessageId)>, DbErr> {
    let sequence: Option<i64> = row.try_get_by_index(at)?;
    let id: Option<i64> = row.try_get_by_index(at + 1)?;
    Ok(sequence.zip(id).map(|(sequence, id)| (Sequence(sequence), MessageId(id))))
}

fn anchor(row: &QueryResult, cursor: &Cursor) -> Result<Anchor, DbErr> {
    if cursor.sequence <= Sequence::ZERO {
        return Ok(Anchor::Same);
    }
    let Some(id) = row.try_get_by_index::<Option<i64>>(1)? else {
        return Ok(Anchor::Trimmed { oldest: oldest(row, 3)? });
    };
    let created_at: Option<DateTime> = row.try_get_by_index(2)?;
    let created_at = created_at.map(|at| Timestamp(at.and_utc().timestamp_micros()));
    let same = cursor.id.is_none_or(|known| known.0 == id)
        && cursor.created_at.is_none_or(|known| created_at.is_none_or(|at| at == known));
    Ok(if same { Anchor::Same } else { Anchor::Other })
}
