//! Words that the tests of a store share.

use std::sync::Arc;

use firehose_core::{
    Blocked, Cursor, Epoch, Error, ErrorKind, Head, HeadDetail, Message, MessageStore, NewMessage, Page, PageLimit,
    Position, Result, Sequence, StreamName,
};

use crate::conformance::clause::Verdict;
use crate::conformance::expect::{equal, that, violated};

/// No limit.
pub(super) const ALL: PageLimit = PageLimit { rows: usize::MAX, bytes: usize::MAX };

pub(super) fn name(stream: &str) -> Result<StreamName> {
    StreamName::new(stream)
}

pub(super) fn entry(stream: &str, data: &str) -> Result<NewMessage> {
    NewMessage::new(stream, data)
}

pub(super) fn entries(stream: &str, data: &[&str]) -> Result<Vec<NewMessage>> {
    data.iter().map(|data| entry(stream, data)).collect()
}

pub(super) fn keyed(stream: &str, data: &str, key: &str) -> Result<NewMessage> {
    entry(stream, data)?.key(key)
}

/// An entry that every store refuses: its data has a NUL.
pub(super) fn bad(stream: &str) -> Result<NewMessage> {
    let mut bad = entry(stream, "")?;
    bad.data = "a NUL: \0".into();
    Ok(bad)
}

/// Appends where nobody stands in the way, and expects success for all.
pub(super) async fn append_all(store: &dyn MessageStore, entries: &[NewMessage]) -> Verdict<Vec<Message>> {
    let results = store.append(entries, Blocked::Wait).await;
    equal("the number of results of an append", results.len(), entries.len())?;
    Ok(results.into_iter().collect::<Result<_>>()?)
}

/// Appends `data` to one stream.
pub(super) async fn append(store: &dyn MessageStore, stream: &str, data: &[&str]) -> Verdict<Vec<Message>> {
    append_all(store, &entries(stream, data)?).await
}

/// Appends one message.
pub(super) async fn append_one(store: &dyn MessageStore, entry: NewMessage) -> Verdict<Message> {
    match append_all(store, &[entry]).await?.pop() {
        Some(message) => Ok(message),
        None => violated("an append gave no result"),
    }
}

/// Reads pages of several streams.
pub(super) async fn pages(
    store: &dyn MessageStore,
    requests: &[(StreamName, Position)],
    limit: PageLimit,
) -> Verdict<Vec<Page>> {
    let pages = store.read_after(requests, limit).await?;
    equal("the number of pages that `read_after` gives", pages.len(), requests.len())?;
    Ok(pages)
}

/// Reads one stream after a position.
pub(super) async fn after(
    store: &dyn MessageStore,
    stream: &str,
    position: Position,
    limit: PageLimit,
) -> Verdict<Page> {
    Ok(pages(store, &[(name(stream)?, position)], limit).await?.pop().unwrap_or_default())
}

/// All that is retained of a stream, in the order in which it is given.
pub(super) async fn whole(store: &dyn MessageStore, stream: &str) -> Verdict<Vec<Arc<Message>>> {
    let page = after(store, stream, Position::Cursor(Cursor::BEGINNING), ALL).await?;
    that(!page.more, || "a page without limit says that there is more".to_owned())?;
    Ok(page.messages)
}

/// The head of one stream.
pub(super) async fn head(store: &dyn MessageStore, stream: &str, detail: HeadDetail) -> Verdict<Option<Head>> {
    let heads = store.heads(&[name(stream)?], detail).await?;
    equal("the number of heads for one name", heads.len(), 1)?;
    Ok(heads.into_iter().flatten().next())
}

/// The place after a sequence.
pub(super) fn place(epoch: Option<Epoch>, sequence: i64) -> Position {
    Position::Cursor(Cursor::at(epoch, Sequence(sequence)))
}

pub(super) fn sequences<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Vec<i64> {
    messages.into_iter().map(|message| message.sequence.0).collect()
}

pub(super) fn read_sequences(messages: &[Arc<Message>]) -> Vec<i64> {
    sequences(messages.iter().map(|message| &**message))
}

pub(super) fn data(messages: &[Arc<Message>]) -> Vec<&str> {
    messages.iter().map(|message| &*message.data).collect()
}

/// The kind of error of each, `None` for a success.
pub(super) fn kinds<T>(results: &[Result<T>]) -> Vec<Option<ErrorKind>> {
    results.iter().map(|result| result.as_ref().err().map(Error::kind)).collect()
}
