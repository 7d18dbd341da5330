//! From the drivers' errors to ours.

use std::error::Error as StdError;
use std::io;

use firehose_core::{Error, ErrorKind, Outcome, Step};
use sea_orm::sqlx;
use sea_orm::{DbErr, RuntimeErr};

use crate::sqlstate::{Verdict, of_io, of_sqlstate};

/// What was going on when something failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Nothing can have been changed: connecting, reading, listening, notifying.
    Harmless,
    /// A write was in flight.
    Write,
}

/// Why a driver's call failed, the same for both drivers. Holds nothing of the data: a server's detail would quote it.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Cause {
    #[error("{message} (SQLSTATE {code})")]
    Server { code: String, message: String, fatal: bool, constraint: Option<String> },
    #[error("{message}")]
    Io { kind: ErrorKind, message: String },
    #[error("{0}")]
    Tls(String),
    #[error("{0}")]
    Auth(String),
    #[error("no connection was free or could be made in time")]
    NoConnection,
    #[error("{0}")]
    Other(String),
    /// The deadline passed.
    #[error("no answer in time")]
    Late(Step),
    /// An error of ours, made where more was known.
    #[error("{message}")]
    Known { kind: ErrorKind, message: String },
}

impl Cause {
    /// What its code says.
    pub(crate) fn verdict(&self) -> Verdict {
        let lost = |kind| Verdict { kind, retryable: true, rolled_back: false, data: false };
        let refused = |kind| Verdict { kind, retryable: false, rolled_back: true, data: false };
        match self {
            // What ends the whole session may end it after the commit, in the wait for a replica.
            Self::Server { code, fatal: true, .. } => Verdict { rolled_back: false, data: false, ..of_sqlstate(code) },
            Self::Server { code, .. } => of_sqlstate(code),
            Self::Io { kind, .. } => lost(*kind),
            Self::Tls(_) => refused(ErrorKind::Tls),
            Self::Auth(_) => refused(ErrorKind::Auth),
            Self::NoConnection => Verdict { rolled_back: true, ..lost(ErrorKind::ConnectionLost) },
            Self::Other(_) => Verdict { retryable: false, ..lost(ErrorKind::Backend) },
            Self::Late(step) => lost(ErrorKind::Timeout(*step)),
            Self::Known { kind, .. } => Verdict { rolled_back: true, ..lost(*kind) },
        }
    }

    /// The error of `operation`, in which `work` was going on.
    pub(crate) fn explain(&self, operation: &'static str, work: Work) -> Error {
        let verdict = self.verdict();
        let unknown = work == Work::Write && !verdict.rolled_back;
        let kind = match verdict.kind {
            ErrorKind::Timeout(step) => ErrorKind::Timeout(step),
            _ if unknown => ErrorKind::OutcomeUnknown,
            kind => kind,
        };
        let outcome = if unknown { Outcome::Unknown } else { Outcome::NotDone };
        let message = match kind {
            ErrorKind::Pooler => format!("a pooler on the way to the server keeps no prepared statements: {self}"),
            _ => self.to_string(),
        };
        let error = Error::new(kind, operation, message);
        let error = error.with_retryable(verdict.retryable && !unknown).with_outcome(outcome);
        match self.hint() {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }

    fn hint(&self) -> Option<&'static str> {
        match self.code()? {
            "42P01" | "42703" | "42883" | "3F000" => Some(NOT_MIGRATED_HINT),
            "26000" | "42P05" => Some(POOLER_HINT),
            "22003" => Some("a 32-bit sequence of the gem's tables is used up: run firehose migrate --widen"),
            _ => None,
        }
    }

    /// The SQLSTATE, where the server sent one.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Server { code, .. } => Some(code),
            _ => None,
        }
    }

    /// A plan or a prepared statement that the server no longer has; another connection has none of it.
    pub(crate) fn is_stale_plan(&self) -> bool {
        matches!(self.code(), Some("0A000" | "26000"))
    }

    /// A key that its stream holds already.
    pub(crate) fn is_known_key(&self) -> bool {
        let index = "index_firehose_messages_on_channel_id_and_key";
        matches!(self, Self::Server { code, constraint: Some(c), .. } if code == "23505" && c == index)
    }

    /// The session that it came over is of no more use.
    pub(crate) fn ends_session(&self) -> bool {
        match self {
            Self::Server { fatal, .. } => *fatal,
            Self::Known { .. } => false,
            _ => true,
        }
    }
}

pub(crate) const NOT_MIGRATED_HINT: &str = "run firehose migrate, or call firehose_pg::migrate";

/// The ways out of a pooler that mixes up its clients' statements.
const POOLER_HINT: &str = "name the server itself in database_url; or keep the pooler, in session mode or with prepared \
     statements (PgBouncer 1.21 or later with max_prepared_statements above 0), and name the server itself in listen_url";

impl From<tokio_postgres::Error> for Cause {
    fn from(e: tokio_postgres::Error) -> Self {
        if let Some(db) = e.as_db_error() {
            use tokio_postgres::error::Severity;
            return Self::Server {
                code: db.code().code().to_owned(),
                message: db.message().to_owned(),
                fatal: matches!(db.parsed_severity(), Some(Severity::Fatal | Severity::Panic)),
                constraint: db.constraint().map(str::to_owned),
            };
        }
        if e.is_closed() {
            return Self::Io { kind: ErrorKind::ConnectionLost, message: "the connection was closed".to_owned() };
        }
        let what = e.to_string();
        if what.starts_with("error performing TLS") {
            return Self::Tls(chain(&e));
        }
        match find_io(&e) {
            Some(io) if is_tls(io) => Self::Tls(chain(&e)),
            Some(io) => Self::Io { kind: of_io(io.kind()), message: chain(&e) },
            None if what.starts_with("authentication") || what.starts_with("invalid configuration") => {
                Self::Auth(chain(&e))
            }
            None => Self::Other(chain(&e)),
        }
    }
}

impl From<DbErr> for Cause {
    fn from(e: DbErr) -> Self {
        match e {
            DbErr::Conn(RuntimeErr::SqlxError(e))
            | DbErr::Exec(RuntimeErr::SqlxError(e))
            | DbErr::Query(RuntimeErr::SqlxError(e)) => Self::from(&*e),
            DbErr::ConnectionAcquire(_) => Self::NoConnection,
            // The migrations' own word on what they were asked for.
            DbErr::Custom(message) => Self::Known { kind: ErrorKind::Config, message },
            e => Self::Other(e.to_string()),
        }
    }
}

impl From<&sqlx::Error> for Cause {
    fn from(e: &sqlx::Error) -> Self {
        match e {
            sqlx::Error::Database(db) => {
                let severity = db.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().map(|e| e.severity());
                use sqlx::postgres::PgSeverity;
                Self::Server {
                    code: db.code().unwrap_or_default().into_owned(),
                    message: db.message().to_owned(),
                    fatal: matches!(severity, Some(PgSeverity::Fatal | PgSeverity::Panic)),
                    constraint: db.constraint().map(str::to_owned),
                }
            }
            sqlx::Error::Io(io) => Self::Io { kind: of_io(io.kind()), message: io.to_string() },
            sqlx::Error::Tls(e) => Self::Tls(e.to_string()),
            // A password that SCRAM's preparation refuses.
            sqlx::Error::Configuration(e) => Self::Auth(e.to_string()),
            sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => Self::NoConnection,
            sqlx::Error::Protocol(what) => Self::Io { kind: ErrorKind::ConnectionLost, message: what.clone() },
            e => Self::Other(e.to_string()),
        }
    }
}

fn find_io<'a>(e: &'a (dyn StdError + 'static)) -> Option<&'a io::Error> {
    std::iter::successors(Some(e), |&e| e.source()).find_map(|e| e.downcast_ref())
}

fn is_tls(e: &io::Error) -> bool {
    e.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

fn chain(e: &(dyn StdError + 'static)) -> String {
    let parts: Vec<String> = std::iter::successors(Some(e), |&e| e.source()).map(ToString::to_string).collect();
    parts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: &str, fatal: bool) -> Cause {
        Cause::Server { code: code.to_owned(), message: "x".to_owned(), fatal, constraint: None }
    }

    #[test]
    fn a_write_that_was_interrupted_is_unknown_unless_the_server_said_that_it_rolled_back() {
        for (cause, kind, outcome) in [
            (server("57P01", true), ErrorKind::OutcomeUnknown, Outcome::Unknown),
            (server("57P01", false), ErrorKind::OutcomeUnknown, Outcome::Unknown),
            (server("57P02", true), ErrorKind::OutcomeUnknown, Outcome::Unknown),
            (server("57P03", true), ErrorKind::OutcomeUnknown, Outcome::Unknown),
            (server("XX000", true), ErrorKind::OutcomeUnknown, Outcome::Unknown),
            (server("40001", false), ErrorKind::Backend, Outcome::NotDone),
            (server("57014", false), ErrorKind::Backend, Outcome::NotDone),
            (server("55P03", false), ErrorKind::StreamBlocked, Outcome::NotDone),
            (server("25006", false), ErrorKind::Standby, Outcome::NotDone),
            (Cause::Late(Step::Append), ErrorKind::Timeout(Step::Append), Outcome::Unknown),
            (Cause::NoConnection, ErrorKind::ConnectionLost, Outcome::NotDone),
            (
                Cause::Io { kind: ErrorKind::ConnectionLost, message: String::new() },
                ErrorKind::OutcomeUnknown,
                Outcome::Unknown,
            ),
        ] {
            let e = cause.explain("append", Work::Write);
            assert_eq!((e.kind(), e.outcome()), (kind, outcome), "{cause:?}");
            assert!(outcome == Outcome::NotDone || !e.is_retryable(), "{cause:?}");
            assert_eq!(cause.explain("read", Work::Harmless).outcome(), Outcome::NotDone);
        }
        assert_eq!(server("57P01", true).explain("read", Work::Harmless).kind(), ErrorKind::ServerShutdown);
    }

    #[test]
    fn a_message_names_the_code() {
        let e = server("42P01", false).explain("heads", Work::Harmless);
        assert_eq!(e.to_string(), "heads: x (SQLSTATE 42P01)");
        assert_eq!((e.kind(), e.hint()), (ErrorKind::NotMigrated, Some(NOT_MIGRATED_HINT)));
        let e = server("26000", false).explain("connect", Work::Harmless);
        let said = "connect: a pooler on the way to the server keeps no prepared statements: x (SQLSTATE 26000)";
        assert_eq!((e.to_string().as_str(), e.hint()), (said, Some(POOLER_HINT)));
    }
}
