//! Clause 7: streams that another transaction holds.

use std::pin::pin;

use firehose_core::{Blocked, ErrorKind, Outcome};

use super::StoreFixture;
use super::words::*;
use crate::conformance::clause::Verdict;
use crate::conformance::expect::{equal, needed, that, violated};
use crate::conformance::poll;

pub(super) async fn skip_leaves_out(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    append(&*store, "held", &["1"]).await?;
    let mut foreign = needed(fixture.begin().await, "transaction of another writer")?;
    foreign.append(&entry("held", "2")?).await?;
    foreign.append(&entry("unborn", "1")?).await?;
    let entries =
        [entry("held", "x")?, entry("free", "1")?, entry("held", "y")?, entry("unborn", "z")?, entry("free", "2")?];
    let results = store.append(&entries, Blocked::Skip).await;
    let blocked = Some(ErrorKind::StreamBlocked);
    let expected = [blocked, None, blocked, blocked, None];
    equal("an append of held, free, held, unborn (created by the other), free: the errors", kinds(&results), expected)?;
    let outcomes: Vec<_> =
        results.iter().filter_map(|r| r.as_ref().err()).map(|e| (e.outcome(), e.is_retryable())).collect();
    equal("the outcome of what was left out, and whether it may be repeated", outcomes, [(Outcome::NotDone, true); 3])?;
    foreign.rollback().await?;
    let stored = append_all(&*store, &entries).await?;
    equal("the same append after the other rolled back: the sequences", sequences(&stored), [2, 3, 3, 1, 4])
}

pub(super) async fn wait_waits(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    append(&*store, "held", &["1"]).await?;
    let mut foreign = needed(fixture.begin().await, "transaction of another writer")?;
    foreign.append(&entry("held", "2")?).await?;
    let entries = [entry("held", "3")?, entry("free", "1")?, entry("held", "4")?];
    let mut waiting = pin!(store.append(&entries, Blocked::Wait));
    // Each read gives a store that works elsewhere its time.
    for _ in 0..10 {
        if let Some(results) = poll::once(waiting.as_mut()).await {
            return violated(format!(
                "while another transaction holds a stream, an append with Wait ended: {results:?}"
            ));
        }
        let read = read_sequences(&whole(&*store, "held").await?);
        equal("while another transaction holds a stream at 2, and an append waits for it: what is read", read, [1])?;
    }
    foreign.commit().await?;
    let stored = waiting.await.into_iter().collect::<Result<Vec<_>, _>>()?;
    equal("after the other committed 2: the sequences of held, free, held", sequences(&stored), [3, 1, 4])?;
    let read = read_sequences(&whole(&*store, "held").await?);
    that(read == [1, 2, 3, 4], || format!("after both committed: saw {read:?}, expected [1, 2, 3, 4]"))
}
