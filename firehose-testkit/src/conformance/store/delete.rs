//! Clause 14: streams that end, and begin anew.

use std::collections::BTreeSet;

use firehose_core::{Epoch, HeadDetail, Message};

use super::StoreFixture;
use super::order::{next_done, writers};
use super::words::*;
use crate::conformance::clause::Verdict;
use crate::conformance::expect::{capable, equal, needed, that};

pub(super) async fn begins_anew(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    let old = append_all(&*store, &[keyed("a", "1", "k")?, entry("a", "2")?]).await?;
    append(&*store, "b", &["1"]).await?;
    let epoch = old[0].channel_id;
    equal("`delete_stream`", store.delete_stream(&name("a")?).await?, Some(epoch))?;
    equal("`delete_stream` again", store.delete_stream(&name("a")?).await?, None)?;
    equal("after it was deleted, its head", head(&*store, "a", HeadDetail::Full).await?, None)?;
    equal("after it was deleted, what is read", data(&whole(&*store, "a").await?), Vec::<&str>::new())?;
    equal("after that, what is read of another stream", data(&whole(&*store, "b").await?), ["1"])?;
    let new = append_all(&*store, &[entry("a", "x")?, keyed("a", "y", "k")?]).await?;
    equal("created again, its sequences", sequences(&new), [1, 2])?;
    that(new[0].channel_id != epoch, || format!("created again, it has the epoch {epoch} as before"))?;
    equal("created again, what is read", data(&whole(&*store, "a").await?), ["x", "y"])?;
    let told = head(&*store, "a", HeadDetail::Cheap).await?.map(|head| (head.epoch, head.sequence.0));
    equal("created again, its head", told, Some((new[0].channel_id, 2)))
}

pub(super) async fn epochs_are_given_once(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    capable(store.capabilities().durable_epochs, "one that never repeats an epoch")?;
    let mut given = BTreeSet::<Epoch>::new();
    let mut give = |when: &str, stored: &[Message]| {
        let epoch = stored[0].channel_id;
        that(given.insert(epoch), || format!("{when}, the epoch {epoch} is given out a second time"))
    };
    give("at first", &append(&*store, "a", &["1"]).await?)?;
    for round in 1..=2 {
        store.delete_stream(&name("a")?).await?;
        give(&format!("after {round} deletions"), &append(&*store, "a", &["1"]).await?)?;
    }
    store.delete_stream(&name("a")?).await?;
    drop(store);
    let store = needed(fixture.reopen().await, "way to open the store again after a crash")?;
    give("after all was deleted and the store opened again", &append(&*store, "a", &["1"]).await?)
}

pub(super) async fn beside_appends(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    let mut writers = writers(fixture, &entries("a", &["1", "2"])?).await;
    let mut stored = Vec::new();
    let mut deletions = 0;
    while !writers.is_empty() {
        if deletions < 6 {
            deletions += 1;
            store.delete_stream(&name("a")?).await?;
        }
        stored.extend(next_done(&mut writers).await?.into_iter().flatten());
        one_life(&whole(&*store, "a").await?)?;
    }
    let read = whole(&*store, "a").await?;
    one_life(&read)?;
    let epoch = head(&*store, "a", HeadDetail::Cheap).await?.map(|head| head.epoch);
    let mut expected: Vec<_> = stored.into_iter().filter(|message| Some(message.channel_id) == epoch).collect();
    expected.sort_by_key(|message| message.sequence);
    let told = (read_sequences(&read), sequences(&expected));
    equal("after deletions beside appends, what is read and what was stored in the epoch that lives", &told.0, &told.1)
}

/// What is read at once is of one epoch, from its beginning on.
fn one_life(read: &[std::sync::Arc<Message>]) -> Verdict {
    let told: Vec<_> = read.iter().map(|message| (message.channel_id, message.sequence.0)).collect();
    let epoch = told.first().map_or(Epoch(0), |first| first.0);
    let expected: Vec<_> = (1..).map(|sequence| (epoch, sequence)).take(told.len()).collect();
    equal("beside deletions and appends, a read of the stream: (epoch, sequence)", told, expected)
}
