//! Clauses 11 and 12: heads, and what became of a cursor's row.

use firehose_core::{Anchor, Cursor, Epoch, Head, HeadDetail, MessageId, Sequence, Timestamp};
use tokio::task::{JoinSet, yield_now};

use super::StoreFixture;
use super::order::next_done;
use super::read::keep;
use super::words::*;
use crate::conformance::clause::Verdict;
use crate::conformance::expect::{equal, that};

pub(super) async fn heads(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    let a = append(&*store, "a", &["1", "2", "3"]).await?;
    let b = append(&*store, "b", &["1"]).await?;
    let names = [name("a")?, name("nobody")?, name("b")?, name("a")?];
    let [head_a, head_b] = [&a, &b].map(|stored| {
        let last = stored.last();
        let [epoch, sequence] = [last.map_or(0, |m| m.channel_id.0), last.map_or(0, |m| m.sequence.0)];
        Head::new(Epoch(epoch), Sequence(sequence))
    });
    let cheap = store.heads(&names, HeadDetail::Cheap).await?;
    let cheap: Vec<_> = cheap.into_iter().map(|head| head.map(|head| (head.epoch, head.sequence))).collect();
    let [told_a, told_b] = [head_a, head_b].map(|head| Some((head.epoch, head.sequence)));
    equal("the cheap heads of a, nobody, b, a", cheap, [told_a, None, told_b, told_a])?;
    let full = store.heads(&names, HeadDetail::Full).await?;
    let full_a = Some(head_a.with_retained(Some(a[2].id), Some((Sequence(1), a[0].id))));
    let full_b = Some(head_b.with_retained(Some(b[0].id), Some((Sequence(1), b[0].id))));
    equal("the full heads of a, nobody, b, a", full, [full_a, None, full_b, full_a])?;
    equal("the heads of no stream", store.heads(&[], HeadDetail::Full).await?.len(), 0)?;
    if let Some(mut foreign) = fixture.begin().await {
        foreign.append(&entry("a", "not committed")?).await?;
        foreign.append(&entry("c", "not committed")?).await?;
        let told = store.heads(&[name("a")?, name("c")?], HeadDetail::Full).await?;
        equal("while another transaction writes to a, and creates c: their heads", told, [full_a, None])?;
        foreign.commit().await?;
        let told = store.heads(&[name("a")?, name("c")?], HeadDetail::Cheap).await?;
        let told: Vec<_> = told.iter().flatten().map(|head| head.sequence.0).collect();
        equal("after it committed, their sequences", told, [4, 1])?;
    }
    Ok(())
}

pub(super) async fn trimming_lowers_no_head(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    let a = append(&*store, "a", &["1", "2", "3"]).await?;
    let bare = Head::new(a[0].channel_id, Sequence(3));
    keep(fixture, "a", 1).await?;
    let full = head(&*store, "a", HeadDetail::Full).await?;
    let expected = bare.with_retained(Some(a[2].id), Some((Sequence(3), a[2].id)));
    equal("after two of three were trimmed, the full head", full, Some(expected))?;
    keep(fixture, "a", 0).await?;
    equal("after all three were trimmed, the full head", head(&*store, "a", HeadDetail::Full).await?, Some(bare))?;
    equal("after that, the cheap head", head(&*store, "a", HeadDetail::Cheap).await?, Some(bare))?;
    let next = append(&*store, "a", &["4"]).await?;
    equal("after that, the next sequence", sequences(&next), [4])
}

pub(super) async fn one_snapshot(fixture: &dyn StoreFixture) -> Verdict {
    const ROUNDS: usize = 6;
    let store = fixture.store();
    let names = ["a", "b", "c", "d", "e", "f"];
    append_all(&*store, &names.map(|name| entry(name, "x")).into_iter().collect::<Result<Vec<_>, _>>()?).await?;
    let mut writer = JoinSet::new();
    writer.spawn({
        let store = fixture.another().await.unwrap_or_else(|| store.clone());
        async move {
            // No stream is ever ahead of the one before it, nor more than one behind the first.
            for _ in 0..ROUNDS {
                for stream in names {
                    append(&*store, stream, &["x"]).await?;
                    yield_now().await;
                }
            }
            Ok(())
        }
    });
    let orders = [[3, 0, 4, 1, 5, 2], [5, 4, 3, 2, 1, 0], [1, 3, 5, 0, 2, 4]];
    while !writer.is_empty() {
        for order in orders {
            let asked = order.map(|at| names[at]);
            let streams = asked.into_iter().map(name).collect::<Result<Vec<_>, _>>()?;
            let heads = store.heads(&streams, HeadDetail::Cheap).await?;
            let mut told: Vec<_> =
                asked.into_iter().zip(heads.iter().map(|head| head.map_or(0, |h| h.sequence.0))).collect();
            told.sort_unstable();
            let (first, last) = (told[0].1, told[told.len() - 1].1);
            that(told.is_sorted_by(|one, next| one.1 >= next.1) && first - last <= 1, || {
                format!(
                    "while a writer appends to a, b, c, d, e, f, a, …, the heads of {asked:?} in one call: saw {told:?}, which never was"
                )
            })?;
        }
        next_done(&mut writer).await?;
    }
    commits_as_one(fixture).await
}

/// A transaction that wrote to two streams shows on both at once.
async fn commits_as_one(fixture: &dyn StoreFixture) -> Verdict {
    let (store, names) = (fixture.store(), [name("one")?, name("other")?]);
    for round in 1..=5 {
        let Some(mut foreign) = fixture.begin().await else { return Ok(()) };
        for stream in &names {
            foreign.append(&entry(stream.as_str(), "x")?).await?;
        }
        let mut commit = JoinSet::new();
        commit.spawn(async move { Ok(foreign.commit().await?) });
        while !commit.is_empty() {
            let heads = store.heads(&names, HeadDetail::Cheap).await?;
            let told: Vec<_> = heads.into_iter().map(|head| head.map_or(0, |h| h.sequence.0)).collect();
            that(told == [round - 1; 2] || told == [round; 2], || {
                let expected = "expected both or neither";
                format!("while a transaction that wrote to two streams commits, their heads: saw {told:?}, {expected}")
            })?;
            next_done(&mut commit).await?;
        }
    }
    Ok(())
}

pub(super) async fn anchors(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    let epoch = append(&*store, "a", &["1", "2", "3"]).await?.first().map(|m| m.channel_id);
    append(&*store, "b", &["1"]).await?;
    let gone = append(&*store, "c", &["1"]).await?;
    store.delete_stream(&name("c")?).await?;
    // As it is read, since that is what a cursor comes from.
    let a = whole(&*store, "a").await?;
    let trimmed = a[0].cursor();
    keep(fixture, "a", 2).await?;
    let (own, bare) = (a[1].cursor(), Cursor::at(epoch, Sequence(2)));
    let later = own.created_at.map(|at| Timestamp(at.0 + 1));
    let oldest = Some((Sequence(2), a[1].id));
    let cases = [
        ("a retained message's cursor", own, Anchor::Same),
        ("one that knows neither id nor time", bare, Anchor::Same),
        ("one that knows no time", Cursor { created_at: None, ..own }, Anchor::Same),
        ("one that knows no id", Cursor { id: None, ..own }, Anchor::Same),
        ("one with another id", Cursor { id: Some(a[2].id), ..own }, Anchor::Other),
        ("one with an id that never was", Cursor { id: Some(MessageId(i64::MAX)), ..bare }, Anchor::Other),
        ("one with a time that is 1 µs later", Cursor { created_at: later, ..own }, Anchor::Other),
        ("a trimmed message's cursor", trimmed, Anchor::Trimmed { oldest }),
        ("one beyond the head", Cursor::at(epoch, Sequence(9)), Anchor::Trimmed { oldest }),
        ("sequence 0", Cursor::at(epoch, Sequence(0)), Anchor::Same),
        ("an epoch that was deleted", gone[0].cursor(), Anchor::Gone),
        ("sequence 0 of an epoch that was deleted", Cursor::at(Some(gone[0].channel_id), Sequence(0)), Anchor::Gone),
        ("one without epoch", Cursor { epoch: None, ..own }, Anchor::Gone),
        ("the beginning, without epoch", Cursor::BEGINNING, Anchor::Gone),
    ];
    let anchors = store.anchors(&cases.map(|(_, cursor, _)| cursor)).await?;
    equal("the number of anchors", anchors.len(), cases.len())?;
    for ((what, cursor, expected), anchor) in cases.iter().zip(anchors) {
        equal(format!("the anchor of {what}, {cursor}, where 2 and 3 are retained"), anchor, *expected)?;
    }
    keep(fixture, "a", 0).await?;
    equal("after a trim to nothing, the anchor", store.anchors(&[own]).await?, [Anchor::Trimmed { oldest: None }])?;
    equal("the anchors of nothing", store.anchors(&[]).await?.len(), 0)
}
