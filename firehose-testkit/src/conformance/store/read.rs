//! Clauses 8 to 10: reading messages.

use firehose_core::{Cursor, MessageId, PageLimit, Position, Retain, Scope};

use super::StoreFixture;
use super::words::*;
use crate::conformance::clause::Verdict;
use crate::conformance::expect::equal;

/// Keeps the newest `count` of a stream.
pub(super) async fn keep(fixture: &dyn StoreFixture, stream: &str, count: u64) -> Verdict {
    let retain = Retain { messages: Some(count), ..Retain::default() };
    fixture.store().trim(Scope::Stream(name(stream)?), retain, 1_000).await?;
    Ok(())
}

pub(super) async fn get_many(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    let stored = append(&*store, "a", &["1", "2", "3"]).await?;
    let gone = append(&*store, "b", &["deleted"]).await?;
    store.delete_stream(&name("b")?).await?;
    keep(fixture, "a", 2).await?;
    let mut asked =
        vec![stored[2].id, gone[0].id, MessageId(i64::MAX), stored[0].id, stored[1].id, MessageId(i64::MIN)];
    let foreign = match fixture.begin().await {
        Some(mut foreign) => {
            asked.push(foreign.append(&entry("c", "not committed")?).await?.id);
            Some(foreign)
        }
        None => None,
    };
    let mut found = store.get_many(&asked).await?;
    found.sort_by_key(|message| message.sequence);
    equal(
        "`get_many` of two retained, a trimmed, a deleted, an uncommitted and two that never were",
        data(&found),
        ["2", "3"],
    )?;
    let found: Vec<_> = found.iter().map(|message| (**message).clone()).collect();
    equal("what `get_many` gives of a message that is retained", found, &stored[1..])?;
    equal("`get_many` of nothing", store.get_many(&[]).await?.len(), 0)?;
    if let Some(foreign) = foreign {
        foreign.rollback().await?;
    }
    Ok(())
}

pub(super) async fn after_positions(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    let a = append(&*store, "a", &["1", "2", "3", "4"]).await?;
    let b = append(&*store, "b", &["5"]).await?;
    let (epoch, other) = (Some(a[0].channel_id), Some(b[0].channel_id));
    let cases: [(&str, &str, Position, &[&str]); 12] = [
        ("a after a message's cursor", "a", Position::Cursor(a[1].cursor()), &["3", "4"]),
        ("a stream that does not exist", "nobody", Position::Cursor(Cursor::BEGINNING), &[]),
        ("b after the id of a message of a", "b", Position::Id(a[3].id), &["5"]),
        ("a after sequence 3 of no epoch", "a", place(None, 3), &["4"]),
        ("a after sequence 3 of another epoch", "a", place(other, 3), &["1", "2", "3", "4"]),
        ("a after an id", "a", Position::Id(a[0].id), &["2", "3", "4"]),
        ("a after a later id of b", "a", Position::Id(b[0].id), &[]),
        ("a after the id 0", "a", Position::Id(MessageId(0)), &["1", "2", "3", "4"]),
        ("a after its last sequence", "a", place(epoch, 4), &[]),
        ("a after a sequence beyond its head", "a", place(epoch, 99), &[]),
        ("a after a sequence beyond its head, of no epoch", "a", place(None, i64::MAX), &[]),
        ("a from its beginning, again", "a", place(epoch, 0), &["1", "2", "3", "4"]),
    ];
    let requests = cases.iter().map(|(_, stream, position, _)| Ok((name(stream)?, *position)));
    let pages = pages(&*store, &requests.collect::<firehose_core::Result<Vec<_>>>()?, ALL).await?;
    for ((what, _, _, expected), page) in cases.iter().zip(&pages) {
        equal(format!("one read of several streams, the page of {what}"), data(&page.messages), *expected)?;
        equal(format!("the page of {what}, whether there is more"), page.more, false)?;
    }
    let read: Vec<_> = pages[0].messages.iter().map(|message| (**message).clone()).collect();
    equal("what a page gives of a message", read, &a[2..])?;

    keep(fixture, "a", 2).await?;
    for position in [Position::Cursor(Cursor::BEGINNING), Position::Id(a[0].id), place(epoch, 1), place(other, 3)] {
        let page = after(&*store, "a", position, ALL).await?;
        equal(format!("after 1 and 2 of 4 were trimmed, from {position:?}"), data(&page.messages), ["3", "4"])?;
    }
    equal("a read of no stream", store.read_after(&[], ALL).await?.len(), 0)
}

pub(super) async fn after_limits(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    append(&*store, "a", &["four", "éé", "", "more", "x"]).await?;
    append(&*store, "big", &["x".repeat(100_000).as_str(), "y"]).await?;
    let start = Position::Cursor(Cursor::BEGINNING);
    let requests = [(name("a")?, start), (name("big")?, start), (name("nobody")?, start)];
    for (rows, bytes, a, big) in [
        (2, 1 << 20, 2, 2),
        (5, 1 << 20, 5, 2),
        (1, 0, 1, 1),
        (9, 7, 1, 1),
        // "éé" is four bytes.
        (9, 8, 3, 1),
        (9, 11, 3, 1),
        (9, 12, 4, 1),
        (9, 13, 5, 1),
        (usize::MAX, usize::MAX, 5, 2),
    ] {
        let pages = pages(&*store, &requests, PageLimit { rows, bytes }).await?;
        let told: Vec<_> = pages.iter().map(|page| (page.messages.len(), page.more)).collect();
        let what = "pages of 4, 4, 0, 4, 1 bytes, of 100000, 1 bytes, and of nothing";
        let expected = [(a, a < 5), (big, big < 2), (0, false)];
        equal(format!("{what}, with at most {rows} rows and {bytes} bytes: (messages, more)"), told, expected)?;
        let read = read_sequences(&pages[0].messages);
        equal("the sequences of a page that is limited", read, (1..=a as i64).collect::<Vec<_>>())?;
    }
    Ok(())
}

pub(super) async fn before_positions(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    let a = append(&*store, "a", &["1", "2", "3", "4"]).await?;
    let b = append(&*store, "b", &["5"]).await?;
    let (epoch, other) = (Some(a[0].channel_id), Some(b[0].channel_id));
    let stream = name("a")?;
    let cases: [(&str, Position, &[&str]); 9] = [
        ("the end", place(None, i64::MAX), &["1", "2", "3", "4"]),
        ("a message's cursor", Position::Cursor(a[2].cursor()), &["1", "2"]),
        ("its first message", Position::Cursor(a[0].cursor()), &[]),
        ("sequence 3 of no epoch", place(None, 3), &["1", "2"]),
        ("a sequence beyond its head", place(epoch, 99), &["1", "2", "3", "4"]),
        ("sequence 3 of another epoch", place(other, 3), &[]),
        ("an id", Position::Id(a[2].id), &["1", "2"]),
        ("an id of b", Position::Id(b[0].id), &["1", "2", "3", "4"]),
        ("the id 0", Position::Id(MessageId(0)), &[]),
    ];
    for (what, position, expected) in cases {
        let page = store.read_before(&stream, position, ALL).await?;
        equal(format!("`read_before` {what}"), (data(&page.messages), page.more), (expected.to_vec(), false))?;
    }
    let nobody = store.read_before(&name("nobody")?, place(None, i64::MAX), ALL).await?;
    equal("`read_before` of a stream that does not exist", (nobody.messages.len(), nobody.more), (0, false))
}

pub(super) async fn before_limits(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    append(&*store, "a", &["x", "four", "éé", "", "more"]).await?;
    let stream = name("a")?;
    for (before, rows, bytes, expected, more) in [
        (99, 2, 1 << 20, vec![4, 5], true),
        (99, 5, 1 << 20, vec![1, 2, 3, 4, 5], false),
        // The newest, whatever its size; the empty one costs nothing.
        (99, 9, 0, vec![5], true),
        (99, 9, 7, vec![4, 5], true),
        (99, 9, 8, vec![3, 4, 5], true),
        (99, 9, 12, vec![2, 3, 4, 5], true),
        (99, 9, 13, vec![1, 2, 3, 4, 5], false),
        (4, 2, 1 << 20, vec![2, 3], true),
        (3, 2, 1 << 20, vec![1, 2], false),
        (2, usize::MAX, usize::MAX, vec![1], false),
    ] {
        let page = store.read_before(&stream, place(None, before), PageLimit { rows, bytes }).await?;
        let what = "messages of 1, 4, 4, 0, 4 bytes";
        let told = (read_sequences(&page.messages), page.more);
        equal(
            format!("{what}, before {before}, at most {rows} rows and {bytes} bytes: (sequences, more)"),
            told,
            (expected, more),
        )?;
    }
    Ok(())
}
