//! From the names that people use to the identifiers on the wire.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::stream::{ChannelIdentifier, StreamName, check_name};

/// How streams are laid out on notification channels. A property of the database, not of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// A channel a stream; understood by the gem.
    #[default]
    PerStream,
    /// Streams share a fixed number of channels, and the receiver filters.
    Buckets,
}

/// Turns names into [`ChannelIdentifier`]s, by the settings of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Naming {
    prefix: String,
    layout: Layout,
    buckets: u32,
}

impl Naming {
    /// The prefix of a database that nobody configured.
    pub const DEFAULT_PREFIX: &str = "firehose";

    /// Names under `prefix`; `buckets` counts in the layout of that name only.
    pub fn new(prefix: impl Into<String>, layout: Layout, buckets: u32) -> Self {
        Self { prefix: prefix.into(), layout, buckets: buckets.max(1) }
    }

    /// The word that names begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The channel on which messages of `stream` are announced.
    pub fn stream(&self, stream: &StreamName) -> ChannelIdentifier {
        match self.layout {
            Layout::PerStream => ChannelIdentifier::hashed(&format!("{}:{stream}", self.prefix)),
            Layout::Buckets => {
                let hash = u64::from_be_bytes(stream.short_hash());
                self.bucket((hash % u64::from(self.buckets)) as u32)
            }
        }
    }

    /// The channel of bucket `number`.
    pub fn bucket(&self, number: u32) -> ChannelIdentifier {
        ChannelIdentifier::hashed(&format!("{}-bucket:{number}", self.prefix))
    }

    /// A channel of the library's own, on which one session hears its own probes.
    pub(crate) fn probe(&self, nonce: u64) -> ChannelIdentifier {
        ChannelIdentifier::hashed(&format!("{}-probe:{nonce:016x}", self.prefix))
    }

    /// The channel of a queue or a raw channel.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] where the name is no name, or begins with the prefix and `:` or `-`: those are the
    /// channels of streams and of the library itself.
    pub fn raw(&self, name: &str) -> Result<ChannelIdentifier> {
        check_name("channel name", name, StreamName::MAX_BYTES)?;
        if let Some(rest) = name.strip_prefix(self.prefix.as_str())
            && rest.starts_with([':', '-'])
        {
            let message = format!("{name:?} is reserved: names that begin with \"{}:\" or \"{0}-\" are", self.prefix);
            return Err(Error::new(ErrorKind::InvalidName, "channel name", message));
        }
        Ok(if self.prefix == Self::DEFAULT_PREFIX {
            ChannelIdentifier::hashed(name)
        } else {
            ChannelIdentifier::hashed(&format!("{}-queue:{name}", self.prefix))
        })
    }
}

impl Default for Naming {
    fn default() -> Self {
        Self::new(Self::DEFAULT_PREFIX, Layout::PerStream, 256)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_names_are_refused_and_others_are_not() {
        let naming = Naming::default();
        for bad in ["firehose:orders", "firehose-bucket:1", "", "a\0"] {
            assert_eq!(naming.raw(bad).unwrap_err().kind(), ErrorKind::InvalidName, "{bad:?}");
        }
        assert!(naming.raw("firehoses").is_ok());
        assert!(naming.raw("firehose").is_ok());
    }

    #[test]
    fn a_prefix_keeps_two_installations_apart() {
        let (a, b) = (Naming::default(), Naming::new("blue", Layout::PerStream, 256));
        let orders = StreamName::new("orders").unwrap();
        assert_ne!(a.stream(&orders), b.stream(&orders));
        assert_ne!(a.raw("orders").unwrap(), b.raw("orders").unwrap());
        assert_eq!(b.raw("orders").unwrap(), ChannelIdentifier::hashed("blue-queue:orders"));
        assert!(b.raw("firehose:x").is_ok(), "only its own prefix is reserved");
    }

    #[test]
    fn a_stream_and_a_queue_of_one_name_do_not_meet() {
        let naming = Naming::default();
        assert_ne!(naming.stream(&StreamName::new("orders").unwrap()), naming.raw("orders").unwrap());
    }
}
