//! What a page of the store means to someone who stands at a cursor. Pure.

use super::delivery::{Item, ResetReason};
use crate::backend::Page;
use crate::cursor::Cursor;
use crate::message::{Epoch, Sequence};
use crate::stream::StreamName;

/// A head that the store gave, in the epoch it was given for.
pub(crate) type Committed = (Epoch, Sequence);

/// Goes on from `cursor` through `page`, which was read after it: messages, gaps where rows are gone, and a reset where
/// the rows belong to another epoch. Gives how many messages there were.
///
/// `committed` is a head that was read before the page: what it has passed and the page does not hold is gone, and not
/// merely late. A head of another epoch than the cursor's must be younger than the cursor.
pub(crate) fn absorb(
    stream: &StreamName,
    cursor: &mut Cursor,
    page: &Page,
    committed: Option<Committed>,
    out: &mut Vec<Item>,
) -> u64 {
    let mut messages = 0;
    for message in &page.messages {
        match cursor.epoch {
            Some(epoch) if epoch != message.channel_id => {
                let head = page.messages.last().map_or(message.sequence, |last| last.sequence);
                let before = Cursor::at(Some(message.channel_id), message.sequence.previous());
                out.push(Item::reset(stream, cursor, ResetReason::Recreated, message.channel_id, head, before));
            }
            Some(_) => {}
            None => cursor.epoch = Some(message.channel_id),
        }
        if message.sequence <= cursor.sequence {
            continue;
        }
        if message.sequence > cursor.sequence.next() {
            out.push(Item::gap(stream, cursor, message.sequence.previous()));
        }
        *cursor = message.cursor();
        out.push(Item::Message(message.clone()));
        messages += 1;
    }
    if page.more {
        return messages;
    }
    if let Some((epoch, head)) = committed {
        match cursor.epoch {
            Some(own) if own != epoch => {
                if page.messages.is_empty() {
                    let after = Cursor::at(Some(epoch), head);
                    out.push(Item::reset(stream, cursor, ResetReason::Recreated, epoch, head, after));
                }
            }
            _ => {
                if head > cursor.sequence {
                    cursor.epoch = Some(epoch);
                    out.push(Item::gap(stream, cursor, head));
                }
            }
        }
    }
    messages
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::deliver::delivery::{Gap, GapReason, Reset};
    use crate::message::{Message, MessageId};

    fn name() -> StreamName {
        StreamName::new("s").unwrap()
    }

    fn page(epoch: i64, sequences: &[i64]) -> Page {
        let message =
            |&s: &i64| Arc::new(Message::new(MessageId(100 + s), Epoch(epoch), Sequence(s), name(), "".into()));
        Page { messages: sequences.iter().map(message).collect(), more: false }
    }

    fn run(cursor: Cursor, page: &Page, committed: Option<Committed>) -> (Vec<String>, Cursor) {
        let (mut cursor, mut out) = (cursor, Vec::new());
        absorb(&name(), &mut cursor, page, committed, &mut out);
        let tell = |item: Item| match item {
            Item::Message(m) => m.sequence.to_string(),
            Item::Gap(Gap { from, to, exact: true, reason: GapReason::Trimmed, .. }, _) => format!("gap {from}-{to}"),
            Item::Reset(Reset { epoch, head, reason, .. }, _) => format!("{reason:?} {epoch} {head}"),
            Item::Gap(gap, _) => format!("{gap:?}"),
        };
        (out.into_iter().map(tell).collect(), cursor)
    }

    fn at(epoch: i64, sequence: i64) -> Cursor {
        Cursor::at(Some(Epoch(epoch)), Sequence(sequence))
    }

    #[test]
    fn what_was_seen_is_left_out_and_what_is_gone_is_said() {
        assert_eq!(run(at(1, 3), &page(1, &[2, 3, 4, 7]), None).0, ["4", "gap 5-6", "7"]);
        assert_eq!(run(Cursor::BEGINNING, &page(1, &[3]), None).0, ["gap 1-2", "3"]);
    }

    #[test]
    fn only_a_head_read_before_makes_an_empty_page_a_gap() {
        assert_eq!(run(at(1, 3), &page(1, &[]), None).0, Vec::<String>::new());
        assert_eq!(run(at(1, 3), &page(1, &[]), Some((Epoch(1), Sequence(5)))), (vec!["gap 4-5".to_owned()], at(1, 5)));
        assert_eq!(run(at(1, 3), &page(1, &[4]), Some((Epoch(1), Sequence(5)))).0, ["4", "gap 5-5"]);
        assert_eq!(run(at(1, 7), &page(1, &[]), Some((Epoch(1), Sequence(5)))).0, Vec::<String>::new());
        let more = Page { more: true, ..page(1, &[4]) };
        assert_eq!(run(at(1, 3), &more, Some((Epoch(1), Sequence(5)))).0, ["4"], "the rest is in the next page");
    }

    #[test]
    fn another_epoch_is_a_reset_and_goes_on_with_its_first_message() {
        let (said, cursor) = run(at(1, 5), &page(2, &[4, 5]), None);
        assert_eq!(said, ["Recreated 2 5", "4", "5"], "no gap before the first that is retained");
        assert_eq!(cursor.epoch, Some(Epoch(2)));
        assert_eq!(
            run(at(1, 5), &page(2, &[]), Some((Epoch(2), Sequence(3)))),
            (vec!["Recreated 2 3".to_owned()], at(2, 3))
        );
    }

    #[test]
    fn a_stream_that_never_existed_is_created_without_a_reset() {
        assert_eq!(run(Cursor::BEGINNING, &page(9, &[1, 2]), None).0, ["1", "2"]);
    }
}
