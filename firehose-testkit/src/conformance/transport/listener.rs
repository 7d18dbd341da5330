//! The contract of `Listener`.

use super::TransportFixture;
use super::words::*;
use crate::conformance::clause::Verdict;
use crate::conformance::expect::equal;

pub(super) async fn nothing_at_first(fixture: &dyn TransportFixture) -> Verdict {
    let mut witness = session(fixture, &["a"]).await?;
    let mut fresh = session(fixture, &[]).await?;
    send(&*fixture.notifier(), &[("a", "unheard")]).await?;
    equal("what a session that listens hears", heard(&mut *witness.events).await?, "unheard")?;
    listen(&*fresh.control, &["a"]).await?;
    send(&*fixture.notifier(), &[("a", "heard")]).await?;
    equal(
        "the first that a session hears of what was sent before and after its LISTEN",
        heard(&mut *fresh.events).await?,
        "heard",
    )
}
