//! What a client is sent: lines of `text/event-stream`.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use firehose_core::{Gap, GapReason, Head, Message, MessageId, Reset, StreamName, Token};
use serde::Serialize;

use super::{GAP_EVENT, RESET_EVENT, SUBSCRIBED_EVENT};

/// Goes out when there was nothing else to say.
pub(crate) const KEEP_ALIVE: &str = ": keepalive\n\n";

/// How long a client waits before it comes back: one to three seconds, by `random`, so that not all come at once.
pub(crate) fn retry(out: &mut String, random: u64) {
    // splitmix64's last step: neighbouring numbers give unrelated delays.
    let mut mixed = random.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let delay = Duration::from_millis(1_000 + (mixed ^ (mixed >> 31)) % 2_001);
    line(out, format_args!("retry: {}\n\n", delay.as_millis()));
}

/// A token by itself: a client remembers it, and no event is dispatched.
pub(crate) fn id_block(out: &mut String, token: &Token) {
    line(out, format_args!("id: {token}\n\n"));
}

/// One message; with the token where it comes with each event.
pub(crate) fn message(out: &mut String, token: Option<&Token>, message: &Message) {
    #[derive(Serialize)]
    struct Data<'a> {
        data: &'a str,
        channel_id: i64,
        sequence: i64,
    }
    if let Some(token) = token {
        line(out, format_args!("id: {token}\n"));
    }
    let data = Data { data: &message.data, channel_id: message.channel_id.0, sequence: message.sequence.0 };
    event(out, &event_name(&message.stream), &data);
}

/// What is known besides the gap itself.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct GapContext {
    /// The last message of the stream that the client has.
    pub(crate) last_event_id: Option<MessageId>,
    /// Where the stream stands.
    pub(crate) head: Option<Head>,
}

/// Messages that are no longer there: the gem's four keys, where they are known, and the range of sequences.
pub(crate) fn gap(out: &mut String, gap: &Gap, context: GapContext) {
    #[derive(Serialize)]
    struct Data<'a> {
        stream: &'a str,
        last_event_id: Option<i64>,
        oldest_retained_id: Option<i64>,
        current_id: Option<i64>,
        from: i64,
        to: i64,
        exact: bool,
        reason: GapReason,
    }
    let oldest = context.head.and_then(|head| head.oldest);
    let data = Data {
        stream: gap.stream.as_str(),
        last_event_id: context.last_event_id.map(|id| id.0),
        oldest_retained_id: oldest.map(|(_, id)| id.0),
        current_id: context.head.and_then(|head| head.last_id).map(|id| id.0),
        from: gap.from.0,
        to: gap.to.0,
        exact: gap.exact,
        reason: gap.reason,
    };
    event(out, GAP_EVENT, &data);
}

/// A stream that is not the one that the client knew: what follows is another history.
pub(crate) fn reset(out: &mut String, reset: &Reset) {
    // Its keys are `stream, epoch, head, reason`, in this order.
    event(out, RESET_EVENT, reset);
}

/// Where each stream begins and where it stands, for a client that asked: the difference is what it missed.
pub(crate) fn subscribed(out: &mut String, token: &Token, streams: &[(StreamName, Option<Head>)]) {
    #[derive(Serialize)]
    struct Position<'a> {
        stream: &'a str,
        from: i64,
        head: i64,
    }
    #[derive(Serialize)]
    struct Data<'a> {
        streams: Vec<Position<'a>>,
    }
    let position = |(stream, head): &(StreamName, Option<Head>)| {
        let head = head.map_or(0, |head| head.sequence.0);
        (stream.clone(), token.get(stream).map_or(head, |cursor| cursor.sequence.0), head)
    };
    let positions: Vec<_> = streams.iter().map(position).collect();
    let streams =
        positions.iter().map(|(stream, from, head)| Position { stream: stream.as_str(), from: *from, head: *head });
    line(out, format_args!("id: {token}\n"));
    event(out, SUBSCRIBED_EVENT, &Data { streams: streams.collect() });
}

/// The name under which a stream's messages arrive: its own, on one line, and never one that means something else.
pub(crate) fn event_name(stream: &StreamName) -> Cow<'_, str> {
    match stream.as_str() {
        name @ ("open" | "error" | "message" | GAP_EVENT | RESET_EVENT | SUBSCRIBED_EVENT) => {
            Cow::Owned(format!("firehose:{name}"))
        }
        name if name.contains(['\r', '\n']) => Cow::Owned(name.replace(['\r', '\n'], " ")),
        name => Cow::Borrowed(name),
    }
}

fn event(out: &mut String, name: &str, data: &impl Serialize) {
    // Integers and strings only: serialisation has no way to fail. JSON has no line break outside its escapes.
    let data = serde_json::to_string(data).unwrap_or_default();
    line(out, format_args!("event: {name}\ndata: {data}\n\n"));
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // A `String` takes whatever fits memory.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use firehose_core::{Cursor, Epoch, Sequence};

    use super::*;

    fn name(text: &str) -> StreamName {
        StreamName::new(text).unwrap()
    }

    fn stored(stream: &str, data: &str) -> Message {
        Message::new(MessageId(9), Epoch(4), Sequence(2), name(stream), Arc::from(data))
    }

    fn rendered(f: impl FnOnce(&mut String)) -> String {
        let mut out = String::new();
        f(&mut out);
        out
    }

    #[test]
    fn a_message_is_three_lines() {
        let mut token = Token::new();
        token.set(&name("orders"), Cursor::at(Some(Epoch(4)), Sequence(2)));
        let text = rendered(|out| message(out, Some(&token), &stored("orders", "paid \"é\"\n")));
        let expected = format!(
            "id: {token}\nevent: orders\ndata: {{\"data\":\"paid \\\"é\\\"\\n\",\"channel_id\":4,\"sequence\":2}}\n\n"
        );
        assert_eq!(text, expected);
        let bare = rendered(|out| message(out, None, &stored("orders", "")));
        assert_eq!(bare, "event: orders\ndata: {\"data\":\"\",\"channel_id\":4,\"sequence\":2}\n\n");
    }

    /// Fault 64 of the gem: a newline in a stream's name injected fields, and `message` collided with the browser's own.
    #[test]
    fn a_name_injects_nothing_and_collides_with_nothing() {
        for (stream, shown) in [
            ("orders", "orders"),
            ("a\nid: 999", "a id: 999"),
            ("a\r\ndata: x\n\n", "a  data: x  "),
            ("open", "firehose:open"),
            ("error", "firehose:error"),
            ("message", "firehose:message"),
            ("firehose_reset", "firehose:firehose_reset"),
            ("messages", "messages"),
        ] {
            assert_eq!(event_name(&name(stream)), shown, "{stream:?}");
            let text = rendered(|out| message(out, None, &stored(stream, "x\r\ny")));
            assert_eq!(text.lines().count(), 3, "{text:?}");
            assert!(text.starts_with(&format!("event: {shown}\ndata: ")), "{text:?}");
        }
    }

    #[test]
    fn retry_delays_lie_between_one_and_three_seconds_and_differ() {
        let delays: Vec<u64> = (0..200)
            .map(|n| {
                let text = rendered(|out| retry(out, n));
                let digits = text.strip_prefix("retry: ").and_then(|t| t.strip_suffix("\n\n")).unwrap();
                digits.parse().unwrap()
            })
            .collect();
        assert!(delays.iter().all(|d| (1_000..=3_000).contains(d)), "{delays:?}");
        assert!(delays.iter().collect::<std::collections::HashSet<_>>().len() > 150);
    }
}
