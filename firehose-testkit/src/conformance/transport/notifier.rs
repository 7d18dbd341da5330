//! The contract of `Notifier`.

use super::TransportFixture;
use super::words::*;
use crate::conformance::clause::Verdict;
use crate::conformance::expect::equal;

pub(super) async fn who_listens_hears(fixture: &dyn TransportFixture) -> Verdict {
    let notifier = fixture.notifier();
    let (mut one, mut other) = (session(fixture, &["a"]).await?, session(fixture, &["b", "a"]).await?);
    send(&*notifier, &[("a", "1"), ("b", "2")]).await?;
    send(&*notifier, &[("a", "3")]).await?;
    send(&*notifier, &[("a", "end")]).await?;
    let heard = heard_until(&mut *one.events, "end").await?;
    equal("what a session on channel a hears of 1 (a), 2 (b), 3 (a)", heard, ["1", "3"])?;
    let mut heard = heard_until(&mut *other.events, "end").await?;
    heard.sort();
    equal("what a session on channels a and b hears of 1 (a), 2 (b), 3 (a)", heard, ["1", "2", "3"])
}
