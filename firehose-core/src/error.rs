//! What can go wrong, told so that a caller can act on it.

use std::fmt;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The one error of the library: what was tried, what went wrong, and what may have happened all the same.
///
/// `Display` reads `operation: what, with the values`; the cause stays in the chain ([`std::error::Error::source`]).
/// No message, name of a secret or connection string is ever part of it.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    operation: &'static str,
    message: String,
    retryable: bool,
    outcome: Outcome,
    hint: Option<&'static str>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What kind of failure an [`Error`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A stream's, queue's or channel's name is empty, too long, has a NUL, or is reserved.
    InvalidName,
    /// Data that cannot be stored: a NUL, or text that is not UTF-8.
    InvalidData,
    /// Data or a payload above its limit.
    TooLarge,
    /// A message key that is empty, too long, or has a NUL.
    InvalidKey,
    /// A cursor or a token that cannot be read.
    InvalidCursor,
    /// Configuration that cannot be read, or that contradicts itself.
    Config,
    /// The configuration names a setting of the database with another value than the database's own.
    SettingsMismatch,
    /// Too much waits already; nothing was taken in.
    Overloaded,
    /// Another transaction holds the stream; nothing was stored.
    StreamBlocked,
    /// A step ran out of time.
    Timeout(Step),
    /// The connection was lost, or the time ran out, after the work may have been done.
    OutcomeUnknown,
    /// The connection to the backend was lost, or could not be made.
    ConnectionLost,
    /// Nothing accepts connections at the address.
    Refused,
    /// The host's name cannot be resolved.
    Dns,
    /// The server does not know the user or refuses the password.
    Auth,
    /// An encrypted connection could not be made as it was asked for.
    Tls,
    /// The user may not do this.
    Permission,
    /// The server has no such database.
    UnknownDatabase,
    /// The server takes no writes: a standby, or one that was demoted.
    Standby,
    /// What answers at the address is a pooler that keeps no prepared statements.
    Pooler,
    /// The server has no connection left for this user.
    LimitReached,
    /// The database does not hold the tables yet, or not all of them.
    NotMigrated,
    /// The server is shutting down, starting up or recovering.
    ServerShutdown,
    /// The engine is shut down, or is shutting down.
    ShutDown,
    /// The backend does not offer this.
    NotSupported,
    /// Any other failure of the backend.
    Backend,
}

/// The step of an operation that ran out of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// Opening a listening session.
    Connect,
    /// Waiting until LISTEN is acknowledged.
    Listen,
    /// Giving up a LISTEN.
    Unlisten,
    /// Asking a session for an answer.
    Ping,
    /// Reading the head of a stream.
    Heads,
    /// Comparing cursors with the rows they were taken from.
    Anchors,
    /// Reading messages.
    Read,
    /// Storing messages.
    Append,
    /// Sending notifications.
    Notify,
    /// Reading the settings of the store.
    Settings,
    /// Removing a stream.
    Delete,
    /// Removing old messages.
    Trim,
}

/// Whether something that failed may have been done all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Nothing was done; repeating is safe.
    NotDone,
    /// Nobody knows; repeating is safe exactly when the message has a [`MessageKey`](crate::MessageKey).
    Unknown,
}

impl Error {
    /// An error of `kind` in `operation`. `message` carries the values, lower case and without a full stop.
    pub fn new(kind: ErrorKind, operation: &'static str, message: impl Into<String>) -> Self {
        let (retryable, outcome) = kind.defaults();
        Self(Box::new(Inner { kind, operation, message: message.into(), retryable, outcome, hint: None, source: None }))
    }

    /// The same error with the cause underneath it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The same error with a word on what to do.
    #[must_use]
    pub fn with_hint(mut self, hint: &'static str) -> Self {
        self.0.hint = Some(hint);
        self
    }

    /// The same error, with what is known of the outcome.
    #[must_use]
    pub fn with_outcome(mut self, outcome: Outcome) -> Self {
        self.0.outcome = outcome;
        self
    }

    /// The same error, with the backend's word on whether a repeat can help.
    #[must_use]
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.0.retryable = retryable;
        self
    }

    /// What kind of failure this is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The operation that failed.
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// Whether the same call may well succeed later. Decided where the cause was known.
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }

    /// Whether the work may have been done although the call failed.
    pub fn outcome(&self) -> Outcome {
        self.0.outcome
    }

    /// What to do about it, where there is something to say.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint
    }

    /// A copy for a second receiver: everything but the chain, which is folded into the message.
    #[must_use]
    pub fn replicate(&self) -> Self {
        let mut message = self.0.message.clone();
        let mut cause = std::error::Error::source(self);
        while let Some(c) = cause {
            message.push_str(": ");
            message.push_str(&c.to_string());
            cause = c.source();
        }
        Self(Box::new(Inner {
            kind: self.0.kind,
            operation: self.0.operation,
            message,
            retryable: self.0.retryable,
            outcome: self.0.outcome,
            hint: self.0.hint,
            source: None,
        }))
    }

    pub(crate) fn timeout(operation: &'static str, step: Step, after: std::time::Duration) -> Self {
        let after = humantime::format_duration(after);
        Self::new(ErrorKind::Timeout(step), operation, format!("{} did not end within {after}", step.name()))
    }

    pub(crate) fn shut_down(operation: &'static str) -> Self {
        Self::new(ErrorKind::ShutDown, operation, "the engine is shut down")
    }
}

impl ErrorKind {
    /// (retryable, outcome) where the one who makes the error does not say otherwise.
    fn defaults(self) -> (bool, Outcome) {
        match self {
            Self::InvalidName
            | Self::InvalidData
            | Self::TooLarge
            | Self::InvalidKey
            | Self::InvalidCursor
            | Self::Config
            | Self::SettingsMismatch
            | Self::ShutDown
            | Self::Tls
            | Self::Auth
            | Self::Permission
            | Self::UnknownDatabase
            | Self::Pooler
            | Self::NotMigrated
            | Self::NotSupported => (false, Outcome::NotDone),
            Self::Overloaded
            | Self::StreamBlocked
            | Self::ConnectionLost
            | Self::Refused
            | Self::Dns
            | Self::Standby
            | Self::LimitReached
            | Self::ServerShutdown => (true, Outcome::NotDone),
            Self::Timeout(Step::Append | Step::Delete) | Self::OutcomeUnknown => (false, Outcome::Unknown),
            // Repeating it is always safe.
            Self::Timeout(Step::Trim) => (true, Outcome::Unknown),
            Self::Timeout(_) => (true, Outcome::NotDone),
            Self::Backend => (false, Outcome::Unknown),
        }
    }
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Connect => "connecting",
            Self::Listen => "LISTEN",
            Self::Unlisten => "UNLISTEN",
            Self::Ping => "ping",
            Self::Heads => "reading heads",
            Self::Anchors => "comparing cursors",
            Self::Read => "reading messages",
            Self::Append => "storing",
            Self::Notify => "notifying",
            Self::Settings => "reading settings",
            Self::Delete => "deleting the stream",
            Self::Trim => "trimming",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.operation, self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut d = f.debug_struct("Error");
        d.field("kind", &self.0.kind).field("operation", &self.0.operation).field("message", &self.0.message);
        d.field("outcome", &self.0.outcome);
        if let Some(source) = &self.0.source {
            d.field("source", source);
        }
        d.finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|s| s as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_names_the_operation_and_leaves_the_cause_to_the_chain() {
        let e = Error::new(ErrorKind::ConnectionLost, "append", "connection lost").with_source("socket closed");
        assert_eq!(e.to_string(), "append: connection lost");
        assert_eq!(std::error::Error::source(&e).map(ToString::to_string).as_deref(), Some("socket closed"));
        assert_eq!(e.replicate().to_string(), "append: connection lost: socket closed");
    }

    #[test]
    fn what_may_have_been_stored_is_never_called_not_done() {
        for kind in [ErrorKind::Timeout(Step::Append), ErrorKind::OutcomeUnknown, ErrorKind::Backend] {
            let e = Error::new(kind, "append", "x");
            assert_eq!(e.outcome(), Outcome::Unknown, "{kind:?}");
            assert!(!e.is_retryable(), "{kind:?}");
        }
        for kind in [ErrorKind::Overloaded, ErrorKind::StreamBlocked, ErrorKind::ConnectionLost] {
            assert_eq!(Error::new(kind, "append", "x").outcome(), Outcome::NotDone, "{kind:?}");
        }
    }

    #[test]
    fn it_is_one_pointer_wide() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }
}
