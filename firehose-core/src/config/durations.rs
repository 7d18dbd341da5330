//! Durations as people write them: `"250ms"`, or a number of seconds.

use std::fmt;
use std::time::Duration;

use serde::de::{Error, Visitor};
use serde::{Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*duration))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_any(DurationVisitor)
}

struct DurationVisitor;

impl Visitor<'_> for DurationVisitor {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as \"250ms\", or a number of seconds")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        match text.trim().parse::<f64>() {
            Ok(seconds) => self.visit_f64(seconds),
            Err(_) => humantime::parse_duration(text.trim())
                .map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self)),
        }
    }

    fn visit_f64<E: Error>(self, seconds: f64) -> Result<Duration, E> {
        Duration::try_from_secs_f64(seconds).map_err(|_| E::invalid_value(serde::de::Unexpected::Float(seconds), &self))
    }

    fn visit_u64<E: Error>(self, seconds: u64) -> Result<Duration, E> {
        Ok(Duration::from_secs(seconds))
    }

    fn visit_i64<E: Error>(self, seconds: i64) -> Result<Duration, E> {
        u64::try_from(seconds)
            .map(Duration::from_secs)
            .map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(seconds), &self))
    }
}
