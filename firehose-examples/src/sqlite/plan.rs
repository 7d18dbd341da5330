//! What an append is to do, before anything is sent (pure).

use std::collections::HashMap;
use std::ops::Range;

use firehose_core::{Error, ErrorKind, Message, NewMessage, Result, StreamName};

use super::append::OPERATION;

/// The longest data of a message. SQLite takes texts of 10⁹ bytes, and a character may need six of them on its way.
const MOST_BYTES: usize = 128 << 20;

/// How much data one statement carries.
const STATEMENT_BYTES: usize = 8 << 20;

/// The entries of an append, and which of them are to be stored.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    entries: &'a [NewMessage],
    /// The places of those that are to be stored.
    chosen: Vec<usize>,
    /// Why others are not.
    refused: HashMap<usize, Error>,
    /// Those that repeat the key of an earlier one of their stream: its place.
    repeats: HashMap<usize, usize>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(entries: &'a [NewMessage]) -> Self {
        let mut plan = Self { entries, chosen: Vec::new(), refused: HashMap::new(), repeats: HashMap::new() };
        let mut keys = HashMap::new();
        for (at, entry) in entries.iter().enumerate() {
            if let Err(error) = check(entry) {
                plan.refused.insert(at, error);
                continue;
            }
            let first = entry.key.as_ref().map(|key| *keys.entry((&entry.stream, key)).or_insert(at));
            match first {
                Some(first) if first != at => drop(plan.repeats.insert(at, first)),
                _ => plan.chosen.push(at),
            }
        }
        plan
    }

    /// What is to be stored, in the order given.
    pub(super) fn chosen(&self) -> Vec<&'a NewMessage> {
        self.chosen.iter().map(|&at| &self.entries[at]).collect()
    }

    /// One result an entry, from what became of the chosen ones.
    pub(super) fn results(mut self, stored: Result<Vec<Message>>) -> Vec<Result<Message>> {
        let mut of_chosen: HashMap<usize, Result<Message>> = match stored {
            Ok(messages) => self.chosen.iter().copied().zip(messages.into_iter().map(Ok)).collect(),
            Err(error) => self.chosen.iter().map(|&at| (at, Err(error.replicate()))).collect(),
        };
        for (&at, first) in &self.repeats {
            let copy = match of_chosen.get(first) {
                Some(Ok(message)) => Ok(message.clone()),
                Some(Err(error)) => Err(error.replicate()),
                None => continue,
            };
            of_chosen.insert(at, copy);
        }
        let lost = || Error::new(ErrorKind::Backend, OPERATION, "the database gave no answer for the entry");
        let result = |at: usize| match self.refused.remove(&at) {
            Some(error) => Err(error),
            None => of_chosen.remove(&at).unwrap_or_else(|| Err(lost())),
        };
        (0..self.entries.len()).map(result).collect()
    }
}

/// The streams of `entries`, each once, in the order of their names.
pub(super) fn streams<'a>(entries: &[&'a NewMessage]) -> Vec<&'a StreamName> {
    let mut streams: Vec<_> = entries.iter().map(|entry| &entry.stream).collect();
    streams.sort_unstable();
    streams.dedup();
    streams
}

/// Cuts entries of these sizes into parts that each fit a statement.
pub(super) fn parts(sizes: &[usize]) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0;
    for (at, size) in sizes.iter().enumerate() {
        match parts.last_mut() {
            Some(part) if bytes + size <= STATEMENT_BYTES => {
                bytes += size;
                part.end = at + 1;
            }
            _ => {
                bytes = *size;
                parts.push(at..at + 1);
            }
        }
    }
    parts
}

/// The fields of a [`NewMessage`] are open, so what it checked when it was made is checked again.
fn check(entry: &NewMessage) -> Result<()> {
    if let Some(at) = entry.data.bytes().position(|byte| byte == 0) {
        return Err(Error::new(ErrorKind::InvalidData, OPERATION, format!("data has a NUL at byte {at}")));
    }
    if entry.data.len() > MOST_BYTES {
        let message = format!("data of {} bytes, at most {MOST_BYTES} are allowed", entry.data.len());
        return Err(Error::new(ErrorKind::TooLarge, OPERATION, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use firehose_core::{Epoch, MessageId, Sequence};

    use super::*;

    fn entry(stream: &str, data: &str) -> NewMessage {
        NewMessage::new(stream, data).unwrap()
    }

    #[test]
    fn each_entry_gets_its_own_result() {
        let mut bad = entry("a", "");
        bad.data = "x\0".into();
        let keyed = |stream: &str| entry(stream, "x").key("k").unwrap();
        let entries = [keyed("a"), bad, entry("a", "y"), keyed("b"), keyed("a")];
        let plan = Plan::new(&entries);
        assert_eq!(plan.chosen(), [&entries[0], &entries[2], &entries[3]]);
        let message = |n: i64, entry: &NewMessage| {
            Message::new(MessageId(n), Epoch(1), Sequence(n), entry.stream.clone(), entry.data.clone())
        };
        let stored = vec![message(1, &entries[0]), message(2, &entries[2]), message(3, &entries[3])];
        let results = plan.results(Ok(stored));
        let ids: Vec<_> = results.iter().map(|result| result.as_ref().map(|m| m.id.0).map_err(Error::kind)).collect();
        assert_eq!(ids, [Ok(1), Err(ErrorKind::InvalidData), Ok(2), Ok(3), Ok(1)]);

        let failed = Plan::new(&entries).results(Err(Error::new(ErrorKind::StreamBlocked, OPERATION, "held")));
        let kinds: Vec<_> = failed.iter().map(|result| result.as_ref().unwrap_err().kind()).collect();
        let (blocked, invalid) = (ErrorKind::StreamBlocked, ErrorKind::InvalidData);
        assert_eq!(kinds, [blocked, invalid, blocked, blocked, blocked]);
    }

    #[test]
    fn an_answer_that_is_too_short_is_an_error_and_no_panic() {
        let entries = [entry("a", "x"), entry("a", "y")];
        let results = Plan::new(&entries).results(Ok(Vec::new()));
        assert!(results.iter().all(|result| result.as_ref().unwrap_err().kind() == ErrorKind::Backend));
    }

    #[test]
    fn parts_fit_statements_and_hold_everything() {
        let half = STATEMENT_BYTES / 2;
        assert_eq!(parts(&[half, half, half, STATEMENT_BYTES * 2, 0]), [0..2, 2..3, 3..4, 4..5]);
        assert_eq!(parts(&[]), Vec::<Range<usize>>::new());
    }

    #[test]
    fn streams_are_named_once() {
        let entries = [entry("b", ""), entry("a", ""), entry("b", "")];
        let entries: Vec<_> = entries.iter().collect();
        assert_eq!(streams(&entries).iter().map(|s| s.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    }
}
