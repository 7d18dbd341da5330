//! Clause 6: a key is stored once.

use firehose_core::{Blocked, Retain, Scope};
use tokio::task::JoinSet;

use super::StoreFixture;
use super::order::next_done;
use super::words::*;
use crate::conformance::clause::Verdict;
use crate::conformance::expect::{equal, that};

pub(super) async fn the_first_is_given(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    let entries = [
        keyed("a", "first", "k")?,
        keyed("a", "second", "k")?,
        keyed("b", "other stream", "k")?,
        keyed("a", "other key", "K")?,
        entry("a", "no key")?,
    ];
    let stored = append_all(&*store, &entries).await?;
    equal("the second entry of a call that has the key of the first", &stored[1], &stored[0])?;
    let told: Vec<_> = stored.iter().map(|m| (m.sequence.0, &*m.data)).collect();
    let expected = [(1, "first"), (1, "first"), (1, "other stream"), (2, "other key"), (3, "no key")];
    equal("after an append of k, k again, k of another stream, K, no key: sequence and data", told, expected)?;

    let entries = [entry("a", "before")?, keyed("a", "x", "k")?, entry("a", "after")?];
    let again: Vec<_> = store.append(&entries, Blocked::Skip).await.into_iter().collect::<Result<_, _>>()?;
    equal("a later entry with the same key", &again[1], &stored[0])?;
    equal("the sequences around a repeated key", sequences(&again), [4, 1, 5])?;
    let read = read_sequences(&whole(&*store, "a").await?);
    equal("after all repeats, what is read", read, [1, 2, 3, 4, 5])?;

    // A key is remembered while its row is retained.
    let retain = Retain { messages: Some(4), ..Retain::default() };
    store.trim(Scope::Stream(name("a")?), retain, 1).await?;
    let anew = append_one(&*store, keyed("a", "anew", "k")?).await?;
    equal("after its row was trimmed, the key again", (anew.sequence.0, &*anew.data), (6, "anew"))
}

pub(super) async fn repeats_at_the_same_time(fixture: &dyn StoreFixture) -> Verdict {
    for round in 0..5 {
        let mut callers = JoinSet::new();
        for caller in 0..4 {
            let handle = if caller % 2 == 0 { None } else { fixture.another().await };
            let store = handle.unwrap_or_else(|| fixture.store());
            let entries = [keyed("a", &caller.to_string(), &format!("k{round}"))?, entry("b", "x")?];
            callers.spawn(async move { Ok(append_all(&*store, &entries).await?.remove(0)) });
        }
        let mut stored = Vec::new();
        while !callers.is_empty() {
            stored.extend(next_done(&mut callers).await?);
        }
        that(stored.windows(2).all(|pair| pair[0] == pair[1]), || {
            format!("four callers append one key at the same time: saw {stored:?}, expected one message")
        })?;
        let read = read_sequences(&whole(&*fixture.store(), "a").await?);
        equal(
            "after four callers appended one key at the same time, what is read",
            read,
            (1..=round + 1).collect::<Vec<_>>(),
        )?;
    }
    Ok(())
}
