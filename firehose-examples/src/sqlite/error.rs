//! What SQLite's codes mean here, in one table.

use firehose_core::{Error, ErrorKind, Outcome, Step};
use sea_orm::{DbErr, RuntimeErr, sqlx};

/// What was going on when something failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Nothing can have been changed: opening, reading.
    Harmless,
    /// A write whose COMMIT was not sent: it is rolled back.
    Unfinished,
    /// A COMMIT.
    Commit,
}

/// What a code says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Verdict {
    kind: ErrorKind,
    /// Whether the same call may well succeed later.
    retryable: bool,
    /// Whether a COMMIT that gave it has certainly not happened.
    rolled_back: bool,
    hint: Option<&'static str>,
}

const fn verdict(kind: ErrorKind, retryable: bool, rolled_back: bool, hint: Option<&'static str>) -> Verdict {
    Verdict { kind, retryable, rolled_back, hint }
}

const OTHER: Verdict = verdict(ErrorKind::Backend, false, false, None);
const BUSY: i32 = 5;

/// The primary result codes (SQLite's documentation, "Result and Error Codes"). What fails while pages are written may
/// have reached the disk all the same: only where the file was not touched, or had no room, it has not.
#[rustfmt::skip]
const CODES: &[(i32, Verdict)] = &[
    // ERROR, INTERNAL: a statement of ours
    (1, OTHER), (2, OTHER),
    // PERM, READONLY, AUTH
    (3, verdict(ErrorKind::Permission, false, true, None)),
    (8, verdict(ErrorKind::Permission, false, true, Some("the file and its folder must be writable"))),
    (23, verdict(ErrorKind::Permission, false, true, None)),
    // ABORT, NOMEM, INTERRUPT
    (4, verdict(ErrorKind::Backend, true, false, None)),
    (7, verdict(ErrorKind::Backend, true, false, None)),
    (9, verdict(ErrorKind::Backend, true, false, None)),
    // BUSY, LOCKED: another process holds the file
    (BUSY, verdict(ErrorKind::StreamBlocked, true, true, None)),
    (6, verdict(ErrorKind::StreamBlocked, true, true, None)),
    // IOERR, CORRUPT
    (10, verdict(ErrorKind::Backend, true, false, None)),
    (11, verdict(ErrorKind::Backend, false, false, Some("the file is damaged: take a copy back, or try .recover of the sqlite3 shell"))),
    // FULL
    (13, verdict(ErrorKind::Backend, true, true, Some("the disk is full, or the file has reached the limit it was given"))),
    // CANTOPEN, NOTADB
    (14, verdict(ErrorKind::UnknownDatabase, false, true, Some("its folder must be there, and both must be accessible"))),
    (26, verdict(ErrorKind::UnknownDatabase, false, true, Some("the file was made by something else: choose another"))),
    // PROTOCOL, SCHEMA: someone else was faster
    (15, verdict(ErrorKind::Backend, true, true, None)),
    (17, verdict(ErrorKind::Backend, true, true, None)),
    // TOOBIG
    (18, verdict(ErrorKind::TooLarge, false, true, None)),
    // CONSTRAINT
    (19, verdict(ErrorKind::Backend, false, true, None)),
];

fn of_code(code: i32) -> Verdict {
    // The upper bits say which kind of it.
    CODES.iter().find(|(known, _)| *known == code & 0xff).map_or(OTHER, |(_, verdict)| *verdict)
}

/// Whether somebody else holds the file.
pub(super) fn is_busy(e: &DbErr) -> bool {
    code(e).is_some_and(|code| of_code(code).kind == ErrorKind::StreamBlocked)
}

/// The error of `operation`, in which `work` was going on.
pub(super) fn explain(operation: &'static str, step: Step, work: Work, e: &DbErr) -> Error {
    let verdict = match (e, code(e)) {
        (_, Some(code)) => of_code(code),
        // No connection was free in time, so nothing was tried; or the store was closed.
        (DbErr::ConnectionAcquire(sea_orm::error::ConnAcquireErr::Timeout), _) => {
            verdict(ErrorKind::Timeout(step), true, true, None)
        }
        (DbErr::ConnectionAcquire(_), _) => verdict(ErrorKind::ShutDown, false, true, None),
        _ => OTHER,
    };
    let unknown = work == Work::Commit && !verdict.rolled_back;
    let kind = match verdict.kind {
        _ if unknown => ErrorKind::OutcomeUnknown,
        // Nobody writes here: it is the file that could not be had in time.
        ErrorKind::StreamBlocked if work == Work::Harmless => ErrorKind::Timeout(step),
        kind => kind,
    };
    let outcome = if unknown { Outcome::Unknown } else { Outcome::NotDone };
    let error = Error::new(kind, operation, message(e)).with_outcome(outcome);
    let error = error.with_retryable(verdict.retryable && !unknown);
    match verdict.hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// SQLite's extended result code.
fn code(e: &DbErr) -> Option<i32> {
    driver(e)?.as_database_error()?.code()?.parse().ok()
}

fn driver(e: &DbErr) -> Option<&sqlx::Error> {
    match e {
        DbErr::Conn(RuntimeErr::SqlxError(e))
        | DbErr::Exec(RuntimeErr::SqlxError(e))
        | DbErr::Query(RuntimeErr::SqlxError(e)) => Some(e),
        _ => None,
    }
}

/// SQLite's own words name no value of a row.
fn message(e: &DbErr) -> String {
    match (e, driver(e)) {
        (_, Some(sqlx::Error::Database(e))) => e.to_string(),
        (_, Some(sqlx::Error::PoolTimedOut)) | (DbErr::ConnectionAcquire(_), _) => {
            "no connection was free in time, or the store was closed".to_owned()
        }
        (_, Some(sqlx::Error::WorkerCrashed)) => "a connection's thread ended".to_owned(),
        (_, Some(e)) => e.to_string(),
        (e, None) => e.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn each_code_means_what_it_should() {
        for (code, kind, retryable, rolled_back) in [
            (1, ErrorKind::Backend, false, false),
            (3, ErrorKind::Permission, false, true),
            (5, ErrorKind::StreamBlocked, true, true),
            (261, ErrorKind::StreamBlocked, true, true), // BUSY_RECOVERY
            (517, ErrorKind::StreamBlocked, true, true), // BUSY_SNAPSHOT
            (6, ErrorKind::StreamBlocked, true, true),
            (8, ErrorKind::Permission, false, true),
            (1032, ErrorKind::Permission, false, true), // READONLY_DBMOVED
            (10, ErrorKind::Backend, true, false),
            (1034, ErrorKind::Backend, true, false), // IOERR_FSYNC
            (11, ErrorKind::Backend, false, false),
            (13, ErrorKind::Backend, true, true),
            (14, ErrorKind::UnknownDatabase, false, true),
            (18, ErrorKind::TooLarge, false, true),
            (19, ErrorKind::Backend, false, true),
            (2067, ErrorKind::Backend, false, true), // CONSTRAINT_UNIQUE
            (26, ErrorKind::UnknownDatabase, false, true),
            (99, ErrorKind::Backend, false, false),
        ] {
            let found = of_code(code);
            assert_eq!((found.kind, found.retryable, found.rolled_back), (kind, retryable, rolled_back), "{code}");
        }
        let mut codes: Vec<_> = CODES.iter().map(|(code, _)| *code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), CODES.len(), "a code stands twice");
    }

    #[test]
    fn a_commit_that_may_have_happened_is_never_called_not_done() {
        let crashed = DbErr::Query(RuntimeErr::SqlxError(sqlx::Error::WorkerCrashed.into()));
        let error = explain("append", Step::Append, Work::Commit, &crashed);
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::OutcomeUnknown, Outcome::Unknown));
        assert!(!error.is_retryable());
        let error = explain("append", Step::Append, Work::Unfinished, &crashed);
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Backend, Outcome::NotDone));
    }
}
