//! Faults of reading.

use std::collections::BTreeSet;
use std::sync::Arc;

use firehose_core::{
    Anchor, Cursor, Head, HeadDetail, Message, MessageId, Page, PageLimit, Position, Result, Sequence, StreamName,
};

use super::append::ALL;
use super::broken::{BrokenStore, Fault, Handle, others};

impl BrokenStore {
    pub(super) async fn get_with_fault(&self, ids: &[MessageId]) -> Result<Vec<Arc<Message>>> {
        if self.is(Fault::CachedMessages) {
            let memory = self.memory();
            let found = ids.iter().filter_map(|id| memory.given.get(id));
            return Ok(found.map(|message| message.clone().into()).collect());
        }
        let ids: Vec<_> = ids.iter().map(|id| self.id_in(*id)).collect();
        let mut found = self.inner.get_many(&ids).await?;
        if self.is(Fault::LostByCrash) && self.handle == Handle::Reopened {
            let memory = self.memory();
            found.retain(|message| !memory.last.contains(&message.id));
        }
        Ok(found.iter().map(|message| self.message_out(message).into()).collect())
    }

    pub(super) async fn after_with_fault(
        &self,
        requests: &[(StreamName, Position)],
        limit: PageLimit,
    ) -> Result<Vec<Page>> {
        let place = |position: &Position| match self.position_in(*position) {
            Position::Cursor(cursor) if self.is(Fault::AfterAnyEpoch) => {
                Position::Cursor(Cursor { epoch: None, ..cursor })
            }
            position => position,
        };
        let requests: Vec<_> = requests.iter().map(|(stream, position)| (stream.clone(), place(position))).collect();
        if self.is(Fault::CharactersForBytes) {
            let whole = self.inner.read_after(&requests, PageLimit { bytes: usize::MAX, ..limit }).await?;
            return Ok(whole.into_iter().map(|page| by_characters(page, limit.bytes)).collect());
        }
        let mut pages = self.inner.read_after(&requests, limit).await?;
        if self.is(Fault::StaleHandle) && self.handle == Handle::Another {
            // Whatever the place, it is the stream as it was first seen.
            let seen =
                self.memory().pages.entry(format!("{:?}", requests[0].0)).or_insert_with(|| pages.clone()).clone();
            for (page, seen) in pages.iter_mut().zip(seen) {
                let known: BTreeSet<_> = seen.messages.iter().map(|message| message.id).collect();
                page.messages.retain(|message| known.contains(&message.id));
            }
        }
        let hidden = self.memory().hidden.clone();
        for page in &mut pages {
            page.messages.retain(|message| !hidden.contains(&message.id));
        }
        Ok(pages.iter().map(|page| self.page_out(page)).collect())
    }

    pub(super) async fn before_with_fault(
        &self,
        stream: &StreamName,
        position: Position,
        limit: PageLimit,
    ) -> Result<Page> {
        let position = match self.position_in(position) {
            Position::Cursor(cursor) if self.is(Fault::BeforeAnyEpoch) => {
                Position::Cursor(Cursor { epoch: None, ..cursor })
            }
            position => position,
        };
        let mut page = self.inner.read_before(stream, position, limit).await?;
        match self.fault {
            Fault::OldestBefore => {
                let whole = self.inner.read_before(stream, position, ALL).await?.messages;
                page.messages = whole.into_iter().take(page.messages.len()).collect();
            }
            Fault::KeysAreNotReadBack => {
                let keyed = self.memory().keyed.clone();
                page.messages.retain(|message| !keyed.contains(&message.id));
            }
            _ => {}
        }
        Ok(self.page_out(&page))
    }

    pub(super) async fn heads_with_fault(
        &self,
        streams: &[StreamName],
        detail: HeadDetail,
    ) -> Result<Vec<Option<Head>>> {
        let mut heads = Vec::new();
        if self.is(Fault::HeadsOneByOne) {
            for stream in streams {
                heads.extend(self.inner.heads(std::slice::from_ref(stream), detail).await?);
                others(1).await;
            }
            return Ok(heads);
        }
        heads = self.inner.heads(streams, detail).await?;
        match self.fault {
            Fault::OneHeadAName => {
                let mut seen = BTreeSet::new();
                for (head, stream) in heads.iter_mut().zip(streams) {
                    *head = head.filter(|_| seen.insert(stream));
                }
            }
            Fault::HeadOfTheRetained => {
                for (head, stream) in heads.iter_mut().zip(streams) {
                    let Some(head) = head else { continue };
                    let requests = [(stream.clone(), Position::Cursor(Cursor::BEGINNING))];
                    let page = self.inner.read_after(&requests, ALL).await?.remove(0);
                    head.sequence = page.messages.last().map_or(Sequence::ZERO, |message| message.sequence);
                }
            }
            _ => {}
        }
        Ok(heads.into_iter().map(|head| head.map(|head| self.head_out(head))).collect())
    }

    pub(super) async fn anchors_with_fault(&self, cursors: &[Cursor]) -> Result<Vec<Anchor>> {
        let cursor = |cursor: &Cursor| Cursor {
            id: cursor.id.map(|id| self.id_in(id)),
            created_at: cursor.created_at.filter(|_| !self.is(Fault::AnchorsWithoutTime)),
            ..*cursor
        };
        let anchors = self.inner.anchors(&cursors.iter().map(cursor).collect::<Vec<_>>()).await?;
        let out = |anchor| match anchor {
            Anchor::Trimmed { oldest } => Anchor::Trimmed { oldest: oldest.map(|(s, id)| (s, self.id_out(id))) },
            other => other,
        };
        Ok(anchors.into_iter().map(out).collect())
    }
}

/// Cuts a page as if its bytes were characters.
fn by_characters(page: Page, most: usize) -> Page {
    let (mut kept, mut characters) = (Page { messages: Vec::new(), more: page.more }, 0);
    for message in page.messages {
        characters += message.data.chars().count();
        if !kept.messages.is_empty() && characters > most {
            kept.more = true;
            break;
        }
        kept.messages.push(message);
    }
    kept
}
