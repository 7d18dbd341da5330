//! Clauses 1 to 3: what an append gives.

use firehose_core::{Blocked, ErrorKind, HeadDetail, Outcome};

use super::StoreFixture;
use super::words::*;
use crate::conformance::clause::Verdict;
use crate::conformance::expect::{capable, equal, needed, that};

pub(super) async fn results_of_their_own(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    let entries = [entry("a", "1")?, bad("a")?, entry("b", "2")?, entry("a", "")?, entry("a", "ü 日本 \u{1F600}")?];
    for blocked in [Blocked::Skip, Blocked::Wait] {
        let results = store.append(&entries, blocked).await;
        let refused = [None, Some(ErrorKind::InvalidData), None, None, None];
        equal("after an append whose second entry has a NUL in its data, the errors", kinds(&results), refused)?;
        let stored = results.iter().flatten().map(|m| (m.stream.as_str(), &*m.data)).collect::<Vec<_>>();
        let good = [("a", "1"), ("b", "2"), ("a", ""), ("a", "ü 日本 \u{1F600}")];
        equal("after the same append, the messages of the good entries, in order", stored, good)?;
        let outcomes: Vec<_> = results.iter().filter_map(|r| r.as_ref().err()).map(|e| e.outcome()).collect();
        equal("the outcome of an entry that was refused", outcomes, [Outcome::NotDone])?;
    }
    equal("the results of an append of nothing", store.append(&[], Blocked::Skip).await.len(), 0)
}

pub(super) async fn consecutive(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    let entries = [entry("a", "1")?, bad("a")?, entry("b", "1")?, entry("a", "2")?, bad("b")?, entry("a", "3")?];
    let results = store.append(&entries, Blocked::Skip).await;
    let given = sequences(results.iter().flatten());
    equal("after an append of a, a (bad), b, a, b (bad), a: the sequences of the good ones", given, [1, 1, 2, 3])?;
    let next = sequences(&append_all(&*store, &[entry("b", "2")?, entry("a", "4")?]).await?);
    equal("after another append of b, a: the sequences", next, [2, 4])?;
    let read = whole(&*store, "a").await?;
    let read: Vec<_> = read.iter().map(|m| (m.sequence.0, &*m.data)).collect();
    equal("after both appends, what is read of a", read, [(1, "1"), (2, "2"), (3, "3"), (4, "4")])
}

pub(super) async fn visible_at_once(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    let stored = append_one(&*store, keyed("a", "x", "k")?).await?;
    that(stored.created_at.is_some(), || "after an append, the message has no time".to_owned())?;
    let found = store.get_many(&[stored.id]).await?;
    equal("after an append, `get_many` of its id", &*found, [stored.clone().into()])?;
    equal("after an append, `read_after` from the beginning", whole(&*store, "a").await?, [stored.clone().into()])?;
    let back = store.read_before(&name("a")?, place(None, i64::MAX), ALL).await?;
    equal("after an append, `read_before` the end", back.messages, [stored.clone().into()])?;
    let head = head(&*store, "a", HeadDetail::Cheap).await?.map(|head| (head.epoch, head.sequence));
    equal("after an append, the head", head, Some((stored.channel_id, stored.sequence)))
}

pub(super) async fn visible_to_another(fixture: &dyn StoreFixture) -> Verdict {
    let other = needed(fixture.another().await, "other handle on the store")?;
    let store = fixture.store();
    for n in 1..=3 {
        let stored = append_one(&*store, entry("a", "one")?).await?;
        let seen = after(&*other, "a", place(None, n - 1), ALL).await?.messages;
        equal(format!("append {n} by one handle, read by another"), seen, [stored.into()])?;
    }
    let stored = append_one(&*other, entry("a", "other")?).await?;
    equal("an append by another handle: its sequence", stored.sequence.0, 4)?;
    equal("an append by another handle, read by the first", read_sequences(&whole(&*store, "a").await?), [1, 2, 3, 4])
}

pub(super) async fn outlives_a_crash(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    capable(store.capabilities().durable, "durable")?;
    let stored = append_all(&*store, &[entry("a", "1")?, entry("b", "2")?, keyed("a", "3", "k")?]).await?;
    drop(store);
    let store = needed(fixture.reopen().await, "way to open the store again after a crash")?;
    let mut found = store.get_many(&stored.iter().map(|m| m.id).collect::<Vec<_>>()).await?;
    found.sort_by_key(|message| message.id);
    let found: Vec<_> = found.iter().map(|message| (**message).clone()).collect();
    let mut expected = stored.clone();
    expected.sort_by_key(|message| message.id);
    equal("after a crash, what was stored before it", found, expected)?;
    let again = append_one(&*store, keyed("a", "again", "k")?).await?;
    equal("after a crash, an append of a key that was stored before it", Some(&again), stored.last())?;
    let next = append_one(&*store, entry("a", "4")?).await?;
    equal("after a crash, the next sequence of a stream that had two", next.sequence.0, 3)
}
