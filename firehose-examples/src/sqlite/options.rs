//! How a store is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use firehose_core::{Clock, Error, ErrorKind, Result, SystemClock};

use super::SqliteStore;
use super::connections::Connections;
use super::schema;

/// The operation of errors that come before there is a store.
pub(super) const OPERATION: &str = "open store";

/// How a [`SqliteStore`] is opened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// Where it takes the time of its messages from, and its pauses.
    pub clock: Arc<dyn Clock>,
    /// How many reads run at a time; at least 1.
    pub readers: u32,
    /// How large the file may grow, in bytes; an append that would need more fails, and nothing of it is stored. The
    /// `-wal` file beside it is not counted: it holds some MiB.
    pub most_bytes: Option<u64>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock::new()), readers: 4, most_bytes: None }
    }
}

impl SqliteOptions {
    /// The same options with another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The same options with so many reads at a time.
    #[must_use]
    pub fn with_readers(mut self, readers: u32) -> Self {
        self.readers = readers;
        self
    }

    /// The same options with a bound to the file.
    #[must_use]
    pub fn with_most_bytes(mut self, most_bytes: u64) -> Self {
        self.most_bytes = Some(most_bytes);
        self
    }

    /// Opens `path`, and makes file and tables where they are missing.
    ///
    /// # Errors
    /// - [`Config`](ErrorKind::Config): the path names no file.
    /// - [`UnknownDatabase`](ErrorKind::UnknownDatabase): the file cannot be opened, is not SQLite's, or is another
    ///   program's; it is left as it was.
    /// - [`Permission`](ErrorKind::Permission): it may not be written to.
    /// - [`NotMigrated`](ErrorKind::NotMigrated): a later version of this store made it.
    /// - [`Timeout`](ErrorKind::Timeout): another process holds it for seconds.
    /// - [`Backend`](ErrorKind::Backend): whatever else SQLite says.
    ///
    /// # Cancel safety
    /// Dropped half way, the file holds the tables, or nothing yet.
    pub async fn open(self, path: impl AsRef<Path>) -> Result<SqliteStore> {
        let path = checked(path.as_ref())?;
        schema::prepare(&path, &self.clock).await?;
        let connections = Connections::open(&path, &self).await?;
        Ok(SqliteStore { connections, clock: self.clock, path, trimming: Arc::default() })
    }
}

/// The path as SQLite is to see it: absolute, since it gives names that begin with `:` or `file:` a meaning.
fn checked(path: &Path) -> Result<PathBuf> {
    let refuse = |why: &str| Err(Error::new(ErrorKind::Config, OPERATION, format!("{path:?}: {why}")));
    match path.to_str() {
        None => refuse("the path is not UTF-8"),
        Some("") => Err(Error::new(ErrorKind::Config, OPERATION, "the path is empty")),
        Some(text) if text.contains('\0') => refuse("the path has a NUL"),
        Some(":memory:") => refuse("this store keeps its messages in a file; for one in memory use firehose-testkit"),
        Some(_) => std::path::absolute(path).or_else(|e| refuse(&e.to_string())),
    }
}
