//! The rules of [`Feed`].

use std::sync::Arc;

use super::*;
use crate::message::{Epoch, Message, MessageId};
use crate::stream::StreamName;

fn name() -> StreamName {
    StreamName::new("s").unwrap()
}

fn at(sequence: i64) -> Cursor {
    Cursor::at(Some(Epoch(1)), Sequence(sequence))
}

fn message(sequence: i64) -> Item {
    Item::Message(Arc::new(Message::new(
        MessageId(100 + sequence),
        Epoch(1),
        Sequence(sequence),
        name(),
        "12345".into(),
    )))
}

fn feed(start: i64) -> Feed {
    let mut feed = Feed::new(name(), FeedLimits { items: 4, bytes: 1000 });
    feed.begin(at(start));
    feed
}

fn push(feed: &mut Feed, sequences: impl IntoIterator<Item = i64>) {
    sequences.into_iter().for_each(|s| feed.push(message(s), &mut Vec::new()));
}

fn take(feed: &mut Feed, key: ReaderKey, cursor: &mut Cursor) -> Result<Vec<i64>, Taken> {
    let mut out = VecDeque::new();
    match feed.take(key, cursor, 32, &mut out) {
        Taken::Items => Ok(out.iter().map(|i| i.after().sequence.0).collect()),
        other => Err(other),
    }
}

#[test]
fn each_reader_gets_each_item_and_then_it_is_gone() {
    let mut f = feed(0);
    let (a, b) = (f.enter(Lag::CatchUp), f.enter(Lag::CatchUp));
    let (mut ca, mut cb) = (at(0), at(0));
    push(&mut f, 1..=3);
    assert_eq!(take(&mut f, a, &mut ca), Ok(vec![1, 2, 3]));
    assert_eq!(f.bytes(), 15, "b has not read them");
    assert_eq!(take(&mut f, b, &mut cb), Ok(vec![1, 2, 3]));
    assert_eq!(f.bytes(), 0);
    assert_eq!(take(&mut f, a, &mut ca), Err(Taken::Nothing));
}

#[test]
fn nothing_is_kept_for_nobody() {
    let mut f = feed(0);
    push(&mut f, 1..=3);
    assert_eq!(f.bytes(), 0);
    let a = f.enter(Lag::CatchUp);
    push(&mut f, [4]);
    assert_eq!(take(&mut f, a, &mut at(3)), Ok(vec![4]));
}

#[test]
fn who_leaves_frees_what_it_was_owed() {
    let mut f = feed(0);
    let (a, b) = (f.enter(Lag::CatchUp), f.enter(Lag::CatchUp));
    push(&mut f, 1..=3);
    take(&mut f, a, &mut at(0)).unwrap();
    f.leave(b);
    assert_eq!((f.bytes(), f.readers()), (0, 1));
}

#[test]
fn who_falls_behind_reads_the_store_and_comes_back() {
    let mut f = feed(0);
    let (stuck, quick) = (f.enter(Lag::CatchUp), f.enter(Lag::CatchUp));
    let (mut slow, mut fast) = (at(0), at(0));
    for s in 1..=10 {
        push(&mut f, [s]);
        assert_eq!(take(&mut f, quick, &mut fast), Ok(vec![s]));
    }
    assert_eq!((f.bytes(), f.behind()), (20, 1), "the ring holds four");
    assert_eq!(take(&mut f, stuck, &mut slow), Err(Taken::Behind(None)));
    assert_eq!(f.bytes(), 0, "what it will read from the store is not kept");
    push(&mut f, [11]);
    slow = at(9);
    assert_eq!(take(&mut f, stuck, &mut slow), Err(Taken::Behind(None)), "10 is still missing");
    slow = at(10);
    assert_eq!(take(&mut f, stuck, &mut slow), Ok(vec![11]));
    assert_eq!(f.behind(), 0);
}

#[test]
fn a_new_reader_joins_where_its_reading_of_the_store_ends() {
    let mut f = feed(5);
    let a = f.enter(Lag::CatchUp);
    let mut cursor = at(2);
    assert_eq!(take(&mut f, a, &mut cursor), Err(Taken::Behind(None)));
    push(&mut f, 6..=8);
    cursor = at(7);
    assert_eq!(take(&mut f, a, &mut cursor), Ok(vec![8]), "6 and 7 were read from the store");
    assert_eq!(f.bytes(), 0);
}

#[test]
fn a_reader_ahead_of_the_topic_skips_what_it_has() {
    let mut f = feed(5);
    let a = f.enter(Lag::CatchUp);
    let mut cursor = at(7);
    push(&mut f, 6..=8);
    assert_eq!(take(&mut f, a, &mut cursor), Ok(vec![8]));
}

#[test]
fn a_reset_that_went_by_comes_first() {
    let mut f = feed(0);
    let a = f.enter(Lag::CatchUp);
    let mut cursor = at(0);
    push(&mut f, 1..=2);
    take(&mut f, a, &mut cursor).unwrap();
    let mut tail = at(2);
    let reset = Item::reset(&name(), &mut tail, ResetReason::Replaced, Epoch(1), Sequence(2), at(1));
    f.push(reset.clone(), &mut Vec::new());
    push(&mut f, 2..=9);
    assert_eq!(take(&mut f, a, &mut cursor), Err(Taken::Behind(Some(reset))));
    assert_eq!(cursor, at(1), "and the store is read from there");
}

#[test]
fn bytes_bound_the_ring_but_one_item_always_fits() {
    let mut f = Feed::new(name(), FeedLimits { items: 100, bytes: 7 });
    f.begin(at(0));
    let a = f.enter(Lag::CatchUp);
    push(&mut f, 1..=3);
    assert_eq!(f.bytes(), 5);
    assert_eq!(take(&mut f, a, &mut at(0)), Err(Taken::Behind(None)));
}

#[test]
fn a_closed_feed_gives_what_it_has_and_then_the_reason() {
    let mut f = feed(0);
    let (a, b) = (f.enter(Lag::CatchUp), f.enter(Lag::CatchUp));
    let mut cursor = at(0);
    push(&mut f, [1]);
    f.close(CloseReason::Shutdown, &mut Vec::new());
    assert_eq!(take(&mut f, a, &mut cursor), Ok(vec![1]));
    assert_eq!(take(&mut f, a, &mut cursor), Err(Taken::Closed(CloseReason::Shutdown)));
    let mut behind = Cursor::at(Some(Epoch(1)), Sequence(-1));
    assert_eq!(take(&mut f, b, &mut behind), Err(Taken::Closed(CloseReason::Shutdown)), "no more reading");
}

#[test]
fn who_drops_what_is_oldest_is_told_what_and_goes_on() {
    let mut f = feed(0);
    let key = f.enter(Lag::DropOldest);
    let mut cursor = at(0);
    assert_eq!(take(&mut f, key, &mut cursor), Err(Taken::Nothing));
    push(&mut f, 1..=10);
    let mut out = VecDeque::new();
    assert_eq!(f.take(key, &mut cursor, 32, &mut out), Taken::Items);
    assert!(
        matches!(&out[0], Item::Gap(gap, _) if (gap.from.0, gap.to.0, gap.reason) == (1, 6, GapReason::DropOldest)),
        "{:?}",
        out[0]
    );
    assert_eq!(out.iter().skip(1).map(|i| i.after().sequence.0).collect::<Vec<_>>(), [7, 8, 9, 10]);
    assert_eq!((f.bytes(), f.behind()), (0, 0));
}

#[test]
fn who_drops_what_is_oldest_is_told_the_reset_among_it() {
    let mut f = feed(0);
    let key = f.enter(Lag::DropOldest);
    let mut cursor = at(0);
    assert_eq!(take(&mut f, key, &mut cursor), Err(Taken::Nothing));
    push(&mut f, 1..=2);
    let mut back = at(2);
    f.push(Item::reset(&name(), &mut back, ResetReason::WentBack, Epoch(1), Sequence(1), at(1)), &mut Vec::new());
    push(&mut f, 2..=9);
    let mut out = VecDeque::new();
    assert_eq!(f.take(key, &mut cursor, 32, &mut out), Taken::Items);
    assert!(matches!(&out[0], Item::Reset(r, _) if r.reason == ResetReason::WentBack), "{:?}", out[0]);
    assert!(matches!(&out[1], Item::Gap(gap, _) if (gap.from.0, gap.to.0) == (2, 5)), "{:?}", out[1]);
    assert_eq!(out.iter().skip(2).map(|i| i.after().sequence.0).collect::<Vec<_>>(), [6, 7, 8, 9]);
}

#[test]
fn who_is_to_be_cut_off_is_cut_off_once_it_lags_and_not_while_it_begins() {
    let mut f = feed(0);
    let key = f.enter(Lag::Disconnect);
    push(&mut f, 1..=10);
    let mut cursor = at(0);
    assert_eq!(take(&mut f, key, &mut cursor), Err(Taken::Behind(None)), "it reads from its start");
    cursor = at(10);
    assert_eq!(take(&mut f, key, &mut cursor), Err(Taken::Nothing));
    push(&mut f, 11..=15);
    assert_eq!(take(&mut f, key, &mut cursor), Err(Taken::Closed(CloseReason::Lagged)));
    assert_eq!((f.readers(), f.bytes()), (0, 0));
}
