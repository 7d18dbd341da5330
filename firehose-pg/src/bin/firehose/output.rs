//! Standard output and standard error, where a reader that went away is no error.

use std::fmt::Display;
use std::io::{self, Write as _};

use firehose_core::{Error, ErrorKind};

/// Says something to the person, on standard error.
pub(crate) fn say(text: impl Display) {
    // Nobody is left to tell that nobody listens.
    let _ = writeln!(io::stderr(), "firehose: {text}");
}

/// Standard output. After its reader went away, what is written goes nowhere.
#[derive(Default)]
pub(crate) struct Output {
    closed: bool,
}

impl Output {
    /// Writes `text` at once.
    pub(crate) fn write(&mut self, text: &str) -> Result<(), Error> {
        if self.closed {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => self.closed = true,
            written => written.map_err(|e| failed(&e))?,
        }
        Ok(())
    }
}

pub(crate) fn failed(e: &io::Error) -> Error {
    Error::new(ErrorKind::Backend, "write", format!("standard output: {e}"))
}
