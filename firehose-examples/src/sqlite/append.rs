//! Appending: one transaction, all of it or nothing.
//!
//! The writer is alone from BEGIN IMMEDIATE on, so sequences are counted here and no statement can meet a surprise: what
//! fails, fails for the whole append, and leaves neither a row nor a hole.

use std::collections::HashMap;

use firehose_core::{
    Blocked, Epoch, Error, ErrorKind, Message, MessageId, NewMessage, Result, Sequence, Step, StreamName, Timestamp,
};
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbErr, QueryResult, Value};

use super::SqliteStore;
use super::connections::{commit, statement, unfinished};
use super::plan::{self, Plan};

pub(super) const OPERATION: &str = "append";

/// ?1 an array of names.
const FIND_STREAMS: &str = "
SELECT s.name, s.id, s.sequence FROM json_each(?1) r CROSS JOIN streams s ON s.name = r.value";

const CREATE_STREAMS: &str = "
INSERT INTO streams (name) SELECT r.value FROM json_each(?1) r RETURNING name, id, sequence";

/// ?1 an array of [stream's id, key]. `r.key` is the place in the array.
const FIND_KEYS: &str = "
SELECT r.key, m.id, m.stream_id, m.sequence, m.data, m.created_at
FROM json_each(?1) r CROSS JOIN messages m ON m.stream_id = r.value ->> 0 AND m.key = r.value ->> 1";

/// ?1 an array of [stream's id, sequence, key, data], ?2 the time. Ids are given out in the order of the array.
const STORE: &str = "
INSERT INTO messages (stream_id, sequence, key, data, created_at)
SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3, ?2 FROM json_each(?1) r ORDER BY r.key
RETURNING id, stream_id, sequence";

/// ?1 an array of [stream's id, sequence].
const RAISE: &str = "
UPDATE streams SET sequence = r.value ->> 1 FROM json_each(?1) r WHERE streams.id = r.value ->> 0";

/// A stream as it is to become.
#[derive(Debug, Clone, Copy)]
struct Stream {
    epoch: Epoch,
    sequence: Sequence,
}

impl SqliteStore {
    pub(super) async fn append_entries(&self, entries: &[NewMessage], blocked: Blocked) -> Vec<Result<Message>> {
        let plan = Plan::new(entries);
        let chosen = plan.chosen();
        let stored = if chosen.is_empty() { Ok(Vec::new()) } else { self.store(&chosen, blocked).await };
        plan.results(stored)
    }

    /// One message an entry, all of them committed.
    async fn store(&self, entries: &[&NewMessage], blocked: Blocked) -> Result<Vec<Message>> {
        let failed = unfinished(OPERATION, Step::Append);
        let transaction = self.connections.begin(OPERATION, Step::Append, blocked, &*self.clock).await?;
        let mut streams = streams(&transaction, entries).await.map_err(&failed)?;
        let known = keys(&transaction, entries, &streams).await.map_err(&failed)?;
        let now = Timestamp::from_system_time(self.clock.wall());

        let mut messages = Vec::with_capacity(entries.len());
        let mut fresh = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            if let Some(message) = known.get(&at) {
                messages.push(message.clone());
                continue;
            }
            let stream = streams.get_mut(&entry.stream).ok_or_else(unanswered)?;
            stream.sequence = stream.sequence.next();
            // The id comes with the row.
            let Stream { epoch, sequence } = *stream;
            let message = Message::new(MessageId(0), epoch, sequence, entry.stream.clone(), entry.data.clone());
            messages.push(message.with_created_at(now));
            fresh.push(at);
        }
        if fresh.is_empty() {
            // Dropped, it is rolled back: nothing was changed.
            return Ok(messages);
        }
        insert(&transaction, entries, &fresh, &mut messages).await.map_err(&failed)?;
        if fresh.iter().any(|&at| messages[at].id == MessageId(0)) {
            return Err(unanswered());
        }
        let raised: Vec<_> = streams.values().map(|stream| (stream.epoch.0, stream.sequence.0)).collect();
        transaction.execute_raw(statement(RAISE, vec![json(&raised).map_err(&failed)?])).await.map_err(&failed)?;
        commit(OPERATION, Step::Append, transaction).await?;
        Ok(messages)
    }
}

/// The streams of `entries` as they are; those that do not exist are created.
async fn streams(
    transaction: &DatabaseTransaction,
    entries: &[&NewMessage],
) -> Result<HashMap<StreamName, Stream>, DbErr> {
    let mut missing = plan::streams(entries);
    let mut found = HashMap::new();
    for sql in [FIND_STREAMS, CREATE_STREAMS] {
        let names: Vec<&str> = missing.iter().map(|stream| stream.as_str()).collect();
        let mut by_name: HashMap<String, Stream> = HashMap::new();
        for row in transaction.query_all_raw(statement(sql, vec![json(&names)?])).await? {
            let stream =
                Stream { epoch: Epoch(row.try_get_by_index(1)?), sequence: Sequence(row.try_get_by_index(2)?) };
            by_name.insert(row.try_get_by_index(0)?, stream);
        }
        missing.retain(|name| match by_name.remove(name.as_str()) {
            Some(stream) => found.insert((*name).clone(), stream).is_some(),
            None => true,
        });
        if missing.is_empty() {
            break;
        }
    }
    Ok(found)
}

/// The messages that stand under the keys of `entries` already, by the entry's place.
async fn keys(
    transaction: &DatabaseTransaction,
    entries: &[&NewMessage],
    streams: &HashMap<StreamName, Stream>,
) -> Result<HashMap<usize, Message>, DbErr> {
    let keyed = entries.iter().enumerate().filter_map(|(at, entry)| {
        let (key, stream) = (entry.key.as_ref()?, streams.get(&entry.stream)?);
        Some((at, (stream.epoch.0, key.as_str())))
    });
    let (places, wanted): (Vec<usize>, Vec<(i64, &str)>) = keyed.unzip();
    let mut found = HashMap::new();
    if wanted.is_empty() {
        return Ok(found);
    }
    for row in transaction.query_all_raw(statement(FIND_KEYS, vec![json(&wanted)?])).await? {
        let at = usize::try_from(row.try_get_by_index::<i64>(0)?).ok().and_then(|at| places.get(at));
        let Some(&at) = at else { continue };
        found.insert(at, message(&row, 1, entries[at].stream.clone())?);
    }
    Ok(found)
}

/// Inserts the messages at the places `fresh`, and gives them their ids.
async fn insert(
    transaction: &DatabaseTransaction,
    entries: &[&NewMessage],
    fresh: &[usize],
    messages: &mut [Message],
) -> Result<(), DbErr> {
    let sizes: Vec<usize> = fresh.iter().map(|&at| entries[at].data.len()).collect();
    for part in plan::parts(&sizes) {
        let places = &fresh[part];
        let row = |&at: &usize| {
            let (message, key) = (&messages[at], entries[at].key.as_ref().map(|key| key.as_str()));
            (message.channel_id.0, message.sequence.0, key, &*entries[at].data)
        };
        let rows: Vec<_> = places.iter().map(row).collect();
        let now = places.first().and_then(|&at| messages[at].created_at).map_or(0, |at| at.0);
        let stored = transaction.query_all_raw(statement(STORE, vec![json(&rows)?, now.into()])).await?;
        let mut ids: HashMap<(i64, i64), i64> = HashMap::new();
        for row in stored {
            ids.insert((row.try_get_by_index(1)?, row.try_get_by_index(2)?), row.try_get_by_index(0)?);
        }
        for &at in places {
            let message = &mut messages[at];
            if let Some(&id) = ids.get(&(message.channel_id.0, message.sequence.0)) {
                message.id = MessageId(id);
            }
        }
    }
    Ok(())
}

/// id, stream_id, sequence, data, created_at, from column `at` on.
pub(super) fn message(row: &QueryResult, at: usize, stream: StreamName) -> Result<Message, DbErr> {
    let data: String = row.try_get_by_index(at + 3)?;
    let message = Message::new(
        MessageId(row.try_get_by_index(at)?),
        Epoch(row.try_get_by_index(at + 1)?),
        Sequence(row.try_get_by_index(at + 2)?),
        stream,
        data.into(),
    );
    Ok(message.with_created_at(Timestamp(row.try_get_by_index(at + 4)?)))
}

/// An array for `json_each`, which is how SQLite takes many values in one parameter.
pub(super) fn json(values: &impl serde::Serialize) -> Result<Value, DbErr> {
    serde_json::to_string(values).map(Value::from).map_err(|e| DbErr::Json(e.to_string()))
}

/// A row is missing in an answer, and nothing is committed.
fn unanswered() -> Error {
    let error = Error::new(ErrorKind::Backend, OPERATION, "the database gave no answer for an entry");
    error.with_outcome(firehose_core::Outcome::NotDone)
}
