//! Words that the tests share.

use std::sync::Arc;

use firehose_core::{
    Blocked, ChannelIdentifier, Cursor, Error, ErrorKind, ListenEvent, ListenEvents, Message, MessageStore, NewMessage,
    Page, PageLimit, Position, StreamName,
};
use firehose_testkit::Testkit;

pub(crate) const ALL: PageLimit = PageLimit { rows: usize::MAX, bytes: usize::MAX };

pub(crate) fn store(testkit: &Testkit) -> Arc<dyn MessageStore> {
    testkit.backend().store
}

pub(crate) fn name(stream: &str) -> StreamName {
    StreamName::new(stream).unwrap()
}

pub(crate) fn channel(name: &str) -> ChannelIdentifier {
    ChannelIdentifier::new(name).unwrap()
}

pub(crate) fn entry(stream: &str, data: &str) -> NewMessage {
    NewMessage::new(stream, data).unwrap()
}

pub(crate) fn keyed(stream: &str, data: &str, key: &str) -> NewMessage {
    entry(stream, data).key(key).unwrap()
}

/// Appends and expects success.
pub(crate) async fn append(store: &dyn MessageStore, stream: &str, data: &[&str]) -> Vec<Message> {
    let entries: Vec<_> = data.iter().map(|d| entry(stream, d)).collect();
    store.append(&entries, Blocked::Skip).await.into_iter().map(Result::unwrap).collect()
}

/// Reads one stream after a cursor.
pub(crate) async fn after(store: &dyn MessageStore, stream: &str, cursor: Cursor, limit: PageLimit) -> Page {
    store.read_after(&[(name(stream), Position::Cursor(cursor))], limit).await.unwrap().remove(0)
}

pub(crate) fn sequences(messages: &[Message]) -> Vec<i64> {
    messages.iter().map(|m| m.sequence.0).collect()
}

pub(crate) fn kinds<T>(results: &[Result<T, Error>]) -> Vec<Option<ErrorKind>> {
    results.iter().map(|r| r.as_ref().err().map(Error::kind)).collect()
}

/// The payload of the next event; panics where the session is lost.
pub(crate) async fn heard(events: &mut dyn ListenEvents) -> String {
    match events.next().await {
        ListenEvent::Notification { payload, .. } => payload.to_string(),
        ListenEvent::Lost(error) => panic!("the session is lost: {error}"),
    }
}

pub(crate) async fn heard_many(events: &mut dyn ListenEvents, count: usize) -> Vec<String> {
    let mut payloads = Vec::new();
    for _ in 0..count {
        payloads.push(heard(events).await);
    }
    payloads
}

/// The kind of error that the session ended with; panics where it did not end.
pub(crate) async fn lost(events: &mut dyn ListenEvents) -> ErrorKind {
    match events.next().await {
        ListenEvent::Notification { payload, .. } => panic!("heard {payload:?}"),
        ListenEvent::Lost(error) => error.kind(),
    }
}
