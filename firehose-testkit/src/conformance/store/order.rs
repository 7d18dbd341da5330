//! Clauses 4 and 5: what becomes visible, and which ids it has.

use std::collections::BTreeSet;
use std::sync::Arc;

use firehose_core::{HeadDetail, Message, MessageStore, NewMessage, Retain, Scope};
use tokio::task::{JoinSet, yield_now};

use super::StoreFixture;
use super::words::*;
use crate::conformance::clause::Verdict;
use crate::conformance::expect::{equal, that, violated};

const WRITERS: usize = 4;
const ROUNDS: usize = 6;

/// Starts writers who append `entries` again and again, through as many handles as there are.
pub(super) async fn writers(fixture: &dyn StoreFixture, entries: &[NewMessage]) -> JoinSet<Verdict<Vec<Message>>> {
    let handles = [Some(fixture.store()), fixture.another().await];
    let handles: Vec<Arc<dyn MessageStore>> = handles.into_iter().flatten().collect();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (store, entries) = (handles[writer % handles.len()].clone(), entries.to_vec());
        writers.spawn(async move {
            let mut stored = Vec::new();
            for _ in 0..ROUNDS {
                stored.extend(append_all(&*store, &entries).await?);
                yield_now().await;
            }
            Ok(stored)
        });
    }
    writers
}

/// How many messages of an entry all writers store together.
pub(super) const WRITTEN: usize = WRITERS * ROUNDS;

/// What the writers stored, `None` while they are at it.
pub(super) async fn next_done<T: 'static>(tasks: &mut JoinSet<Verdict<T>>) -> Verdict<Option<T>> {
    match tasks.try_join_next() {
        None => {
            yield_now().await;
            Ok(None)
        }
        Some(Ok(done)) => Ok(Some(done?)),
        Some(Err(error)) => violated(format!("a panic while others work too: {error}")),
    }
}

pub(super) async fn no_hole_is_seen(fixture: &dyn StoreFixture) -> Verdict {
    let mut writers = writers(fixture, &entries("a", &["1", "2"])?).await;
    let reader = fixture.store();
    let mut last = 0;
    while !writers.is_empty() {
        let head = head(&*reader, "a", HeadDetail::Cheap).await?.map_or(0, |head| head.sequence.0);
        let read = read_sequences(&whole(&*reader, "a").await?);
        let visible = read.last().copied().unwrap_or(0);
        equal("while writers append, a read of the whole stream", read, (1..=visible).collect::<Vec<_>>())?;
        that(visible >= head, || format!("after a head of {head}, a read that ends at {visible}"))?;
        that(visible >= last, || format!("after a read that ends at {last}, one that ends at {visible}"))?;
        last = visible;
        next_done(&mut writers).await?;
    }
    equal("after all writers, the last sequence", whole(&*reader, "a").await?.len(), 2 * WRITTEN)
}

pub(super) async fn ids_rise(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    let entries = [entry("a", "1")?, entry("b", "1")?, entry("a", "2")?, entry("c", "1")?];
    let mut writers = writers(fixture, &entries).await;
    while !writers.is_empty() {
        if let Some(mut foreign) = fixture.begin().await {
            foreign.append(&entry("a", "undone")?).await?;
            foreign.rollback().await?;
        }
        next_done(&mut writers).await?;
    }
    for stream in ["a", "b", "c"] {
        let read = whole(&*store, stream).await?;
        for pair in read.windows(2) {
            that(pair[0].id < pair[1].id, || {
                let [(s, id), (next, other)] = [&pair[0], &pair[1]].map(|m| (m.sequence, m.id));
                format!("sequence {s} of {stream:?} has the id {id}, and {next} has {other}")
            })?;
        }
    }
    Ok(())
}

pub(super) async fn ids_are_given_once(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    let mut given = BTreeSet::new();
    let mut give = |when: &str, stored: Vec<Message>| -> Verdict {
        for message in stored {
            that(given.insert(message.id), || format!("{when}, the id {} is given out a second time", message.id))?;
        }
        Ok(())
    };
    give("at first", append_all(&*store, &[entry("a", "1")?, entry("b", "1")?, entry("a", "2")?]).await?)?;
    store.delete_stream(&name("b")?).await?;
    let nothing = Retain { messages: Some(0), ..Retain::default() };
    store.trim(Scope::Stream(name("a")?), nothing, 100).await?;
    give("after a trim to nothing", append(&*store, "a", &["3"]).await?)?;
    store.delete_stream(&name("a")?).await?;
    give("after the last stream was deleted", append(&*store, "a", &["1", "2"]).await?)?;
    if store.capabilities().durable {
        store.delete_stream(&name("a")?).await?;
        drop(store);
        if let Some(store) = fixture.reopen().await {
            give("after all was deleted and the store opened again", append(&*store, "a", &["1"]).await?)?;
        }
    }
    Ok(())
}
