//! Appending: one statement a batch.
//!
//! The statement takes the streams that it can have at once, and leaves the others out of its answer. Those do not
//! exist yet, and are created, or someone's transaction holds them. A key that its stream holds already makes the whole
//! statement fail, so nothing has to be undone that would leave a hole; it is repeated without that entry. So is one
//! that a single entry's data made fail, half by half, until that entry stands alone.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use firehose_core::{
    Blocked, Epoch, Error, ErrorKind, Message, MessageId, NewMessage, Outcome, Result, Sequence, Step, Timestamp,
};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::{PgStore, batch};
use crate::deadline::Deadline;
use crate::error::{Cause, Work};
use crate::session::{Prepared, Session};
use crate::sessions::Lent;

const OPERATION: &str = "append";

/// How long creating a stream waits for someone who creates the same one in a longer transaction.
const CREATE_WAIT: Duration = Duration::from_millis(50);

/// How much of the time that is left the server may wait: it gives up first, so that what became of the entries is known.
const PATIENCE: f32 = 0.85;

/// How often one part is tried, whatever happens to it: created and deleted under us, say.
const TRIES: u32 = 8;

/// Entries that go into one statement together, and what was done for them already.
struct Part {
    entries: Vec<usize>,
    stage: Stage,
    tries: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing was tried.
    First,
    /// The streams were created; what is not there now is held.
    Created,
    /// Someone creates the stream in a longer transaction; wait for him.
    Creating,
    /// Wait for them.
    Waiting,
}

impl Stage {
    fn waits(self) -> bool {
        matches!(self, Self::Creating | Self::Waiting)
    }
}

/// An append on its way: its entries and what became of them.
struct Appending<'a> {
    entries: &'a [NewMessage],
    results: Vec<Option<Result<Message>>>,
    deadline: Deadline,
    blocked: Blocked,
}

impl PgStore {
    pub(super) async fn append_entries(&self, entries: &[NewMessage], blocked: Blocked) -> Vec<Result<Message>> {
        let repeats = batch::repeats(entries);
        let chosen: Vec<usize> = (0..entries.len()).filter(|&at| repeats[at].is_none()).collect();
        let mut todo: VecDeque<Part> = batch::parts(entries, &chosen).into_iter().map(Part::new).collect();
        let results = entries.iter().map(|_| None).collect();
        let mut appending = Appending { entries, results, deadline: Deadline::after(self.timeout), blocked };
        while let Some(part) = todo.pop_front() {
            self.store(&mut appending, part, &mut todo).await;
        }
        for (at, first) in repeats.iter().enumerate() {
            let Some(first) = first else { continue };
            appending.results[at] = appending.results[*first].as_ref().map(|result| match result {
                Ok(message) => Ok(message.clone()),
                Err(e) => Err(e.replicate()),
            });
        }
        let lost = || Err(Error::new(ErrorKind::Backend, OPERATION, "the database gave no answer for the entry"));
        appending.results.into_iter().map(|result| result.unwrap_or_else(lost)).collect()
    }

    /// Tries `part` once; what is left of it goes to the front of `todo`.
    async fn store(&self, appending: &mut Appending<'_>, part: Part, todo: &mut VecDeque<Part>) {
        if appending.deadline.left().is_zero() || part.tries > TRIES {
            let late = Error::new(ErrorKind::Timeout(Step::Append), OPERATION, "nothing was tried in time");
            return appending.fail(&part.entries, late.with_outcome(Outcome::NotDone).with_retryable(true));
        }
        let sessions = if part.stage.waits() { &self.waiters } else { &self.writers };
        let session = match appending.deadline.bound(sessions.lend()).await {
            Some(Ok(session)) => session,
            // Nothing was sent, so nothing was stored.
            Some(Err(cause)) => return appending.fail(&part.entries, cause.explain(OPERATION, Work::Harmless)),
            None => {
                let busy = Error::new(ErrorKind::Timeout(Step::Append), OPERATION, "no connection was free in time");
                let busy = busy.with_outcome(Outcome::NotDone).with_retryable(true);
                return appending.fail(&part.entries, busy);
            }
        };
        let deadline = appending.deadline;
        if part.stage == Stage::Creating {
            return self.create_streams(appending, session, part, todo, deadline.left().mul_f32(PATIENCE)).await;
        }
        let sent =
            deadline.bound(self.send(&session, appending, &part)).await.unwrap_or(Err(Cause::Late(Step::Append)));
        match sent {
            Ok(rows) => {
                let left = appending.take(&part.entries, &rows);
                if left.is_empty() {
                    return session.give_back();
                }
                self.left_out(appending, session, Part { entries: left, ..part }, todo).await;
            }
            Err(cause) => self.failed(appending, session, cause, part, todo).await,
        }
    }

    /// Sends the statement for `part`, in a transaction of its own where it needs one.
    async fn send(&self, session: &Session, appending: &Appending<'_>, part: &Part) -> Result<Vec<Row>, Cause> {
        let entries = || part.entries.iter().map(|&at| &appending.entries[at]);
        if let ([only], false, false) = (&*part.entries, part.stage == Stage::Waiting, session.strange_defaults) {
            // What a quiet stream sends: the planner and the executor have a third less to do.
            let entry = &appending.entries[*only];
            let key = entry.key.as_ref().map(|k| k.as_str());
            let parameters: [&(dyn ToSql + Sync); 3] = [&entry.stream.as_str(), &&*entry.data, &key];
            return session.query(Prepared::AppendOne, &self.sql.append_one, &parameters).await;
        }
        let names: Vec<&str> = entries().map(|e| e.stream.as_str()).collect();
        let data: Vec<&str> = entries().map(|e| &*e.data).collect();
        let keys: Vec<Option<&str>> = entries().map(|e| e.key.as_ref().map(|k| k.as_str())).collect();
        let parameters: [&(dyn ToSql + Sync); 3] = [&names, &data, &keys];
        if part.stage == Stage::Waiting {
            let wait = appending.deadline.left().mul_f32(PATIENCE);
            return in_transaction(session, Prepared::AppendWaiting, &self.sql.append_waiting, &parameters, Some(wait))
                .await;
        }
        if session.strange_defaults {
            return in_transaction(session, Prepared::Append, &self.sql.append, &parameters, None).await;
        }
        session.query(Prepared::Append, &self.sql.append, &parameters).await
    }

    /// What to do with entries whose streams the statement left out.
    async fn left_out(&self, appending: &mut Appending<'_>, session: Lent<'_>, part: Part, todo: &mut VecDeque<Part>) {
        let tries = part.tries + 1;
        match (part.stage, appending.blocked) {
            (Stage::Created, Blocked::Skip) => {
                session.give_back();
                appending.fail(&part.entries, held());
            }
            (Stage::Created, Blocked::Wait) => {
                session.give_back();
                todo.push_front(Part { stage: Stage::Waiting, tries, ..part });
            }
            _ => self.create_streams(appending, session, part, todo, CREATE_WAIT).await,
        }
    }

    /// Creates the streams of `part` that do not exist, waiting at most so long for each that someone else creates.
    async fn create_streams(
        &self,
        appending: &mut Appending<'_>,
        session: Lent<'_>,
        part: Part,
        todo: &mut VecDeque<Part>,
        wait: Duration,
    ) {
        let mut names: Vec<&str> = part.entries.iter().map(|&at| appending.entries[at].stream.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let parameters: [&(dyn ToSql + Sync); 1] = [&names];
        let create = in_transaction(&session, Prepared::Create, &self.sql.create, &parameters, Some(wait));
        let created = appending.deadline.bound(create).await.unwrap_or(Err(Cause::Late(Step::Append)));
        let part = Part { tries: part.tries + 1, ..part };
        match created {
            Ok(_) => {
                session.give_back();
                todo.push_front(Part { stage: Stage::Created, ..part });
            }
            // It waited for several who create the same streams, one after the other.
            Err(cause) if cause.code() == Some("57014") => {
                session.give_back();
                self.still_held(appending, part, todo);
            }
            Err(cause) => self.failed(appending, session, cause, part, todo).await,
        }
    }

    /// What to do with a part that failed as a whole.
    async fn failed(
        &self,
        appending: &mut Appending<'_>,
        session: Lent<'_>,
        cause: Cause,
        part: Part,
        todo: &mut VecDeque<Part>,
    ) {
        let verdict = cause.verdict();
        let tries = part.tries + 1;
        if cause.ends_session() {
            drop(session);
            return appending.fail(&part.entries, cause.explain(OPERATION, Work::Write));
        }
        if cause.is_stale_plan() && tries <= TRIES {
            self.renew(session);
            todo.push_front(Part { tries, ..part });
        } else if cause.is_known_key() && tries <= TRIES {
            let found = appending.deadline.bound(self.find_keys(&session, appending.entries, &part.entries)).await;
            match found.unwrap_or(Err(Cause::Late(Step::Append))) {
                Ok(found) => {
                    session.give_back();
                    let mut left = part.entries;
                    left.retain(|at| !found.contains_key(at));
                    found.into_iter().for_each(|(at, message)| appending.results[at] = Some(Ok(message)));
                    todo.push_front(Part { entries: left, tries, ..part });
                }
                // The append itself was rolled back.
                Err(cause) if cause.is_stale_plan() => {
                    self.renew(session);
                    todo.push_front(Part { tries, ..part });
                }
                Err(cause) => appending.fail(&part.entries, cause.explain(OPERATION, Work::Harmless)),
            }
        } else if verdict.kind == ErrorKind::StreamBlocked || (part.stage.waits() && cause.code() == Some("57014")) {
            session.give_back();
            self.still_held(appending, part, todo);
        } else if verdict.data && part.entries.len() > 1 {
            session.give_back();
            let (first, second) = batch::halves(part.entries.len());
            for half in [second, first] {
                // A half is one more try only of the same entries, so the count stays.
                todo.push_front(Part { entries: part.entries[half].to_vec(), ..part });
            }
        } else {
            match verdict.kind {
                // Demoted under us: the next connection looks for the server that takes writes.
                ErrorKind::Standby => self.renew(session),
                _ => session.give_back(),
            }
            appending.fail(&part.entries, cause.explain(OPERATION, Work::Write));
        }
    }

    /// This connection is of no more use, and neither are the idle ones.
    fn renew(&self, session: Lent<'_>) {
        drop(session);
        self.writers.forget();
        self.waiters.forget();
    }

    /// A lock was not had in time, of one of the streams: the others of the part may be free.
    fn still_held(&self, appending: &mut Appending<'_>, part: Part, todo: &mut VecDeque<Part>) {
        let mut by_stream: Vec<(&str, Vec<usize>)> = Vec::new();
        for &at in &part.entries {
            let name = appending.entries[at].stream.as_str();
            match by_stream.iter_mut().find(|(stream, _)| *stream == name) {
                Some((_, entries)) => entries.push(at),
                None => by_stream.push((name, vec![at])),
            }
        }
        match (part.stage.waits(), by_stream.len(), appending.blocked) {
            // Who creates one of the streams holds up only that one.
            (false, 2.., _) => {
                by_stream.into_iter().rev().for_each(|(_, entries)| todo.push_front(Part { entries, ..part }));
            }
            (false, _, Blocked::Wait) => todo.push_front(Part { stage: Stage::Creating, ..part }),
            _ => appending.fail(&part.entries, held()),
        }
    }

    /// The messages that stand under the keys of `chosen`, by the entry.
    async fn find_keys(
        &self,
        session: &Session,
        entries: &[NewMessage],
        chosen: &[usize],
    ) -> Result<HashMap<usize, Message>, Cause> {
        let keyed: Vec<usize> = chosen.iter().copied().filter(|&at| entries[at].key.is_some()).collect();
        let names: Vec<&str> = keyed.iter().map(|&at| entries[at].stream.as_str()).collect();
        let keys: Vec<&str> = keyed.iter().filter_map(|&at| entries[at].key.as_ref()).map(|k| k.as_str()).collect();
        let mut found = HashMap::new();
        for row in session.query(Prepared::ByKey, &self.sql.by_key, &[&names, &keys]).await? {
            let ord: i64 = row.try_get(0)?;
            let Some(&at) = usize::try_from(ord - 1).ok().and_then(|ord| keyed.get(ord)) else { continue };
            let data: &str = row.try_get(4)?;
            let created_at: SystemTime = row.try_get(5)?;
            let message = Message::new(
                MessageId(row.try_get(1)?),
                Epoch(row.try_get(2)?),
                Sequence(row.try_get(3)?),
                entries[at].stream.clone(),
                data.into(),
            );
            found.insert(at, message.with_created_at(Timestamp::from_system_time(created_at)));
        }
        Ok(found)
    }
}

impl Part {
    fn new(entries: Vec<usize>) -> Self {
        Self { entries, stage: Stage::First, tries: 0 }
    }
}

impl Appending<'_> {
    fn fail(&mut self, entries: &[usize], error: Error) {
        for &at in entries {
            self.results[at] = Some(Err(error.replicate()));
        }
    }

    /// Gives the rows to their entries: by stream, in the order of the sequence. What is left has no row.
    fn take(&mut self, sent: &[usize], rows: &[Row]) -> Vec<usize> {
        match self.try_take(sent, rows) {
            Ok(left) => left,
            Err(cause) => {
                // It was stored; only what the answer says cannot be read.
                self.fail(sent, cause.explain(OPERATION, Work::Write));
                Vec::new()
            }
        }
    }

    fn try_take(&mut self, sent: &[usize], rows: &[Row]) -> Result<Vec<usize>, Cause> {
        if rows.is_empty() {
            return Ok(sent.to_vec());
        }
        let mut by_stream: HashMap<i64, Vec<(i64, &Row)>> = HashMap::new();
        for row in rows {
            by_stream.entry(row.try_get(4)?).or_default().push((row.try_get(2)?, row));
        }
        let mut of_name = HashMap::new();
        for (first, mut rows) in by_stream {
            rows.sort_unstable_by_key(|(sequence, _)| std::cmp::Reverse(*sequence));
            let first = usize::try_from(first - 1).ok().and_then(|first| sent.get(first));
            let first = first.ok_or_else(|| Cause::Other("a row of no entry".to_owned()))?;
            of_name.insert(self.entries[*first].stream.clone(), rows);
        }
        let mut left = Vec::new();
        for &at in sent {
            let entry = &self.entries[at];
            let Some((sequence, row)) = of_name.get_mut(&entry.stream).and_then(Vec::pop) else {
                left.push(at);
                continue;
            };
            let created_at: SystemTime = row.try_get(3)?;
            let (id, epoch) = (MessageId(row.try_get(0)?), Epoch(row.try_get(1)?));
            let message = Message::new(id, epoch, Sequence(sequence), entry.stream.clone(), entry.data.clone());
            self.results[at] = Some(Ok(message.with_created_at(Timestamp::from_system_time(created_at))));
        }
        Ok(left)
    }
}

fn held() -> Error {
    Error::new(ErrorKind::StreamBlocked, OPERATION, "another transaction holds the stream")
}

/// Runs one statement in a READ COMMITTED transaction, all in one round trip. With `wait`, the server gives up after it.
///
/// All three requests leave together, so a caller who goes away leaves nothing half done: either the COMMIT was sent
/// too, or the connection is closed and the server rolls back.
async fn in_transaction(
    session: &Session,
    which: Prepared,
    sql: &str,
    parameters: &[&(dyn ToSql + Sync)],
    wait: Option<Duration>,
) -> Result<Vec<Row>, Cause> {
    let statement = session.prepared(which, sql).await?;
    let mut begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE".to_owned();
    if let Some(wait) = wait {
        let most = wait.as_millis().max(1);
        begin.push_str(&format!(
            "; SET LOCAL lock_timeout = {most}; SET LOCAL statement_timeout = {}",
            most + most / 20
        ));
    }
    let all = async {
        tokio::join!(
            session.client.batch_execute(&begin),
            session.client.query(&statement, parameters),
            session.client.batch_execute("COMMIT"),
        )
    };
    let (begun, rows, ended) = session.drive(all).await?;
    begun?;
    // After an error of the statement, COMMIT rolls back.
    let rows = rows?;
    ended?;
    Ok(rows)
}
