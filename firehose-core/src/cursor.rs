//! Positions in a stream, and where a subscription begins.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::message::{Epoch, MessageId, Sequence, Timestamp};

/// A position in a stream: right after the message with this sequence.
///
/// Its text form, which serde uses too, is `epoch.sequence.id.created_at` with `-` for what is not known, so
/// `12.345.6789.1764547200123456` or `-.0.-.-`. It never looks like an integer.
///
/// Id and time are what tells a stream that went back in time (a restore) from one that went on; a cursor without them
/// works, and is compared by epoch and sequence alone. A stream that never existed has a cursor without epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cursor {
    /// The stream's epoch; `None` where the stream did not exist.
    pub epoch: Option<Epoch>,
    /// The sequence of the last message before this position; 0 at the beginning.
    pub sequence: Sequence,
    /// The id of that message, where it is known.
    pub id: Option<MessageId>,
    /// When that message was stored, where it is known.
    pub created_at: Option<Timestamp>,
}

impl Cursor {
    /// The beginning of a stream, whatever its epoch.
    pub const BEGINNING: Self = Self { epoch: None, sequence: Sequence::ZERO, id: None, created_at: None };

    /// The position after `sequence` of `epoch`, without the marks that recognise a restored database.
    pub fn at(epoch: Option<Epoch>, sequence: Sequence) -> Self {
        Self { epoch, sequence, id: None, created_at: None }
    }

    /// The same position without the marks of its row.
    pub(crate) fn moved_to(self, sequence: Sequence) -> Self {
        Self { sequence, id: None, created_at: None, ..self }
    }

    /// Refuses what no store ever gave out.
    pub(crate) fn check(&self, operation: &'static str) -> Result<()> {
        let absurd = if self.sequence.0 < 0 {
            format!("sequence {} is negative", self.sequence)
        } else if self.epoch.is_some_and(|e| e.0 <= 0) {
            "the epoch is not positive".to_owned()
        } else if self.id.is_some_and(|id| id.0 <= 0) {
            "the id is not positive".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::InvalidCursor, operation, absurd))
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |n: Option<i64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let (epoch, id, at) =
            (part(self.epoch.map(|e| e.0)), part(self.id.map(|i| i.0)), part(self.created_at.map(|t| t.0)));
        write!(f, "{epoch}.{}.{id}.{at}", self.sequence)
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({self})")
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let malformed = || {
            let shown: String = text.chars().take(80).collect();
            Error::new(
                ErrorKind::InvalidCursor,
                "cursor",
                format!("{shown:?} is not of the form epoch.sequence.id.time"),
            )
        };
        let part = |s: &str| match s {
            "-" => Ok(None),
            s if s.starts_with('+') => Err(malformed()),
            s => s.parse::<i64>().map(Some).map_err(|_| malformed()),
        };
        let mut parts = text.split('.');
        let (Some(epoch), Some(sequence), Some(id), Some(at), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed());
        };
        let cursor = Self {
            epoch: part(epoch)?.map(Epoch),
            sequence: Sequence(part(sequence)?.ok_or_else(malformed)?),
            id: part(id)?.map(MessageId),
            created_at: part(at)?.map(Timestamp),
        };
        cursor.check("cursor")?;
        Ok(cursor)
    }
}

impl TryFrom<String> for Cursor {
    type Error = Error;
    fn try_from(s: String) -> Result<Self> {
        s.parse()
    }
}

impl From<Cursor> for String {
    fn from(c: Cursor) -> String {
        c.to_string()
    }
}

/// Where a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// With what is broadcast from now on.
    Now,
    /// With the oldest message that is retained.
    Earliest,
    /// After a position that a message, a subscription or a head gave.
    After(Cursor),
    /// After a message id, the cursor that the gem's clients hold. Ids count over all streams, so what may have been
    /// missed is said inexactly, and nothing is ever a reset.
    AfterId(MessageId),
}

/// Where a page of [`history`](crate::Firehose::history) ends: before this position's message.
///
/// `Before(message.cursor())` leaves that message out; [`Before::NOW`] begins with the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Before(pub Cursor);

impl Before {
    /// Before nothing: the newest messages.
    pub const NOW: Self = Self(Cursor { epoch: None, sequence: Sequence(i64::MAX), id: None, created_at: None });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_goes_both_ways() {
        for text in ["12.345.6789.1764547200123456", "-.0.-.-", "3.7.-.-", "3.7.9.-"] {
            let cursor: Cursor = text.parse().unwrap();
            assert_eq!(cursor.to_string(), text);
            assert_eq!(serde_json::from_str::<Cursor>(&serde_json::to_string(&cursor).unwrap()).unwrap(), cursor);
        }
    }

    #[test]
    fn what_is_no_cursor_is_a_typed_error() {
        for bad in [
            "",
            "7",
            "1.2",
            "1.2.3.4.5",
            "1.-.3.4",
            "1.-5.-.-",
            "0.1.-.-",
            "1.2.0.-",
            "a.b.c.d",
            "1.+2.-.-",
            "9.99999999999999999999.-.-",
        ] {
            assert_eq!(bad.parse::<Cursor>().unwrap_err().kind(), ErrorKind::InvalidCursor, "{bad:?}");
        }
    }
}
