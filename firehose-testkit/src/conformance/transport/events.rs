//! The contract of `ListenEvents`.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use firehose_core::{ListenEvent, Notification};
use tokio::sync::Notify;

use super::TransportFixture;
use super::words::*;
use crate::conformance::clause::Verdict;
use crate::conformance::deadline;
use crate::conformance::expect::{equal, that, violated};
use crate::conformance::poll;

pub(super) async fn order(fixture: &dyn TransportFixture) -> Verdict {
    let mut session = session(fixture, &["a", "b", "c"]).await?;
    let sent: Vec<String> = (0..30).map(|n| n.to_string()).collect();
    for (payload, channel) in sent.iter().zip(["a", "b", "a", "c"].iter().cycle()) {
        send(&*fixture.notifier(), &[(channel, payload)]).await?;
    }
    let mut heard = Vec::new();
    for _ in &sent {
        heard.push(super::words::heard(&mut *session.events).await?);
    }
    equal("what is heard of notifications on three channels, sent one after the other", heard, sent)
}

/// Tells that it was called.
#[derive(Default)]
struct Called(Notify);

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

pub(super) async fn waits(fixture: &dyn TransportFixture) -> Verdict {
    let mut session = session(fixture, &["a"]).await?;
    for round in 0..5 {
        let payload = round.to_string();
        let mut next = pin!(heard(&mut *session.events));
        let called = Arc::new(Called::default());
        let waker = Waker::from(called.clone());
        for _ in 0..3 {
            if let Poll::Ready(event) = next.as_mut().poll(&mut Context::from_waker(&waker)) {
                return violated(format!("where nothing was sent, `next` gave {event:?}"));
            }
        }
        send(&*fixture.notifier(), &[("a", &payload)]).await?;
        // One that was polled already is woken: nobody polls it otherwise. More wakes than one are no harm.
        let mut polled = Poll::Pending;
        while polled.is_pending() {
            if deadline::step(called.0.notified()).await.is_none() {
                return violated("a `next` that waits is not woken by a notification");
            }
            polled = next.as_mut().poll(&mut Context::from_waker(&waker));
        }
        if let Poll::Ready(event) = polled {
            equal("what a `next` gives that waited", event?, payload)?;
        }
    }
    Ok(())
}

pub(super) async fn after_lost(fixture: &dyn TransportFixture) -> Verdict {
    let notifier = fixture.notifier();
    let mut session = session(fixture, &["a"]).await?;
    let how = if fixture.cut().await {
        "cut"
    } else {
        session.control.close().await;
        "closed"
    };
    for _ in 0..2 {
        lost(&mut *session.events, &format!("of a session that was {how}, the next event")).await?;
    }
    let mut witness = super::words::session(fixture, &["a"]).await?;
    // The wire may have taken the notifier's connection too: it says so, once.
    if send(&*notifier, &[("a", "later")]).await.is_err() {
        send(&*notifier, &[("a", "later")]).await?;
    }
    heard_until(&mut *witness.events, "later").await?;
    for _ in 0..2 {
        lost(&mut *session.events, &format!("of a session that was {how}, the next event after another notification"))
            .await?;
    }
    Ok(())
}

pub(super) async fn dropped(fixture: &dyn TransportFixture) -> Verdict {
    let mut session = session(fixture, &["a"]).await?;
    let mut expected = 0;
    for round in 0..10 {
        let some: Vec<String> = (round * 5..round * 5 + 5).map(|n| n.to_string()).collect();
        send(&*fixture.notifier(), &some.iter().map(|payload| ("a", payload.as_str())).collect::<Vec<_>>()).await?;
        for _ in &some {
            // Dropped after one poll, after two, and so on, until one gives the event.
            let mut polls = 1;
            let event = loop {
                let next = poll::at_most(polls, session.events.next()).await;
                polls += 1;
                if let Some(event) = next {
                    break event;
                }
            };
            match event {
                ListenEvent::Notification { payload, .. } => {
                    equal("after a `next` that was dropped, the next event", &*payload, expected.to_string().as_str())?;
                }
                ListenEvent::Lost(error) => return violated(format!("after a `next` that was dropped: {error}")),
            }
            expected += 1;
        }
    }
    Ok(())
}

pub(super) async fn overflow(fixture: &dyn TransportFixture) -> Verdict {
    let (notifier, many, a) = (fixture.notifier(), fixture.too_many_unread(), channel("a")?);
    let mut slow = session(fixture, &["a"]).await?;
    let sent: Vec<_> = (0..many).map(|n| Notification::new(a.clone(), format!("{n:05}"))).collect();
    for some in sent.chunks(1_000) {
        notifier.notify(some).await?;
    }
    for Notification { payload: expected, .. } in sent {
        match slow.events.next().await {
            // It did not keep up, and says so.
            ListenEvent::Lost(_) => return Ok(()),
            ListenEvent::Notification { payload, .. } => that(payload == expected, || {
                let what = format!("{many} notifications were sent before the first was read");
                format!("{what}: saw {payload}, expected {expected} or Lost")
            })?,
        }
    }
    Ok(())
}
