//! Reads: each from one snapshot, since each takes the lock once.

use std::collections::BTreeSet;
use std::sync::Arc;

use firehose_core::{
    Anchor, Cursor, Head, HeadDetail, Message, MessageId, Page, PageLimit, Position, Sequence, StreamName,
};

use super::Database;
use super::tables::{Channel, Row, Tables};

impl Database {
    pub(crate) fn get_many(&self, ids: &[MessageId]) -> Vec<Arc<Message>> {
        let state = self.state();
        let distinct: BTreeSet<MessageId> = ids.iter().copied().collect();
        distinct.into_iter().filter_map(|id| state.tables.message(id).cloned()).collect()
    }

    pub(crate) fn read_after(&self, requests: &[(StreamName, Position)], limit: PageLimit) -> Vec<Page> {
        let state = self.state();
        let page = |(stream, position): &(StreamName, Position)| match state.tables.channel(stream.as_str()) {
            None => Page::default(),
            Some(channel) => match *position {
                Position::Cursor(cursor) => fill(channel.rows_after(place_after(channel, cursor)), limit),
                Position::Id(id) => fill(channel.rows().skip_while(|row| row.message.id <= id), limit),
            },
        };
        requests.iter().map(page).collect()
    }

    pub(crate) fn read_before(&self, stream: &StreamName, position: Position, limit: PageLimit) -> Page {
        let state = self.state();
        let Some(channel) = state.tables.channel(stream.as_str()) else { return Page::default() };
        let mut page = match position {
            Position::Cursor(cursor) if is_of(channel, cursor) => {
                fill(channel.rows_before(cursor.sequence).rev(), limit)
            }
            // A position of another epoch is before all of this one, as in `read_after`.
            Position::Cursor(_) => Page::default(),
            Position::Id(id) => fill(channel.rows().rev().skip_while(|row| row.message.id >= id), limit),
        };
        page.messages.reverse();
        page
    }

    pub(crate) fn heads(&self, streams: &[StreamName], detail: HeadDetail) -> Vec<Option<Head>> {
        let state = self.state();
        streams.iter().map(|stream| state.tables.channel(stream.as_str()).map(|c| c.head(detail))).collect()
    }

    pub(crate) fn anchors(&self, cursors: &[Cursor]) -> Vec<Anchor> {
        let state = self.state();
        cursors.iter().map(|cursor| anchor(&state.tables, cursor)).collect()
    }
}

/// Whether a cursor speaks of the stream as it is: a cursor without epoch goes by its sequence alone.
fn is_of(channel: &Channel, cursor: Cursor) -> bool {
    cursor.epoch.is_none_or(|epoch| epoch == channel.epoch)
}

fn place_after(channel: &Channel, cursor: Cursor) -> Sequence {
    if is_of(channel, cursor) { cursor.sequence } else { Sequence::ZERO }
}

/// Takes rows while the limit allows, the first one in any case.
fn fill<'a>(rows: impl Iterator<Item = &'a Row>, limit: PageLimit) -> Page {
    let mut page = Page::default();
    let mut bytes = 0_usize;
    for row in rows {
        bytes = bytes.saturating_add(row.message.data.len());
        if !page.messages.is_empty() && (page.messages.len() >= limit.rows || bytes > limit.bytes) {
            page.more = true;
            break;
        }
        page.messages.push(row.message.clone());
    }
    page
}

fn anchor(tables: &Tables, cursor: &Cursor) -> Anchor {
    let Some(channel) = cursor.epoch.and_then(|epoch| tables.channel_of(epoch)) else { return Anchor::Gone };
    if cursor.sequence == Sequence::ZERO {
        return Anchor::Same;
    }
    let Some(row) = channel.row(cursor.sequence) else { return Anchor::Trimmed { oldest: channel.oldest() } };
    let same_id = cursor.id.is_none_or(|id| id == row.message.id);
    let same_time = cursor.created_at.is_none_or(|at| Some(at) == row.message.created_at);
    if same_id && same_time { Anchor::Same } else { Anchor::Other }
}
