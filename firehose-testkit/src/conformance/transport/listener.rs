//! The contract of `Listener`.

use tokio::task::yield_now;

use super::TransportFixture;
use super::words::*;
use crate::conformance::clause::Verdict;
use crate::conformance::expect::{equal, that};
use crate::conformance::poll;

pub(super) async fn of_its_own(fixture: &dyn TransportFixture) -> Verdict {
    let notifier = fixture.notifier();
    let (mut one, first) = (session(fixture, &["a"]).await?, session(fixture, &["a"]).await?);
    first.control.close().await;
    let mut second = session(fixture, &["a"]).await?;
    send(&*notifier, &[("a", "1")]).await?;
    equal("what a session hears after another was closed", heard(&mut *one.events).await?, "1")?;
    equal("what a session hears that came after that", heard(&mut *second.events).await?, "1")?;
    if fixture.cut().await {
        let mut third = session(fixture, &["a"]).await?;
        // The wire may have taken the notifier's connection too: it says so, once.
        if send(&*notifier, &[("a", "2")]).await.is_err() {
            send(&*notifier, &[("a", "2")]).await?;
        }
        equal("what a session hears that came after a cut", heard(&mut *third.events).await?, "2")?;
    }
    Ok(())
}

pub(super) async fn nothing_at_first(fixture: &dyn TransportFixture) -> Verdict {
    let mut witness = session(fixture, &["a"]).await?;
    let mut fresh = session(fixture, &[]).await?;
    send(&*fixture.notifier(), &[("a", "unheard")]).await?;
    equal("what a session that listens hears", heard(&mut *witness.events).await?, "unheard")?;
    listen(&*fresh.control, &["a"]).await?;
    send(&*fixture.notifier(), &[("a", "heard")]).await?;
    let first = heard(&mut *fresh.events).await?;
    equal("the first that a session hears of what was sent before and after its LISTEN", first, "heard")
}

pub(super) async fn dropped_half(fixture: &dyn TransportFixture) -> Verdict {
    let _witness = session(fixture, &["a"]).await?;
    let mut first = session(fixture, &["a"]).await?;
    drop(first.control);
    send(&*fixture.notifier(), &[("a", "too late")]).await?;
    lost(&mut *first.events, "after its control was dropped, the next event of a session").await?;
    left(fixture, "after its control was dropped", 1).await?;
    drop(first.events);

    let second = session(fixture, &["a"]).await?;
    drop(second.events);
    let refused = second.control.listen(&channels(&["b"])?).await.is_err();
    that(refused, || "after its events were dropped, a session still takes a LISTEN".to_owned())?;
    left(fixture, "after its events were dropped", 1).await
}

pub(super) async fn dropped_connect(fixture: &dyn TransportFixture) -> Verdict {
    let listener = fixture.listener();
    let mut polls = 1;
    loop {
        let ended = poll::at_most(polls, listener.connect()).await;
        let done = ended.is_some();
        // One that came to its end is dropped as well.
        drop(ended);
        left(fixture, &format!("after a connect was dropped at poll {polls}"), 0).await?;
        if done {
            break;
        }
        polls += 1;
    }
    let mut session = session(fixture, &["a"]).await?;
    send(&*fixture.notifier(), &[("a", "heard")]).await?;
    equal("after dropped connects, what a session hears", heard(&mut *session.events).await?, "heard")
}

/// The other end has `count` sessions, or soon; it may take a moment to see that a connection is closed.
async fn left(fixture: &dyn TransportFixture, when: &str, count: usize) -> Verdict {
    for _ in 0..1_000 {
        match fixture.open_sessions().await {
            Some(open) if open != count => yield_now().await,
            _ => return Ok(()),
        }
    }
    let open = fixture.open_sessions().await.unwrap_or(count);
    equal(format!("{when}, how many sessions the other end has"), open, count)
}
