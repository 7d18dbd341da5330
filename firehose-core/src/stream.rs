//! Names of streams and the channel identifiers that stand for them on the wire.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind, Result};

/// The name of a stream: 1 to 1,024 bytes of UTF-8 without NUL. Cheap to clone.
///
/// ```
/// # use firehose_core::StreamName;
/// let orders: StreamName = "orders".parse()?;
/// assert_eq!(orders.as_str(), "orders");
/// assert!("".parse::<StreamName>().is_err());
/// # Ok::<(), firehose_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StreamName(Arc<str>);

impl StreamName {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 1024;

    /// Checks a name.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] where it is empty, longer than [`Self::MAX_BYTES`], or has a NUL.
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        let name = name.as_ref();
        check_name("stream name", name, Self::MAX_BYTES)?;
        Ok(Self(Arc::from(name)))
    }

    /// Checks a name that comes as bytes, from a URL or a file.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] where it is not UTF-8, and as [`Self::new`].
    pub fn from_bytes(name: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(name).map_err(|e| {
            Error::new(ErrorKind::InvalidName, "stream name", format!("not UTF-8 at byte {}", e.valid_up_to()))
        })?;
        Self::new(text)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 8 bytes of the name's SHA-256, by which a [`Token`](crate::Token) knows it.
    pub(crate) fn short_hash(&self) -> [u8; 8] {
        let digest = Sha256::digest(self.0.as_bytes());
        let mut short = [0; 8];
        short.copy_from_slice(&digest[..8]);
        short
    }
}

pub(crate) fn check_name(what: &'static str, name: &str, max: usize) -> Result<()> {
    let problem = if name.is_empty() {
        "must not be empty".to_owned()
    } else if name.len() > max {
        format!("{} bytes, at most {max} are allowed", name.len())
    } else if let Some(at) = name.bytes().position(|b| b == 0) {
        format!("a NUL at byte {at}")
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::InvalidName, what, problem))
}

/// The name that LISTEN and NOTIFY use: 63 hex digits for a stream, a queue or a raw channel, or a name of the user's own.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ChannelIdentifier(Arc<str>);

impl ChannelIdentifier {
    /// The longest identifier, in bytes (PostgreSQL's `NAMEDATALEN - 1`).
    pub const MAX_BYTES: usize = 63;

    /// A channel of the user's own, as it is.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] where it is empty, longer than 63 bytes, or has a NUL.
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        check_name("channel identifier", name.as_ref(), Self::MAX_BYTES)?;
        Ok(Self(Arc::from(name.as_ref())))
    }

    /// The first 63 characters of the lower-case hex SHA-256 of a channel's name.
    pub fn hashed(name: &str) -> Self {
        let mut hex = hex::encode(Sha256::digest(name.as_bytes()));
        hex.truncate(Self::MAX_BYTES);
        Self(Arc::from(hex))
    }

    /// The identifier.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! text_newtype {
    ($t:ident) => {
        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($t), "({:?})"), &*self.0)
            }
        }
        impl std::str::FromStr for $t {
            type Err = Error;
            fn from_str(s: &str) -> Result<Self> {
                Self::new(s)
            }
        }
        impl TryFrom<&str> for $t {
            type Error = Error;
            fn try_from(s: &str) -> Result<Self> {
                Self::new(s)
            }
        }
        impl TryFrom<String> for $t {
            type Error = Error;
            fn try_from(s: String) -> Result<Self> {
                Self::new(s)
            }
        }
        impl TryFrom<&String> for $t {
            type Error = Error;
            fn try_from(s: &String) -> Result<Self> {
                Self::new(s)
            }
        }
        impl TryFrom<&$t> for $t {
            type Error = Error;
            fn try_from(s: &$t) -> Result<Self> {
                Ok(s.clone())
            }
        }
        impl From<$t> for String {
            fn from(s: $t) -> String {
                s.0.as_ref().to_owned()
            }
        }
        impl AsRef<str> for $t {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
        impl std::borrow::Borrow<str> for $t {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}
pub(crate) use text_newtype;
text_newtype!(StreamName);
text_newtype!(ChannelIdentifier);

/// Lets a `TryInto<StreamName>` whose conversion cannot fail be used beside those that can.
impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_at_the_edge() {
        assert!(StreamName::new("a").is_ok());
        assert!(StreamName::new("é".repeat(512)).is_ok(), "1,024 bytes");
        for bad in ["", "a\0b", &"x".repeat(1025)] {
            assert_eq!(StreamName::new(bad).unwrap_err().kind(), ErrorKind::InvalidName);
        }
        let e = StreamName::from_bytes(b"ab\xff").unwrap_err();
        assert_eq!(e.to_string(), "stream name: not UTF-8 at byte 2");
        assert_eq!(StreamName::new("a\0b").unwrap_err().to_string(), "stream name: a NUL at byte 1");
    }

    #[test]
    fn serde_checks_too() {
        assert!(serde_json::from_str::<StreamName>("\"ok\"").is_ok());
        assert!(serde_json::from_str::<StreamName>("\"\"").is_err());
    }
}
