//! The contract of `ListenControl`.

use std::pin::pin;

use firehose_core::{ListenControl, ListenEvent, Notification};

use super::TransportFixture;
use super::words::*;
use crate::conformance::clause::{Stop, Verdict};
use crate::conformance::expect::{equal, needed, that, violated};
use crate::conformance::poll;

pub(super) async fn later_commit(fixture: &dyn TransportFixture) -> Verdict {
    let early = fixture.begin(Notification::new(channel("a")?, "begun before")).await;
    let early = needed(early, "transaction of another sender")?;
    let mut session = session(fixture, &["a"]).await?;
    early.commit().await?;
    send(&*fixture.notifier(), &[("a", "end")]).await?;
    let heard = heard_until(&mut *session.events, "end").await?;
    equal("what is heard of a transaction that was begun before LISTEN and committed after it", heard, ["begun before"])
}

pub(super) async fn beside_the_wait(fixture: &dyn TransportFixture) -> Verdict {
    let mut session = session(fixture, &[]).await?;
    for round in ["first", "second"] {
        let mut next = pin!(heard(&mut *session.events));
        if let Some(event) = poll::once(next.as_mut()).await {
            return violated(format!("before anything was sent, the events gave {event:?}"));
        }
        // The wait goes on while LISTEN is answered.
        let channels = [round];
        let mut listening = pin!(listen(&*session.control, &channels));
        let early = tokio::select! {
            biased;
            done = &mut listening => { done?; None }
            event = &mut next => Some(event),
        };
        that(early.is_none(), || format!("before anything was sent, the events gave {early:?}"))?;
        send(&*fixture.notifier(), &[(round, round)]).await?;
        equal("what is heard by who waited for events before LISTEN", next.await?, round)?;
    }
    Ok(())
}

pub(super) async fn twice(fixture: &dyn TransportFixture) -> Verdict {
    let mut session = session(fixture, &["a", "a"]).await?;
    listen(&*session.control, &["a"]).await?;
    session.control.unlisten(&channels(&["never"])?).await?;
    session.control.unlisten(&[]).await?;
    session.control.listen(&[]).await?;
    send(&*fixture.notifier(), &[("a", "1"), ("a", "2")]).await?;
    send(&*fixture.notifier(), &[("a", "end")]).await?;
    let heard = heard_until(&mut *session.events, "end").await?;
    equal("what is heard on a channel that was listened to three times", heard, ["1", "2"])
}

pub(super) async fn unlisten(fixture: &dyn TransportFixture) -> Verdict {
    let mut session = session(fixture, &["a", "b"]).await?;
    send(&*fixture.notifier(), &[("a", "before")]).await?;
    equal("what is heard before UNLISTEN", heard(&mut *session.events).await?, "before")?;
    session.control.unlisten(&channels(&["a"])?).await?;
    send(&*fixture.notifier(), &[("a", "after")]).await?;
    send(&*fixture.notifier(), &[("b", "end")]).await?;
    equal("what is heard after UNLISTEN", heard_until(&mut *session.events, "end").await?, Vec::<String>::new())?;
    listen(&*session.control, &["a"]).await?;
    send(&*fixture.notifier(), &[("a", "again")]).await?;
    equal("what is heard after UNLISTEN and LISTEN", heard(&mut *session.events).await?, "again")
}

pub(super) async fn after_an_error(fixture: &dyn TransportFixture) -> Verdict {
    let mut session = session(fixture, &["a"]).await?;
    if !fixture.refuse_next_command().await {
        return Err(Stop::Lacking("the fixture has no way to make a command fail".to_owned()));
    }
    let refused = session.control.listen(&channels(&["b"])?).await.is_err();
    that(refused, || "a LISTEN that the other end refuses is Ok".to_owned())?;
    send(&*fixture.notifier(), &[("a", "1")]).await?;
    equal("what is heard after a command failed", heard(&mut *session.events).await?, "1")?;
    listen(&*session.control, &["b"]).await?;
    send(&*fixture.notifier(), &[("b", "2")]).await?;
    equal("what is heard after a LISTEN that failed was repeated", heard(&mut *session.events).await?, "2")
}

pub(super) async fn ping(fixture: &dyn TransportFixture) -> Verdict {
    let alive = session(fixture, &["a"]).await?;
    for _ in 0..3 {
        alive.control.ping().await?;
    }
    let closed = session(fixture, &["a"]).await?;
    closed.control.close().await;
    that(closed.control.ping().await.is_err(), || "a session that was closed answers a ping".to_owned())?;
    if fixture.cut().await {
        that(alive.control.ping().await.is_err(), || "a session that was cut answers a ping".to_owned())?;
    }
    Ok(())
}

pub(super) async fn registered(fixture: &dyn TransportFixture) -> Verdict {
    let session = session(fixture, &["a", "b", "c"]).await?;
    let _other = super::words::session(fixture, &["d"]).await?;
    let told = async |control: &dyn ListenControl| -> Verdict<Vec<String>> {
        match control.registered().await? {
            Some(channels) => {
                let mut names: Vec<_> = channels.iter().map(|channel| channel.as_str().to_owned()).collect();
                names.sort();
                Ok(names)
            }
            None => Err(Stop::Lacking("the other end cannot say what a session listens to".to_owned())),
        }
    };
    equal("what a session is registered for after LISTEN on a, b, c", told(&*session.control).await?, ["a", "b", "c"])?;
    session.control.unlisten(&channels(&["b"])?).await?;
    equal("after UNLISTEN of b", told(&*session.control).await?, ["a", "c"])
}

pub(super) async fn close(fixture: &dyn TransportFixture) -> Verdict {
    let mut session = session(fixture, &["a"]).await?;
    let _witness = super::words::session(fixture, &["a"]).await?;
    send(&*fixture.notifier(), &[("a", "1"), ("a", "2"), ("a", "3")]).await?;
    equal("the first of three", heard(&mut *session.events).await?, "1")?;
    session.control.close().await;
    send(&*fixture.notifier(), &[("a", "too late")]).await?;
    // What had arrived by then is still given; how much that is, only the session knows.
    let mut left = Vec::new();
    loop {
        match session.events.next().await {
            ListenEvent::Notification { payload, .. } => left.push(payload.to_string()),
            ListenEvent::Lost(_) => break,
        }
        that(left.len() <= 2 && left == ["2", "3"][..left.len()], || {
            format!(
                "1 of 1, 2, 3 was taken before `close`: saw {left:?} after it, expected [\"2\", \"3\"], or less, and Lost"
            )
        })?;
    }
    let refused = session.control.listen(&channels(&["b"])?).await.is_err();
    that(refused, || "a session that was closed takes a LISTEN".to_owned())
}

pub(super) async fn dropped(fixture: &dyn TransportFixture) -> Verdict {
    let mut session = session(fixture, &["a"]).await?;
    let both = channels(&["b", "c"])?;
    for polls in 1.. {
        let control = &session.control;
        let ended = [
            poll::at_most(polls, control.listen(&both)).await.is_some(),
            poll::at_most(polls, control.ping()).await.is_some(),
            poll::at_most(polls, control.registered()).await.is_some(),
            poll::at_most(polls, control.unlisten(&both)).await.is_some(),
        ];
        control.listen(&both).await?;
        let last = format!("after {polls}");
        send(&*fixture.notifier(), &[("a", "1"), ("b", "2"), ("c", &last)]).await?;
        let mut heard = heard_until(&mut *session.events, &last).await?;
        heard.sort();
        equal(format!("after commands were dropped at poll {polls} and LISTEN was repeated"), heard, ["1", "2"])?;
        if ended == [true; 4] {
            break;
        }
    }
    Ok(())
}
