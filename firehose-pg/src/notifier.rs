//! Sending notifications: one statement a batch, on connections that write nothing else.
//!
//! A transaction that only notifies does not wait for the disk.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use firehose_core::{Error, ErrorKind, Notification, Notifier, Result, Step};
use futures_util::future::join_all;
use sea_orm::{ConnectionTrait, DbBackend, Statement};

use crate::deadline::Deadline;
use crate::error::{Cause, Work};
use crate::pool::{Lost, Pool};
use crate::session::{Prepared, Session};
use crate::sessions::Sessions;

const OPERATION: &str = "notify";

/// `count` makes it one row.
const NOTIFY: &str = "SELECT pg_catalog.count(pg_catalog.pg_notify(channel, payload)) \
     FROM unnest($1::text[], $2::text[]) AS t(channel, payload)";

/// How many statements are on their way at a time where equal notifications need one each.
const PIPELINED: usize = 64;

/// A [`Notifier`] over PostgreSQL's NOTIFY.
#[derive(Debug)]
pub struct PgNotifier {
    connections: Connections,
    timeout: Duration,
}

#[derive(Debug)]
enum Connections {
    Own(Sessions),
    Store(Arc<Pool>),
}

impl PgNotifier {
    /// The longest payload that PostgreSQL takes, in bytes.
    pub const MAX_PAYLOAD_BYTES: usize = 7_999;

    pub(crate) fn on_own(sessions: Sessions, timeout: Duration) -> Self {
        Self { connections: Connections::Own(sessions), timeout }
    }

    pub(crate) fn through(pool: Arc<Pool>, timeout: Duration) -> Self {
        Self { connections: Connections::Store(pool), timeout }
    }

    async fn send(&self, rounds: &[Round<'_>]) -> Result<(), Cause> {
        match &self.connections {
            Connections::Own(sessions) => {
                let session = sessions.lend().await?;
                let sent = send_all(&session, rounds).await;
                if !sent.as_ref().is_err_and(Cause::ends_session) {
                    session.give_back();
                }
                sent
            }
            Connections::Store(pool) => {
                for round in rounds {
                    let channels: Vec<String> = round.channels.iter().map(|&c| c.to_owned()).collect();
                    let payloads: Vec<String> = round.payloads.iter().map(|&p| p.to_owned()).collect();
                    let values = [channels.into(), payloads.into()];
                    let statement = Statement::from_sql_and_values(DbBackend::Postgres, NOTIFY, values);
                    pool.run(Step::Notify, Lost::Tell, |db| {
                        let statement = statement.clone();
                        async move { db.query_one_raw(statement).await }
                    })
                    .await?;
                }
                Ok(())
            }
        }
    }
}

#[async_trait]
impl Notifier for PgNotifier {
    async fn notify(&self, notifications: &[Notification]) -> Result<()> {
        check(notifications)?;
        if notifications.is_empty() {
            return Ok(());
        }
        let rounds = rounds(notifications);
        let deadline = Deadline::after(self.timeout);
        let mut sent = deadline.bound(self.send(&rounds)).await.unwrap_or(Err(Cause::Late(Step::Notify)));
        if sent.as_ref().is_err_and(Cause::is_stale_plan) {
            if let Connections::Own(sessions) = &self.connections {
                sessions.forget();
            }
            sent = deadline.bound(self.send(&rounds)).await.unwrap_or(Err(Cause::Late(Step::Notify)));
        }
        sent.map_err(|cause| cause.explain(OPERATION, Work::Harmless))
    }

    fn max_payload_bytes(&self) -> usize {
        Self::MAX_PAYLOAD_BYTES
    }
}

/// Refuses what the server would, before any of it is sent.
fn check(notifications: &[Notification]) -> Result<()> {
    for notification in notifications {
        let payload = &notification.payload;
        if payload.len() > PgNotifier::MAX_PAYLOAD_BYTES {
            let most = PgNotifier::MAX_PAYLOAD_BYTES;
            let message = format!("payload of {} bytes, at most {most} are allowed", payload.len());
            return Err(Error::new(ErrorKind::TooLarge, OPERATION, message));
        }
        if let Some(at) = payload.bytes().position(|b| b == 0) {
            return Err(Error::new(ErrorKind::InvalidData, OPERATION, format!("payload has a NUL at byte {at}")));
        }
    }
    Ok(())
}

/// What one statement sends: no notification twice, since PostgreSQL merges equal ones of a transaction.
#[derive(Debug, Default, PartialEq, Eq)]
struct Round<'a> {
    channels: Vec<&'a str>,
    payloads: Vec<&'a str>,
}

/// Cuts `notifications` where one comes again, so that all keep their order.
fn rounds(notifications: &[Notification]) -> Vec<Round<'_>> {
    let mut rounds = vec![Round::default()];
    let mut seen = HashSet::new();
    for notification in notifications {
        let pair = (notification.channel.as_str(), &*notification.payload);
        if !seen.insert(pair) {
            seen.clear();
            seen.insert(pair);
            rounds.push(Round::default());
        }
        if let Some(round) = rounds.last_mut() {
            round.channels.push(pair.0);
            round.payloads.push(pair.1);
        }
    }
    rounds
}

/// Each round is a transaction of its own; several are on their way at once, in their order.
async fn send_all(session: &Session, rounds: &[Round<'_>]) -> Result<(), Cause> {
    let statement = session.prepared(Prepared::Notify, NOTIFY).await?;
    for some in rounds.chunks(PIPELINED) {
        let sends = some.iter().map(|round| {
            let statement = &statement;
            async move { session.client.query(statement, &[&round.channels, &round.payloads]).await }
        });
        for sent in session.drive(join_all(sends)).await? {
            sent?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use firehose_core::ChannelIdentifier;

    fn notification(channel: &str, payload: &str) -> Notification {
        Notification::new(ChannelIdentifier::new(channel).unwrap(), payload)
    }

    #[test]
    fn equal_notifications_go_in_different_statements_and_all_keep_their_order() {
        let all = [("a", "x"), ("b", "x"), ("a", "x"), ("a", "y"), ("a", "x")].map(|(c, p)| notification(c, p));
        let rounds = rounds(&all);
        let sent: Vec<Vec<_>> =
            rounds.iter().map(|r| r.channels.iter().copied().zip(r.payloads.iter().copied()).collect()).collect();
        assert_eq!(sent, [vec![("a", "x"), ("b", "x")], vec![("a", "x"), ("a", "y")], vec![("a", "x")]]);
    }

    #[test]
    fn what_the_server_would_refuse_is_refused_here() {
        assert!(check(&[notification("a", &"x".repeat(7_999))]).is_ok());
        let long = check(&[notification("a", "x"), notification("a", &"x".repeat(8_000))]).unwrap_err();
        assert_eq!(long.kind(), ErrorKind::TooLarge);
        assert_eq!(check(&[notification("a", "x\0")]).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
