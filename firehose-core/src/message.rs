//! Messages, before and after they are stored, and the numbers they carry.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind, Result};
use crate::stream::{StreamName, text_newtype};

macro_rules! number_newtype {
    ($(#[$doc:meta])* $t:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $t(pub i64);

        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl fmt::Debug for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($t), "({})"), self.0)
            }
        }
        impl From<i64> for $t {
            fn from(n: i64) -> Self {
                Self(n)
            }
        }
    };
}

number_newtype! {
    /// The id of a stored message: unique in its store, and rising with the sequence within a stream.
    MessageId
}
number_newtype! {
    /// The place of a message in its stream: 1, 2, 3, … without a hole.
    Sequence
}
number_newtype! {
    /// One life of a stream, from its creation to its deletion. In PostgreSQL the `id` of its channel row.
    Epoch
}
number_newtype! {
    /// Microseconds since 1970-01-01 00:00:00 UTC.
    Timestamp
}

impl Sequence {
    /// The place before the first message.
    pub const ZERO: Self = Self(0);

    /// The next place.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The place before this one, never below [`Self::ZERO`].
    #[must_use]
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1).max(0))
    }
}

impl Timestamp {
    /// The timestamp of a system time, cut to microseconds.
    pub fn from_system_time(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self(i64::try_from(after.as_micros()).unwrap_or(i64::MAX)),
            Err(before) => Self(i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |us| -us)),
        }
    }

    /// The same instant as a system time.
    pub fn to_system_time(self) -> SystemTime {
        let distance = Duration::from_micros(self.0.unsigned_abs());
        if self.0 >= 0 { UNIX_EPOCH + distance } else { UNIX_EPOCH - distance }
    }
}

/// A key that makes publishing idempotent: 1 to 255 bytes without NUL, remembered while its message is retained.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MessageKey(Arc<str>);

impl MessageKey {
    /// The longest key, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// Checks a key.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`] where it is empty, longer than [`Self::MAX_BYTES`], or has a NUL.
    pub fn new(key: impl AsRef<str>) -> Result<Self> {
        let key = key.as_ref();
        let problem = if key.is_empty() {
            "must not be empty".to_owned()
        } else if key.len() > Self::MAX_BYTES {
            format!("{} bytes, at most {} are allowed", key.len(), Self::MAX_BYTES)
        } else if key.bytes().any(|b| b == 0) {
            "has a NUL".to_owned()
        } else {
            return Ok(Self(Arc::from(key)));
        };
        Err(Error::new(ErrorKind::InvalidKey, "message key", problem))
    }

    /// The key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
text_newtype!(MessageKey);

/// A message that is to be stored, checked already.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewMessage {
    /// The stream it goes to.
    pub stream: StreamName,
    /// Its data: UTF-8 without NUL; empty is allowed.
    pub data: Arc<str>,
    /// The key under which a repeat finds the first one.
    pub key: Option<MessageKey>,
}

impl NewMessage {
    /// A message with `data` for `stream`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] and [`ErrorKind::InvalidData`] (a NUL, which PostgreSQL cannot store).
    pub fn new<S>(stream: S, data: impl Into<Arc<str>>) -> Result<Self>
    where
        S: TryInto<StreamName>,
        Error: From<S::Error>,
    {
        let (stream, data) = (stream.try_into()?, data.into());
        check_data("message", &data)?;
        Ok(Self { stream, data, key: None })
    }

    /// The same message under a key: repeating it gives the message that was stored first.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`].
    pub fn key(mut self, key: impl AsRef<str>) -> Result<Self> {
        self.key = Some(MessageKey::new(key)?);
        Ok(self)
    }
}

/// Data that PostgreSQL's `text` can hold.
pub(crate) fn check_data(operation: &'static str, data: &str) -> Result<()> {
    match data.bytes().position(|b| b == 0) {
        None => Ok(()),
        Some(at) => Err(Error::new(ErrorKind::InvalidData, operation, format!("data has a NUL at byte {at}"))),
    }
}

impl fmt::Debug for NewMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewMessage")
            .field("stream", &self.stream)
            .field("bytes", &self.data.len())
            .field("key", &self.key.is_some())
            .finish()
    }
}

/// A stored message.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Message {
    /// Its id, unique in the store.
    pub id: MessageId,
    /// The epoch of its stream.
    pub channel_id: Epoch,
    /// Its place in the stream.
    pub sequence: Sequence,
    /// Its stream.
    pub stream: StreamName,
    /// Its data.
    pub data: Arc<str>,
    /// When it was stored; `None` where it came by a notification that does not say so (the gem's do not).
    #[serde(default)]
    pub created_at: Option<Timestamp>,
}

impl Message {
    /// A message as a store gives it.
    pub fn new(id: MessageId, channel_id: Epoch, sequence: Sequence, stream: StreamName, data: Arc<str>) -> Self {
        Self { id, channel_id, sequence, stream, data, created_at: None }
    }

    /// The same message with its time.
    #[must_use]
    pub fn with_created_at(mut self, at: Timestamp) -> Self {
        self.created_at = Some(at);
        self
    }

    /// The position right after this message.
    pub fn cursor(&self) -> Cursor {
        Cursor { epoch: Some(self.channel_id), sequence: self.sequence, id: Some(self.id), created_at: self.created_at }
    }

    /// Its data, read as JSON.
    ///
    /// # Errors
    /// serde_json's own, where the data is not what `T` asks for.
    pub fn json<'a, T: Deserialize<'a>>(&'a self) -> serde_json::Result<T> {
        serde_json::from_str(&self.data)
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("stream", &self.stream)
            .field("sequence", &self.sequence.0)
            .field("id", &self.id.0)
            .field("channel_id", &self.channel_id.0)
            .field("bytes", &self.data.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_with_a_nul_is_refused_before_anything_else_happens() {
        let e = NewMessage::new("a", "x\0y").unwrap_err();
        assert_eq!((e.kind(), e.to_string().as_str()), (ErrorKind::InvalidData, "message: data has a NUL at byte 1"));
        assert!(NewMessage::new("a", "").is_ok(), "empty data is allowed");
    }

    #[test]
    fn keys_are_checked() {
        for bad in ["", "a\0", &"k".repeat(256)] {
            assert_eq!(MessageKey::new(bad).unwrap_err().kind(), ErrorKind::InvalidKey);
        }
        assert!(MessageKey::new("k".repeat(255)).is_ok());
    }

    #[test]
    fn timestamps_go_both_ways() {
        for us in [0, 1, -1, 1_764_547_200_123_456] {
            assert_eq!(Timestamp::from_system_time(Timestamp(us).to_system_time()), Timestamp(us));
        }
    }

    #[test]
    fn debug_never_shows_the_data() {
        let m = NewMessage::new("a", "secret").unwrap();
        assert!(!format!("{m:?}").contains("secret"));
    }
}
