//! Clause 15: calls that are dropped half way.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use firehose_core::{Blocked, Cursor, HeadDetail, Message, MessageStore, NewMessage, Position, Retain, Scope};

use tokio::task::yield_now;

use super::StoreFixture;
use super::trim::trim_all;
use super::words::*;
use crate::conformance::clause::Verdict;
use crate::conformance::expect::{equal, needed, that};
use crate::conformance::poll;

/// Drops a call after its first poll, then one after its second, and so on, until one comes to its end. After each, what
/// is said to hold must hold.
macro_rules! at_every_poll {
    ($call:expr, after $polls:ident => $check:expr) => {{
        let mut $polls = 1;
        loop {
            let ended = poll::at_most($polls, $call).await;
            $check;
            if let Some(ended) = ended {
                break ended;
            }
            $polls += 1;
        }
    }};
}

/// How many entries of each stream an append has that is to be dropped.
const A: usize = 3;
const B: usize = 2;

/// Entries that say which attempt they are of.
fn attempt(number: usize, blocked: Blocked) -> firehose_core::Result<Vec<NewMessage>> {
    ["a", "b", "a", "a", "b"].iter().map(|stream| entry(stream, &format!("{number} ({blocked:?})"))).collect()
}

/// Each attempt is there with all that it has for the stream, side by side, or not at all.
fn whole_or_not(what: &str, stream: &str, read: &[Arc<Message>], each: usize) -> Verdict {
    let sequences = read_sequences(read);
    equal(format!("{what}, the sequences of {stream}"), sequences, (1..=read.len() as i64).collect::<Vec<_>>())?;
    let mut places = BTreeMap::<&str, Vec<i64>>::new();
    for message in read {
        places.entry(&message.data).or_default().push(message.sequence.0);
    }
    for (attempt, places) in places {
        let side_by_side = places.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        that(places.len() == each && side_by_side, || {
            format!(
                "{what}, of the {each} entries that attempt {attempt} had for {stream}: saw the sequences {places:?}"
            )
        })?;
    }
    Ok(())
}

pub(super) async fn append_whole_or_not(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    for blocked in [Blocked::Skip, Blocked::Wait] {
        let results = at_every_poll!(store.append(&attempt(polls, blocked)?, blocked), after polls => {
            whole_or_not("after appends that were dropped", "a", &whole(&*store, "a").await?, A)?;
            append_one(&*store, entry("other", "x")?).await?;
        });
        results.into_iter().collect::<Result<Vec<_>, _>>()?;
        // Comes after whatever was on its way.
        for stream in ["a", "b"] {
            append_all(&*store, &vec![entry(stream, "fence")?; if stream == "a" { A } else { B }]).await?;
        }
        for (stream, each) in [("a", A), ("b", B)] {
            whole_or_not(
                "after an append was dropped at each of its polls",
                stream,
                &whole(&*store, stream).await?,
                each,
            )?;
            store.delete_stream(&name(stream)?).await?;
        }
    }
    Ok(())
}

pub(super) async fn a_dropped_wait(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    for polls in 1..=6 {
        let mut foreign = needed(fixture.begin().await, "transaction of another writer")?;
        foreign.append(&entry("held", "foreign")?).await?;
        {
            let number = polls.to_string();
            let entries = entries("held", &[&number, &number])?;
            let mut waiting = pin!(store.append(&entries, Blocked::Wait));
            for _ in 0..polls {
                if poll::once(waiting.as_mut()).await.is_some() {
                    // It did not wait, which is for another clause.
                    break;
                }
                // Gives a store that works elsewhere its time.
                whole(&*store, "held").await?;
            }
        }
        foreign.rollback().await?;
        for _ in 0..3 {
            // Whoever goes on with it all the same does so now.
            yield_now().await;
        }
        append_all(&*store, &vec![entry("held", &format!("next {polls}"))?; 2]).await?;
        whole_or_not("after an append that waited was dropped", "held", &whole(&*store, "held").await?, 2)?;
    }
    Ok(())
}

pub(super) async fn reads(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    let stored = append_all(&*store, &[entry("a", "1")?, entry("a", "2")?, entry("b", "1")?]).await?;
    let (names, ids) = ([name("a")?, name("b")?], [stored[0].id]);
    let cursors = [stored[1].cursor()];
    let requests = [(name("a")?, Position::Cursor(Cursor::BEGINNING))];
    let works = async |store: &dyn MessageStore| -> Verdict {
        append_one(store, entry("other", "x")?).await?;
        equal("after a read was dropped, a read", read_sequences(&whole(store, "a").await?), [1, 2])
    };
    at_every_poll!(store.get_many(&ids), after polls => works(&*store).await?)?;
    at_every_poll!(store.read_after(&requests, ALL), after polls => works(&*store).await?)?;
    at_every_poll!(store.read_before(&names[0], place(None, 9), ALL), after polls => works(&*store).await?)?;
    at_every_poll!(store.heads(&names, HeadDetail::Full), after polls => works(&*store).await?)?;
    at_every_poll!(store.anchors(&cursors), after polls => works(&*store).await?)?;
    at_every_poll!(store.settings(), after polls => works(&*store).await?)?;
    at_every_poll!(store.recover(), after polls => works(&*store).await?)?;
    Ok(())
}

pub(super) async fn trims(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    let retain = Retain { messages: Some(2), ..Retain::default() };
    for scope in [Scope::Stream(name("a")?), Scope::All] {
        at_every_poll!(store.trim(scope.clone(), retain, 1), after polls => {
            let last = append(&*store, "a", &["x", "y"]).await?[1].sequence.0;
            let read = read_sequences(&whole(&*store, "a").await?);
            let first = read.first().copied().unwrap_or(0);
            equal("after a trim was dropped, what is read", read, (first..=last).collect::<Vec<_>>())?;
        })?;
        // What a dropped one holds may take a moment to be let go.
        trim_all(&*store, &scope, retain).await?;
        let left = whole(&*store, "a").await?.len();
        that(left >= 2, || format!("after trims to the newest 2, {left} are left"))?;
    }
    Ok(())
}

pub(super) async fn deletions(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    let stream = name("a")?;
    for polls in 1.. {
        append(&*store, "a", &["x", "y", "z"]).await?;
        let ended = poll::at_most(polls, store.delete_stream(&stream)).await;
        let read = read_sequences(&whole(&*store, "a").await?);
        let expected: Vec<_> = (1..=read.len() as i64).collect();
        equal("after a deletion was dropped, what is read", &read, &expected)?;
        that(read.len().is_multiple_of(3), || format!("after a deletion was dropped, {} of 3 are left", read.len()))?;
        append_one(&*store, entry("other", "x")?).await?;
        if let Some(ended) = ended {
            ended?;
            break;
        }
    }
    equal("after a deletion that ended, the head", head(&*store, "a", HeadDetail::Cheap).await?, None)
}
