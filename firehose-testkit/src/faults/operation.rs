//! The operations of a backend, as faults and the trace name them.

use std::fmt;

/// A method of one of the backend traits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Operation {
    /// `MessageStore::append`.
    Append,
    /// `MessageStore::get_many`.
    GetMany,
    /// `MessageStore::read_after`.
    ReadAfter,
    /// `MessageStore::read_before`.
    ReadBefore,
    /// `MessageStore::heads`.
    Heads,
    /// `MessageStore::anchors`.
    Anchors,
    /// `MessageStore::changed_since`.
    ChangedSince,
    /// `MessageStore::trim`.
    Trim,
    /// `MessageStore::delete_stream`.
    DeleteStream,
    /// `MessageStore::settings`.
    Settings,
    /// `MessageStore::recover`.
    Recover,
    /// `Notifier::notify`.
    Notify,
    /// `Listener::connect`.
    Connect,
    /// `ListenControl::listen`.
    Listen,
    /// `ListenControl::unlisten`.
    Unlisten,
    /// `ListenControl::registered`.
    Registered,
    /// `ListenControl::ping`.
    Ping,
    /// `ListenControl::close`.
    Close,
}

impl Operation {
    /// Every operation.
    pub const ALL: &[Self] = &[
        Self::Append,
        Self::GetMany,
        Self::ReadAfter,
        Self::ReadBefore,
        Self::Heads,
        Self::Anchors,
        Self::ChangedSince,
        Self::Trim,
        Self::DeleteStream,
        Self::Settings,
        Self::Recover,
        Self::Notify,
        Self::Connect,
        Self::Listen,
        Self::Unlisten,
        Self::Registered,
        Self::Ping,
        Self::Close,
    ];

    /// The method's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::GetMany => "get_many",
            Self::ReadAfter => "read_after",
            Self::ReadBefore => "read_before",
            Self::Heads => "heads",
            Self::Anchors => "anchors",
            Self::ChangedSince => "changed_since",
            Self::Trim => "trim",
            Self::DeleteStream => "delete_stream",
            Self::Settings => "settings",
            Self::Recover => "recover",
            Self::Notify => "notify",
            Self::Connect => "connect",
            Self::Listen => "listen",
            Self::Unlisten => "unlisten",
            Self::Registered => "registered",
            Self::Ping => "ping",
            Self::Close => "close",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
