//! The contract of `Notifier`.

use firehose_core::{ErrorKind, Notification};

use super::TransportFixture;
use super::words::*;
use crate::conformance::clause::Verdict;
use crate::conformance::expect::{equal, that, violated};
use crate::conformance::poll;

pub(super) async fn who_listens_hears(fixture: &dyn TransportFixture) -> Verdict {
    let notifier = fixture.notifier();
    let (mut one, mut other) = (session(fixture, &["a"]).await?, session(fixture, &["b", "a"]).await?);
    send(&*notifier, &[("a", "1"), ("b", "2")]).await?;
    send(&*notifier, &[("a", "3"), ("c", "unheard")]).await?;
    send(&*notifier, &[("a", "end of a")]).await?;
    send(&*notifier, &[("b", "end of b")]).await?;
    let heard = heard_until(&mut *one.events, "end of a").await?;
    equal("what a session on channel a hears of 1 (a), 2 (b), 3 (a)", heard, ["1", "3"])?;
    let mut heard = heard_until(&mut *other.events, "end of b").await?;
    heard.sort();
    equal("what a session on channels a and b hears of 1 (a), 2 (b), 3 (a)", heard, ["1", "2", "3", "end of a"])
}

pub(super) async fn equal_ones(fixture: &dyn TransportFixture) -> Verdict {
    let notifier = fixture.notifier();
    let mut session = session(fixture, &["a"]).await?;
    send(&*notifier, &[("a", "x"), ("a", "x"), ("a", "x")]).await?;
    send(&*notifier, &[("a", "end")]).await?;
    let heard = heard_until(&mut *session.events, "end").await?;
    equal("what is heard of a call with x three times", heard, ["x"; 3])
}

pub(super) async fn order(fixture: &dyn TransportFixture) -> Verdict {
    let notifier = fixture.notifier();
    let mut session = session(fixture, &["a"]).await?;
    let payloads: Vec<String> = (0..500).map(|n| n.to_string()).collect();
    for half in payloads.chunks(250) {
        let all: Vec<_> = half.iter().map(|payload| ("a", payload.as_str())).collect();
        send(&*notifier, &all).await?;
    }
    send(&*notifier, &[("a", "end")]).await?;
    let heard = heard_until(&mut *session.events, "end").await?;
    let expected = heard.iter().zip(&payloads).take_while(|(heard, sent)| heard == sent).count();
    that(heard == payloads, || {
        let (saw, sent) = (heard.get(expected), payloads.get(expected));
        format!(
            "two calls of 250 on one channel, at place {expected} of {} heard: saw {saw:?}, expected {sent:?}",
            heard.len()
        )
    })
}

pub(super) async fn payloads(fixture: &dyn TransportFixture) -> Verdict {
    let notifier = fixture.notifier();
    let mut session = session(fixture, &["a"]).await?;
    let most = notifier.max_payload_bytes();
    that(most > 2, || format!("`max_payload_bytes` is {most}"))?;
    // In bytes, not in characters.
    let longest = "é".repeat(most / 2) + if most % 2 == 1 { "x" } else { "" };
    let longer = longest.clone() + "x";
    let both = [Notification::new(channel("a")?, "not sent"), Notification::new(channel("a")?, longer.as_str())];
    let kind = notifier.notify(&both).await.err().map(|error| error.kind());
    equal(format!("a call with a payload of {} bytes", longer.len()), kind, Some(ErrorKind::TooLarge))?;
    for payload in [&longest, "", "end"] {
        send(&*notifier, &[("a", payload)]).await?;
    }
    let heard = heard_until(&mut *session.events, "end").await?;
    let told: Vec<_> = heard.iter().map(String::len).collect();
    let what =
        format!("after a call that was refused, what is heard of a payload of {most} bytes and an empty one, in bytes");
    equal(what, told, [most, 0])?;
    that(heard[0] == longest, || format!("a payload of {most} bytes arrives changed"))
}

pub(super) async fn again(fixture: &dyn TransportFixture) -> Verdict {
    let notifier = fixture.notifier();
    let mut session = session(fixture, &["a"]).await?;
    for _ in 0..3 {
        send(&*notifier, &[("a", "x"), ("a", "y")]).await?;
    }
    send(&*notifier, &[("a", "end")]).await?;
    let heard = heard_until(&mut *session.events, "end").await?;
    equal("what is heard of a call that is made three times", heard, ["x", "y", "x", "y", "x", "y"])
}

pub(super) async fn nobody_listens(fixture: &dyn TransportFixture) -> Verdict {
    let notifier = fixture.notifier();
    notifier.notify(&[]).await?;
    send(&*notifier, &[("a", "before any session")]).await?;
    drop(session(fixture, &["a"]).await?);
    send(&*notifier, &[("a", "after the only session")]).await?;
    let mut session = session(fixture, &["a"]).await?;
    send(&*notifier, &[("a", "heard")]).await?;
    equal("the first that a later session hears", heard(&mut *session.events).await?, "heard")
}

pub(super) async fn dropped(fixture: &dyn TransportFixture) -> Verdict {
    let notifier = fixture.notifier();
    let mut session = session(fixture, &["a"]).await?;
    let mut polls = 1;
    loop {
        let attempt = Notification::new(channel("a")?, format!("attempt {polls}"));
        let ended = poll::at_most(polls, notifier.notify(&[attempt.clone(), attempt])).await.is_some();
        let last = format!("after {polls}");
        send(&*notifier, &[("a", &last)]).await?;
        // One that is on its way may be overtaken by what follows it, so it is not asked which attempts arrive.
        while heard(&mut *session.events).await? != last {}
        if ended {
            return Ok(());
        }
        polls += 1;
        if polls > 10_000 {
            return violated("a call does not end within 10,000 polls");
        }
    }
}
