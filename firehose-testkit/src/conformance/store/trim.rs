//! Clause 13: trimming.

use std::time::Duration;

use firehose_core::{HeadDetail, MessageStore, Retain, Scope, Trimmed};
use tokio::task::yield_now;

use super::StoreFixture;
use super::order::{WRITTEN, next_done, writers};
use super::words::*;
use crate::conformance::clause::{Stop, Verdict};
use crate::conformance::expect::{equal, needed, that, violated};

const HOUR: Duration = Duration::from_secs(3_600);

fn newest(messages: u64) -> Retain {
    Retain { messages: Some(messages), ..Retain::default() }
}

fn of(stream: &str) -> firehose_core::Result<Scope> {
    Ok(Scope::Stream(name(stream)?))
}

pub(super) async fn a_prefix_within_the_budget(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    append(&*store, "a", &["1", "2", "3", "4", "5", "6"]).await?;
    append(&*store, "b", &["1", "2"]).await?;
    for (retain, budget, gone, more, left) in [
        (Retain::default(), 99, 0, false, vec![1, 2, 3, 4, 5, 6]),
        (newest(6), 99, 0, false, vec![1, 2, 3, 4, 5, 6]),
        (newest(3), 0, 0, true, vec![1, 2, 3, 4, 5, 6]),
        (newest(3), 2, 2, true, vec![3, 4, 5, 6]),
        (newest(3), 2, 1, false, vec![4, 5, 6]),
        (newest(1), 2, 2, false, vec![6]),
        (newest(0), 99, 1, false, vec![]),
    ] {
        let trimmed = store.trim(of("a")?, retain, budget).await?;
        let expected = Trimmed { messages: gone, more };
        equal(format!("a trim with {retain:?} and a budget of {budget}"), trimmed, expected)?;
        let read = read_sequences(&whole(&*store, "a").await?);
        equal(format!("after a trim with {retain:?} and a budget of {budget}, what is read"), read, left)?;
    }
    equal("what is read of another stream", read_sequences(&whole(&*store, "b").await?), [1, 2])?;
    equal("a trim of a stream that does not exist", store.trim(of("nobody")?, newest(0), 9).await?, Trimmed::default())
}

pub(super) async fn ages(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    append(&*store, "a", &["1", "2", "3"]).await?;
    if !fixture.grow_older(2 * HOUR).await {
        return Err(Stop::Lacking("the fixture has no way to make messages older".to_owned()));
    }
    append(&*store, "a", &["4", "5"]).await?;
    let aged = |max_age, messages, min_age| Retain { messages, max_age: Some(max_age), min_age };
    for (what, retain, gone, left) in [
        ("max_age 3 h", aged(3 * HOUR, None, Duration::ZERO), 0, vec![1, 2, 3, 4, 5]),
        ("max_age 1 h, min_age 3 h", aged(HOUR, None, 3 * HOUR), 0, vec![1, 2, 3, 4, 5]),
        ("0 messages, min_age for ever", aged(Duration::MAX, Some(0), Duration::MAX), 0, vec![1, 2, 3, 4, 5]),
        ("4 messages, max_age for ever, min_age 1 h", aged(Duration::MAX, Some(4), HOUR), 1, vec![2, 3, 4, 5]),
        ("1 message, min_age 1 h", aged(Duration::MAX, Some(1), HOUR), 2, vec![4, 5]),
    ] {
        let trimmed = store.trim(of("a")?, retain, 99).await?;
        let read = read_sequences(&whole(&*store, "a").await?);
        let what =
            format!("1 to 3 are two hours old, 4 and 5 are new, a trim with {what}: how many went, what is left");
        equal(what, (trimmed.messages, read), (gone, left))?;
    }
    fixture.grow_older(2 * HOUR).await;
    append(&*store, "a", &["6"]).await?;
    let trimmed = store.trim(Scope::All, aged(HOUR, None, Duration::ZERO), 99).await?;
    equal("4 and 5 are two hours old, 6 is new, a trim of all with max_age 1 h", trimmed.messages, 2)?;
    equal("after that, what is read", read_sequences(&whole(&*store, "a").await?), [6])
}

pub(super) async fn all_streams(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    append(&*store, "a", &["1", "2", "3", "4"]).await?;
    append(&*store, "b", &["1"]).await?;
    append(&*store, "c", &["1", "2", "3"]).await?;
    let some = store.trim(Scope::All, newest(2), 2).await?;
    equal(
        "a trim of streams of 4, 1 and 3 messages to 2 each, with a budget of 2",
        some,
        Trimmed { messages: 2, more: true },
    )?;
    let rest = store.trim(Scope::All, newest(2), 99).await?;
    equal("the same with a budget of 99", rest, Trimmed { messages: 1, more: false })?;
    for (stream, left) in [("a", vec![3, 4]), ("b", vec![1]), ("c", vec![2, 3])] {
        equal(format!("after both, what is read of {stream}"), read_sequences(&whole(&*store, stream).await?), left)?;
    }
    Ok(())
}

pub(super) async fn waits_for_nobody(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    append(&*store, "a", &["1", "2", "3"]).await?;
    let mut foreign = needed(fixture.begin().await, "transaction of another writer")?;
    foreign.append(&entry("a", "4")?).await?;
    let trimmed = store.trim(of("a")?, newest(2), 99).await?;
    equal("while another transaction holds the stream, a trim of it", trimmed, Trimmed { messages: 1, more: false })?;
    let trimmed = store.trim(Scope::All, newest(1), 99).await?;
    equal("while another transaction holds the stream, a trim of all", trimmed, Trimmed { messages: 1, more: false })?;
    foreign.commit().await?;
    equal("after it committed 4, what is read", read_sequences(&whole(&*store, "a").await?), [3, 4])
}

/// Trims until there is no more to do; another trim that ends meanwhile is waited for.
pub(super) async fn trim_all(store: &dyn MessageStore, scope: &Scope, retain: Retain) -> Verdict {
    for _ in 0..ROUNDS {
        if !store.trim(scope.clone(), retain, 3).await?.more {
            return Ok(());
        }
        yield_now().await;
    }
    violated(format!("{ROUNDS} trims of {scope:?} with {retain:?} and a budget of 3 each still say that there is more"))
}

/// More than a trim needs, even beside one whose caller went away.
const ROUNDS: usize = 10_000;

pub(super) async fn beside_appends(fixture: &dyn StoreFixture) -> Verdict {
    const KEPT: usize = 5;
    let store = fixture.store();
    let mut writers = writers(fixture, &entries("a", &["1", "2"])?).await;
    while !writers.is_empty() {
        let before = head(&*store, "a", HeadDetail::Cheap).await?.map_or(0, |head| head.sequence.0);
        store.trim(of("a")?, newest(KEPT as u64), 99).await?;
        let read = read_sequences(&whole(&*store, "a").await?);
        let expected: Vec<_> = (read.first().copied().unwrap_or(1)..).take(read.len()).collect();
        that(read == expected, || format!("while writers append and a trim runs: saw {read:?}, which has a hole"))?;
        let last = read.last().copied().unwrap_or(0);
        that(last >= before && read.len() >= KEPT.min(usize::try_from(before).unwrap_or(0)), || {
            format!("the head was {before}, and a trim to the newest {KEPT} left {read:?}")
        })?;
        next_done(&mut writers).await?;
    }
    trim_all(&*store, &of("a")?, newest(KEPT as u64)).await?;
    let last = 2 * WRITTEN as i64;
    let left = read_sequences(&whole(&*store, "a").await?);
    equal("after all writers and trims, what is read", left, (last - KEPT as i64 + 1..=last).collect::<Vec<_>>())
}

/// A reader beside a trim sees what is left, and never a hole.
pub(super) async fn beside_reads(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    append_all(&*store, &vec![entry("a", "x")?; 60]).await?;
    let mut trimmer = tokio::task::JoinSet::new();
    trimmer.spawn({
        let store = fixture.another().await.unwrap_or_else(|| store.clone());
        let scope = of("a")?;
        async move {
            for kept in [50_u64, 35, 20, 10, 5] {
                store.trim(scope.clone(), newest(kept), 99).await?;
            }
            Ok(())
        }
    });
    while !trimmer.is_empty() {
        let read = read_sequences(&whole(&*store, "a").await?);
        let first = read.first().copied().unwrap_or(0);
        equal("beside a trim that leaves at least 5 of 60, a read", read, (first..=60).collect::<Vec<_>>())?;
        that(first <= 56, || format!("a trim to the newest 5 of 60 left {first} to 60"))?;
        next_done(&mut trimmer).await?;
    }
    Ok(())
}
