//! Standard input, cut into lines, and the lines into windows.

use std::io::{BufRead as _, BufReader, Read};
use std::sync::Arc;

use firehose_core::{Error, ErrorKind};

/// A window takes no further line once it holds this much. What the store puts into one statement is well above it, so
/// that a window is stored as a whole or not at all.
const WINDOW_BYTES: usize = 1 << 20;

/// How much is read ahead.
const BUFFER: usize = 64 << 10;

/// What a window and a line may hold at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) lines: usize,
    pub(crate) line_bytes: usize,
}

/// The lines of `input`, as many at a time as have arrived. After an error it ends.
pub(crate) struct Windows<R> {
    input: BufReader<R>,
    limits: Limits,
    /// The last line that was read, counted from 1.
    number: u64,
    ended: bool,
    error: Option<Error>,
}

impl<R: Read> Windows<R> {
    pub(crate) fn new(input: R, limits: Limits) -> Self {
        Self { input: BufReader::with_capacity(BUFFER, input), limits, number: 0, ended: false, error: None }
    }

    /// The next line, without its end; the last one need not have one.
    fn line(&mut self) -> Result<Option<Arc<str>>, Error> {
        let mut line = Vec::new();
        // One more for the end of the line, one more to see that it is too long.
        let most = self.limits.line_bytes as u64 + 2;
        let read = self.input.by_ref().take(most).read_until(b'\n', &mut line);
        read.map_err(|e| Error::new(ErrorKind::Backend, "read", format!("standard input: {e}")))?;
        if line.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if line.len() > self.limits.line_bytes {
            let what = format!("over {} bytes, the most that max_message_bytes allows", self.limits.line_bytes);
            return Err(self.bad_line(ErrorKind::TooLarge, &what));
        }
        if let Some(at) = line.iter().position(|&byte| byte == 0) {
            return Err(self.bad_line(ErrorKind::InvalidData, &format!("a NUL at byte {at}")));
        }
        match String::from_utf8(line) {
            Ok(line) => Ok(Some(line.into())),
            Err(e) => {
                let what = format!("not UTF-8 at byte {}", e.utf8_error().valid_up_to());
                Err(self.bad_line(ErrorKind::InvalidData, &what))
            }
        }
    }

    fn bad_line(&self, kind: ErrorKind, what: &str) -> Error {
        Error::new(kind, "publish", format!("line {}: {what}", self.number))
    }
}

impl<R: Read> Iterator for Windows<R> {
    type Item = Result<Vec<Arc<str>>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while !self.ended {
            match self.line() {
                Ok(Some(line)) => {
                    bytes += line.len();
                    lines.push(line);
                }
                Ok(None) => self.ended = true,
                Err(error) => (self.ended, self.error) = (true, Some(error)),
            }
            // A line that has not arrived yet is not waited for.
            if lines.len() >= self.limits.lines || bytes >= WINDOW_BYTES || !self.input.buffer().contains(&b'\n') {
                break;
            }
        }
        if lines.is_empty() { self.error.take().map(Err) } else { Some(Ok(lines)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { lines: 3, line_bytes: 5 };

    fn windows(input: &[u8]) -> Vec<Result<Vec<String>, String>> {
        let text = |lines: Vec<Arc<str>>| lines.iter().map(ToString::to_string).collect();
        Windows::new(input, LIMITS).map(|window| window.map(text).map_err(|e| e.to_string())).collect()
    }

    fn lines(lines: &[&str]) -> Result<Vec<String>, String> {
        Ok(lines.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn lines_are_taken_as_they_are() {
        assert_eq!(windows(b""), []);
        assert_eq!(windows(b"a\n"), [lines(&["a"])]);
        assert_eq!(windows(b"\n b \r\nc"), [lines(&["", " b \r"]), lines(&["c"])]);
        assert_eq!(windows(b"1\n2\n3\n4\n"), [lines(&["1", "2", "3"]), lines(&["4"])], "a window is bounded");
    }

    #[test]
    fn a_line_that_cannot_be_stored_is_named_after_those_before_it() {
        let bad = |what: &str| Err(format!("publish: line 2: {what}"));
        assert_eq!(windows(b"ok\na\xff\nok\n"), [lines(&["ok"]), bad("not UTF-8 at byte 1")]);
        assert_eq!(windows(b"ok\n\0\n"), [lines(&["ok"]), bad("a NUL at byte 0")]);
        let long = bad("over 5 bytes, the most that max_message_bytes allows");
        assert_eq!(windows(b"12345\n123456\n"), [lines(&["12345"]), long.clone()]);
        assert_eq!(windows(b"12345\n12345678901234567890"), [lines(&["12345"]), long]);
    }

    #[test]
    fn a_long_line_closes_its_window() {
        let limits = Limits { lines: 512, line_bytes: 2 << 20 };
        let input = format!("{}\nshort\n", "x".repeat(WINDOW_BYTES));
        let counts: Vec<usize> = Windows::new(input.as_bytes(), limits).flatten().map(|lines| lines.len()).collect();
        assert_eq!(counts, [1, 1]);
    }
}
