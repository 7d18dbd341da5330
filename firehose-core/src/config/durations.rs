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

/// A duration that may be left out, or written as `"none"`.
pub(super) mod optional {
    use std::fmt;
    use std::time::Duration;

    use serde::de::{Error, Unexpected, Visitor};
    use serde::{Deserializer, Serializer};

    use super::DurationVisitor;

    // serde asks for this signature.
    #[allow(clippy::ref_option, reason = "what `serde(with)` calls")]
    pub(in super::super) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        deserializer.deserialize_any(OptionalVisitor)
    }

    struct OptionalVisitor;

    impl Visitor<'_> for OptionalVisitor {
        type Value = Option<Duration>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            DurationVisitor.expecting(f)?;
            f.write_str(", or \"none\"")
        }

        fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            match text.trim() {
                "none" => Ok(None),
                _ => DurationVisitor
                    .visit_str(text)
                    .map(Some)
                    .map_err(|_: E| E::invalid_value(Unexpected::Str(text), &self)),
            }
        }

        fn visit_f64<E: Error>(self, seconds: f64) -> Result<Self::Value, E> {
            DurationVisitor.visit_f64(seconds).map(Some)
        }

        fn visit_u64<E: Error>(self, seconds: u64) -> Result<Self::Value, E> {
            DurationVisitor.visit_u64(seconds).map(Some)
        }

        fn visit_i64<E: Error>(self, seconds: i64) -> Result<Self::Value, E> {
            DurationVisitor.visit_i64(seconds).map(Some)
        }
    }
}
