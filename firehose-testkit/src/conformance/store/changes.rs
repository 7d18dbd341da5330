//! Clause 16: what changed since a mark.

use std::collections::BTreeSet;

use firehose_core::{Changed, ErrorKind, HeadDetail, MessageStore, SweepMark};

use super::StoreFixture;
use super::words::*;
use crate::conformance::clause::{Stop, Verdict};
use crate::conformance::expect::{equal, needed, that, violated};

const MOST: usize = 1_000;

/// Asks on from `mark`, and leaves the next mark there; `None` where the store cannot say.
async fn ask(store: &dyn MessageStore, mark: &mut SweepMark, most: usize) -> Verdict<Option<BTreeSet<String>>> {
    let (changed, next) = match store.changed_since(mark.clone(), most).await {
        Err(error) if error.kind() == ErrorKind::NotSupported => {
            return Err(Stop::Lacking("the store has no `changed_since`".to_owned()));
        }
        answer => answer?,
    };
    *mark = next;
    let Changed::Streams(streams) = changed else { return Ok(None) };
    let mut names = BTreeSet::new();
    for (stream, told) in streams {
        // Nobody else writes while a test looks.
        let head = head(store, stream.as_str(), HeadDetail::Full).await?;
        let saw = Some((told.epoch, told.sequence, told.last_id));
        equal(format!("the head that is told of {stream}"), saw, head.map(|h| (h.epoch, h.sequence, h.last_id)))?;
        names.insert(stream.to_string());
    }
    Ok(Some(names))
}

/// A mark from which the store can say what changed.
async fn begun(store: &dyn MessageStore) -> Verdict<SweepMark> {
    let mut mark = SweepMark::START;
    for _ in 0..1_000 {
        if ask(store, &mut mark, MOST).await?.is_some() {
            return Ok(mark);
        }
    }
    violated("a store that nobody writes to cannot say what changed, a thousand times in a row")
}

fn names(streams: &[&str]) -> Option<BTreeSet<String>> {
    Some(streams.iter().map(|stream| (*stream).to_owned()).collect())
}

/// It may name more than what changed, and it may not know; but what it names has to have all of these.
fn has(what: &str, changed: Option<&BTreeSet<String>>, expected: &[&str]) -> Verdict {
    let missed: Vec<_> =
        expected.iter().filter(|stream| changed.is_some_and(|names| !names.contains(**stream))).collect();
    that(missed.is_empty(), || format!("{what}: it named {changed:?}, without {missed:?}"))
}

pub(super) async fn names_what_changed(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    append(&*store, "before", &["1", "2"]).await?;
    let mut mark = begun(&*store).await?;
    equal("nothing was stored: what changed", ask(&*store, &mut mark, MOST).await?, names(&[]))?;
    append(&*store, "before", &["3"]).await?;
    append(&*store, "new", &["1", "2"]).await?;
    let first = mark.clone();
    has("three were stored", ask(&*store, &mut mark, MOST).await?.as_ref(), &["before", "new"])?;
    append(&*store, "new", &["3"]).await?;
    has("one more was stored", ask(&*store, &mut mark, MOST).await?.as_ref(), &["new"])?;
    let mut again = first;
    has("from the earlier mark again", ask(&*store, &mut again, MOST).await?.as_ref(), &["before", "new"])?;
    store.delete_stream(&name("new")?).await?;
    append(&*store, "new", &["1"]).await?;
    has("a stream was made anew", ask(&*store, &mut mark, MOST).await?.as_ref(), &["new"])
}

pub(super) async fn is_bounded(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    append(&*store, "many", &["1"]).await?;
    let mut mark = begun(&*store).await?;
    append(&*store, "many", &["x"; 20]).await?;
    append(&*store, "last", &["1"]).await?;
    has("21 were stored, and 5 may be looked at", ask(&*store, &mut mark, 5).await?.as_ref(), &["many", "last"])?;
    append(&*store, "after", &["1"]).await?;
    let mut found = false;
    for _ in 0..1_000 {
        match ask(&*store, &mut mark, MOST).await? {
            Some(changed) => {
                has("one was stored after it could not say", Some(&changed), &["after"])?;
                found = true;
                break;
            }
            // The heads are read then, which have it.
            None => append(&*store, "after", &["more"]).await.map(drop)?,
        }
    }
    that(found, || "it never could say again".to_owned())
}

pub(super) async fn finds_late_commits(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    append(&*store, "late", &["1"]).await?;
    for looks in 0..4 {
        let mut mark = begun(&*store).await?;
        let mut open = needed(fixture.begin().await, "transaction of another writer")?;
        open.append(&entry("late", "below the others")?).await?;
        let mut other = needed(fixture.begin().await, "transaction of another writer")?;
        other.append(&entry("unrelated", "x")?).await?;
        for _ in 0..looks {
            append(&*store, "others", &["x"]).await?;
            has("beside an open transaction", ask(&*store, &mut mark, MOST).await?.as_ref(), &["others"])?;
        }
        let could_say = ask(&*store, &mut mark, MOST).await?.is_some();
        open.commit().await?;
        // Where it could not say, the heads that were read then had it not; so this call has to have it, or not say either.
        let what = format!("a transaction committed after {looks} later ones on another stream were looked at");
        has(&what, ask(&*store, &mut mark, MOST).await?.as_ref(), &["late"])?;
        that(could_say || looks == 0, || "a transaction that is open keeps it from saying anything".to_owned())?;
        other.rollback().await?;
    }
    Ok(())
}

pub(super) async fn knows_its_marks(fixture: &dyn StoreFixture) -> Verdict {
    let store = fixture.store();
    append(&*store, "a", &["1"]).await?;
    let mut foreign = SweepMark::new("of nobody's".to_owned());
    has("a mark of another store", ask(&*store, &mut foreign, MOST).await?.as_ref(), &["a"])?;
    let mark = begun(&*store).await?;
    append(&*store, "b", &["1"]).await?;
    let another = needed(fixture.another().await, "other handle")?;
    let mut shared = mark.clone();
    has("a mark of the same store's other handle", ask(&*another, &mut shared, MOST).await?.as_ref(), &["b"])
}
