//! What an append is cut into, before anything is sent (pure).

use std::collections::HashMap;
use std::ops::Range;

use firehose_core::NewMessage;

/// The most data that one statement carries, and the most entries.
const MOST_BYTES: usize = 8 << 20;
const MOST_ENTRIES: usize = 8_192;

/// For each entry that repeats the key of an earlier one of the same stream, which one.
pub(super) fn repeats(entries: &[NewMessage]) -> Vec<Option<usize>> {
    let mut seen = HashMap::new();
    let earlier = |(at, entry): (usize, &NewMessage)| {
        let key = entry.key.clone()?;
        let first = *seen.entry((entry.stream.clone(), key)).or_insert(at);
        (first != at).then_some(first)
    };
    entries.iter().enumerate().map(earlier).collect()
}

/// Cuts `entries` into parts that each fit one statement.
pub(super) fn parts(entries: &[NewMessage], chosen: &[usize]) -> Vec<Vec<usize>> {
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut bytes = 0;
    for &at in chosen {
        let size = entries[at].data.len();
        match parts.last_mut() {
            Some(part) if bytes + size <= MOST_BYTES && part.len() < MOST_ENTRIES => {
                bytes += size;
                part.push(at);
            }
            _ => {
                bytes = size;
                parts.push(vec![at]);
            }
        }
    }
    parts
}

/// The two halves of something that has at least two.
pub(super) fn halves(len: usize) -> (Range<usize>, Range<usize>) {
    (0..len / 2, len / 2..len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(stream: &str, key: &str) -> NewMessage {
        NewMessage::new(stream, "x").unwrap().key(key).unwrap()
    }

    #[test]
    fn the_first_of_equal_keys_in_a_stream_wins() {
        let plain = NewMessage::new("a", "x").unwrap();
        let entries = [entry("a", "k"), plain.clone(), entry("b", "k"), entry("a", "k"), plain, entry("a", "k")];
        assert_eq!(repeats(&entries), [None, None, None, Some(0), None, Some(0)]);
    }

    #[test]
    fn a_part_fits_a_statement() {
        let big = NewMessage::new("a", "x".repeat(MOST_BYTES / 2)).unwrap();
        let huge = NewMessage::new("a", "x".repeat(MOST_BYTES + 1)).unwrap();
        let entries = [big.clone(), big.clone(), big, huge];
        assert_eq!(parts(&entries, &[0, 1, 2, 3]), [vec![0, 1], vec![2], vec![3]]);
        assert_eq!(parts(&entries, &[]), Vec::<Vec<usize>>::new());
        let many = vec![NewMessage::new("a", "").unwrap(); MOST_ENTRIES + 1];
        let all: Vec<usize> = (0..many.len()).collect();
        assert_eq!(parts(&many, &all).iter().map(Vec::len).collect::<Vec<_>>(), [MOST_ENTRIES, 1]);
    }

    #[test]
    fn halves_hold_everything() {
        assert_eq!(halves(2), (0..1, 1..2));
        assert_eq!(halves(5), (0..2, 2..5));
    }
}
