//! How many messages of a stream are kept: a number, or all of them.

use std::fmt;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How many messages of a stream are kept. Written as a number, or `"none"`: there is no threshold then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CleanupThreshold {
    /// The newest so many, and what is younger than `retention_min_age`.
    Newest(u64),
    /// All.
    Everything,
}

impl CleanupThreshold {
    /// As [`Retain::messages`](crate::Retain::messages) has it.
    pub fn messages(self) -> Option<u64> {
        match self {
            Self::Newest(messages) => Some(messages),
            Self::Everything => None,
        }
    }
}

impl Default for CleanupThreshold {
    /// That of a database that nobody configured: 100.
    fn default() -> Self {
        Self::Newest(100)
    }
}

impl fmt::Display for CleanupThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newest(messages) => messages.fmt(f),
            Self::Everything => f.write_str("none"),
        }
    }
}

impl Serialize for CleanupThreshold {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Newest(messages) => serializer.serialize_u64(*messages),
            Self::Everything => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for CleanupThreshold {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ThresholdVisitor)
    }
}

struct ThresholdVisitor;

impl Visitor<'_> for ThresholdVisitor {
    type Value = CleanupThreshold;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of messages from 0 to 2^63 - 1, or \"none\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        match text.trim() {
            "none" => Ok(CleanupThreshold::Everything),
            number => match number.parse() {
                Ok(number) => self.visit_u64(number),
                Err(_) => Err(E::invalid_value(Unexpected::Str(text), &self)),
            },
        }
    }

    /// The database keeps it as a signed number.
    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        match i64::try_from(number) {
            Ok(_) => Ok(CleanupThreshold::Newest(number)),
            Err(_) => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        match u64::try_from(number) {
            Ok(number) => Ok(CleanupThreshold::Newest(number)),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_or_none_and_nothing_else() {
        let read = |json: &str| serde_json::from_str::<CleanupThreshold>(json);
        for (json, expected) in [
            ("0", CleanupThreshold::Newest(0)),
            ("\"250\"", CleanupThreshold::Newest(250)),
            ("\"none\"", CleanupThreshold::Everything),
            ("9223372036854775807", CleanupThreshold::Newest(i64::MAX.unsigned_abs())),
        ] {
            assert_eq!(read(json).unwrap(), expected, "{json}");
            assert_eq!(read(&serde_json::to_string(&expected).unwrap()).unwrap(), expected);
        }
        for json in ["-1", "\"all\"", "\"\"", "1.5", "true", "9223372036854775808"] {
            assert!(read(json).is_err(), "{json}");
        }
    }
}
