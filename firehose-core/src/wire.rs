//! The payload of a notification: one stored message as compact JSON.
//!
//! Keys in this order: `id, channel_id, sequence, stream, data, at`, where `at` is the time in microseconds since 1970.
//! A message whose payload would not fit is announced without its `data`, and read from the store by who hears it.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::message::{Epoch, Message, MessageId, Sequence, Timestamp};
use crate::stream::StreamName;

#[derive(Serialize)]
struct Outgoing<'a> {
    id: i64,
    channel_id: i64,
    sequence: i64,
    stream: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<i64>,
}

#[derive(Deserialize)]
struct Incoming<'a> {
    id: i64,
    channel_id: i64,
    sequence: i64,
    #[serde(borrow)]
    stream: Cow<'a, str>,
    #[serde(borrow, default)]
    data: Option<Cow<'a, str>>,
    #[serde(default)]
    at: Option<i64>,
}

/// What a notification says of a message: all of it, or all but its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The message's id.
    pub id: MessageId,
    /// The stream's epoch, as the announcer saw it. Only the store's word on an epoch is believed.
    pub epoch: Epoch,
    /// The message's place in its stream.
    pub sequence: Sequence,
    /// Its stream.
    pub stream: StreamName,
    /// Its data, where it came along.
    pub data: Option<Arc<str>>,
    /// When it was stored, where that came along.
    pub at: Option<Timestamp>,
}

impl Announcement {
    /// The whole message, where the data came along.
    pub(crate) fn into_message(self) -> Result<Arc<Message>, Self> {
        match self.data {
            Some(data) => {
                let mut message = Message::new(self.id, self.epoch, self.sequence, self.stream, data);
                message.created_at = self.at;
                Ok(Arc::new(message))
            }
            None => Err(self),
        }
    }
}

/// The payload that announces `message` in at most `max_bytes`, counted after escaping: with its data where that fits.
pub fn encode(message: &Message, max_bytes: usize) -> Arc<str> {
    // An escape never makes the text shorter, so what is too long raw need not be tried.
    if message.data.len() < max_bytes {
        let whole = render(message, Some(&message.data));
        if whole.len() <= max_bytes {
            return whole.into();
        }
    }
    encode_light(message)
}

/// The payload that announces `message` without its data.
pub(crate) fn encode_light(message: &Message) -> Arc<str> {
    render(message, None).into()
}

fn render(message: &Message, data: Option<&str>) -> String {
    let event = Outgoing {
        id: message.id.0,
        channel_id: message.channel_id.0,
        sequence: message.sequence.0,
        stream: message.stream.as_str(),
        data,
        at: message.created_at.map(|t| t.0),
    };
    // Plain integers and strings: serialisation has no way to fail.
    serde_json::to_string(&event).unwrap_or_default()
}

/// Reads a payload: any key order, extra keys, any of JSON's escapes. `None` for what announces no message.
pub fn decode(payload: &str) -> Option<Announcement> {
    // Saves a parser's error for what is no object at all.
    if !payload.trim_start().starts_with('{') {
        return None;
    }
    let event: Incoming<'_> = serde_json::from_str(payload).ok()?;
    if event.id <= 0
        || event.channel_id <= 0
        || event.sequence <= 0
        || event.data.as_ref().is_some_and(|d| d.contains('\0'))
    {
        return None;
    }
    Some(Announcement {
        id: MessageId(event.id),
        epoch: Epoch(event.channel_id),
        sequence: Sequence(event.sequence),
        stream: StreamName::new(&*event.stream).ok()?,
        data: event.data.map(Arc::from),
        at: event.at.map(Timestamp),
    })
}
