//! Text that is never shown.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A connection URL or another text with a password in it: neither `Debug` nor serde's `Serialize` shows it.
///
/// ```
/// # use firehose_core::Secret;
/// let url = Secret::from("postgres://app:hunter2@localhost/app");
/// assert_eq!(format!("{url:?}"), "Secret(…)");
/// assert!(url.expose().contains("hunter2"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text. Show it to nobody but who needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("…")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // serde's own error would print the value that did not fit.
        match String::deserialize(deserializer) {
            Ok(text) => Ok(Self(text)),
            Err(_) => Err(serde::de::Error::custom("text in quotes is expected")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_never_shown() {
        let secret = Secret::from("postgres://u:hunter2@h/d");
        let shown = format!("{secret:?} {secret:#?} {}", serde_json::to_string(&secret).unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
        let wrong = serde_json::from_str::<Secret>("{\"hunter2\":\"hunter2\"}").unwrap_err();
        assert!(!wrong.to_string().contains("hunter2"), "{wrong}");
    }
}
