//! Words that the tests of a transport share.

use firehose_core::{
    ChannelIdentifier, ListenControl, ListenEvent, ListenEvents, Notification, Notifier, Result, Session,
};

use super::TransportFixture;
use crate::conformance::clause::Verdict;
use crate::conformance::expect::violated;

pub(super) fn channel(name: &str) -> Result<ChannelIdentifier> {
    ChannelIdentifier::new(name)
}

pub(super) fn channels(names: &[&str]) -> Result<Vec<ChannelIdentifier>> {
    names.iter().map(|name| channel(name)).collect()
}

/// Sends all in one call.
pub(super) async fn send(notifier: &dyn Notifier, notifications: &[(&str, &str)]) -> Verdict {
    let all: Result<Vec<_>> =
        notifications.iter().map(|(name, payload)| Ok(Notification::new(channel(name)?, *payload))).collect();
    Ok(notifier.notify(&all?).await?)
}

pub(super) async fn listen(control: &dyn ListenControl, names: &[&str]) -> Verdict {
    Ok(control.listen(&channels(names)?).await?)
}

/// A session that listens to `names`.
pub(super) async fn session(fixture: &dyn TransportFixture, names: &[&str]) -> Verdict<Session> {
    let session = fixture.listener().connect().await?;
    if !names.is_empty() {
        listen(&*session.control, names).await?;
    }
    Ok(session)
}

/// The payload of the next event.
pub(super) async fn heard(events: &mut dyn ListenEvents) -> Verdict<String> {
    match events.next().await {
        ListenEvent::Notification { payload, .. } => Ok(payload.to_string()),
        ListenEvent::Lost(error) => violated(format!("the session was lost where nothing ended it: {error}")),
    }
}

/// The payloads up to the one that is sent last, without it.
pub(super) async fn heard_until(events: &mut dyn ListenEvents, last: &str) -> Verdict<Vec<String>> {
    let mut payloads = Vec::new();
    loop {
        let payload = heard(events).await?;
        if payload == last {
            return Ok(payloads);
        }
        payloads.push(payload);
    }
}

/// The session is over; `when` says of what the next event is.
pub(super) async fn lost(events: &mut dyn ListenEvents, when: &str) -> Verdict {
    match events.next().await {
        ListenEvent::Lost(_) => Ok(()),
        ListenEvent::Notification { payload, .. } => violated(format!("{when}: saw {payload:?}, expected Lost")),
    }
}
