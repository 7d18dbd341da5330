//! What a client asks for: streams, and where to begin.

use std::borrow::Cow;

use firehose_core::{MessageId, Start, StreamName, Token};
use percent_encoding::percent_decode_str;

use super::MAX_STREAMS;
use crate::error::ApiError;

/// A request for Server-Sent Events.
///
/// | key of the query | means |
/// | --- | --- |
/// | `streams=a,b` | stream names with commas between them, trimmed, empty ones dropped |
/// | `stream=a%2Cb` | one stream name, exactly; may be repeated |
/// | `last_event_id=…` | where to begin, for clients that cannot set `Last-Event-ID`; the header wins |
/// | `subscribed=true` | asks for an event as soon as the subscriptions stand |
///
/// Other keys are ignored.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SseRequest {
    /// What to subscribe to: 1 to 64 names, none twice.
    pub(crate) streams: Vec<StreamName>,
    /// Where to begin.
    pub(crate) resume: Resume,
    /// Whether the client wants to be told where each stream begins.
    pub(crate) announce: bool,
}

impl SseRequest {
    /// Reads a query as it stands in the URL, and the `Last-Event-ID` header where there is one.
    pub(crate) fn parse(query: &str, last_event_id: Option<&str>) -> Result<Self, ApiError> {
        let (mut streams, mut from_query, mut announce) = (Vec::new(), None, false);
        for pair in query.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            match &*decode(key) {
                b"streams" => {
                    let names = decode(value);
                    for name in names.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|n| !n.is_empty()) {
                        push(&mut streams, name)?;
                    }
                }
                b"stream" => push(&mut streams, &decode(value))?,
                b"last_event_id" => from_query = Some(decode(value)),
                b"subscribed" => announce = matches!(&*decode(value), b"true" | b"1"),
                _ => {}
            }
        }
        if streams.is_empty() {
            let message = "no stream is named: use ?streams=a,b, or ?stream= for a name with a comma";
            return Err(ApiError::bad_request("no_streams", message));
        }
        // A browser that comes back sends the header, while its URL still has what the page knew at first.
        let resume = match (last_event_id.filter(|id| !id.is_empty()), from_query) {
            (Some(id), _) => Resume::parse(id)?,
            (None, Some(id)) => Resume::parse(&String::from_utf8_lossy(&id))?,
            (None, None) => Resume::Now,
        };
        Ok(Self { streams, resume, announce })
    }
}

fn push(streams: &mut Vec<StreamName>, name: &[u8]) -> Result<(), ApiError> {
    let name = StreamName::from_bytes(name)?;
    if streams.contains(&name) {
        return Ok(());
    }
    if streams.len() == MAX_STREAMS {
        let message = format!("more than {MAX_STREAMS} streams on one connection");
        return Err(ApiError::bad_request("too_many_streams", message));
    }
    streams.push(name);
    Ok(())
}

/// One key or value of a query, as bytes: what it is not said to be, it need not be.
fn decode(text: &str) -> Cow<'_, [u8]> {
    if text.contains('+') {
        return Cow::Owned(percent_decode_str(&text.replace('+', " ")).collect());
    }
    percent_decode_str(text).into()
}

/// The stream that the last segment of a path names.
pub(crate) fn stream_of_path(path: &str) -> Result<StreamName, ApiError> {
    let segment = path.rsplit('/').next().unwrap_or_default();
    let name: Cow<'_, [u8]> = percent_decode_str(segment).into();
    Ok(StreamName::from_bytes(&name)?)
}

/// Where a client wants to go on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// With what comes from now on.
    Now,
    /// After a token of ours; a stream that is not in it starts at now.
    After(Token),
    /// After a message id, as the gem's clients hold it.
    AfterId(MessageId),
}

impl Resume {
    /// Reads a `Last-Event-ID`: a token begins with `f`, a number above 0 is an id, any other text is no position.
    ///
    /// What was meant as a position and cannot be one is refused rather than taken for "now": a browser does not come
    /// back after a 400, and whoever wrote the client learns of it.
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let text = text.trim();
        if text.starts_with('f') {
            return text.parse().map(Self::After).map_err(|e: firehose_core::Error| {
                ApiError::bad_request("invalid_cursor", format!("Last-Event-ID: {e}"))
            });
        }
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Ok(Self::Now);
        }
        match text.parse() {
            Ok(0) => Ok(Self::Now),
            Ok(id) => Ok(Self::AfterId(MessageId(id))),
            Err(_) => Err(ApiError::bad_request("invalid_cursor", "Last-Event-ID: the number does not fit 64 bits")),
        }
    }

    /// Where `stream` begins.
    pub(crate) fn start(&self, stream: &StreamName) -> Start {
        match self {
            Self::Now => Start::Now,
            Self::After(token) => token.get(stream).map_or(Start::Now, Start::After),
            Self::AfterId(id) => Start::AfterId(*id),
        }
    }

    /// The id of the last message of `stream` that the client has, where that is known.
    pub(crate) fn last_id(&self, stream: &StreamName) -> Option<MessageId> {
        match self {
            Self::Now => None,
            Self::After(token) => token.get(stream).and_then(|cursor| cursor.id),
            Self::AfterId(id) => Some(*id),
        }
    }
}

#[cfg(test)]
mod tests {
    use firehose_core::{Cursor, Sequence};

    use super::*;

    fn names(query: &str) -> Vec<String> {
        let streams = SseRequest::parse(query, None).unwrap().streams;
        streams.iter().map(|s| s.as_str().to_owned()).collect()
    }

    fn refused(query: &str, header: Option<&str>) -> &'static str {
        SseRequest::parse(query, header).unwrap_err().kind()
    }

    #[test]
    fn commas_separate_and_exact_names_do_not() {
        assert_eq!(names("streams=a,b"), ["a", "b"]);
        assert_eq!(names("streams=+a+,,%20b,&other=1"), ["a", "b"]);
        assert_eq!(names("streams=a%2Cb"), ["a", "b"], "an encoded comma is a comma");
        assert_eq!(names("stream=a%2Cb&stream=+c+"), ["a,b", " c "]);
        assert_eq!(names("streams=a&stream=b&streams=a,c"), ["a", "b", "c"], "none twice");
        assert_eq!(names("streams=%C3%A9/%F0%9F%9A%92"), ["é/🚒"]);
        assert_eq!(names("stream=a%0Ab"), ["a\nb"]);
    }

    #[test]
    fn what_names_no_stream_is_refused() {
        for query in ["", "streams=", "streams=,+,", "other=a"] {
            assert_eq!(refused(query, None), "no_streams", "{query:?}");
        }
        let long = format!("streams={}", "x".repeat(1025));
        for query in ["stream=", "streams=a%00b", "streams=%FF", "stream=a&stream=%C3", &long] {
            assert_eq!(refused(query, None), "invalid_name", "{query:?}");
        }
    }

    #[test]
    fn sixty_four_streams_and_no_more() {
        let list = |n: usize| (0..n).map(|i| format!("s{i}")).collect::<Vec<_>>().join(",");
        assert_eq!(names(&format!("streams={}", list(64))).len(), 64);
        assert_eq!(names(&format!("streams={},s0", list(64))).len(), 64, "a repeat does not count");
        assert_eq!(refused(&format!("streams={}", list(65)), None), "too_many_streams");
    }

    #[test]
    fn the_last_event_id_is_a_token_a_number_or_nothing() {
        let stream = StreamName::new("a").unwrap();
        let mut token = Token::new();
        token.set(&stream, Cursor::at(None, Sequence(7)));
        assert_eq!(Resume::parse(&token.to_string()).unwrap(), Resume::After(token.clone()));
        assert_eq!(Resume::parse("12").unwrap(), Resume::AfterId(MessageId(12)));
        for text in ["", "0", "-5", "12a", "null", "1.5", "x"] {
            assert_eq!(Resume::parse(text).unwrap(), Resume::Now, "{text:?}");
        }
        for text in ["f", "f!", "fff", "99999999999999999999"] {
            assert_eq!(Resume::parse(text).unwrap_err().kind(), "invalid_cursor", "{text:?}");
        }
        let resume = Resume::After(token);
        assert_eq!(resume.start(&stream), Start::After(Cursor::at(None, Sequence(7))));
        assert_eq!(resume.start(&StreamName::new("b").unwrap()), Start::Now, "not in the token");
    }

    #[test]
    fn the_header_wins_over_the_query_where_it_says_something() {
        let resume = |query, header| SseRequest::parse(query, header).unwrap().resume;
        assert_eq!(resume("streams=a&last_event_id=5", Some("9")), Resume::AfterId(MessageId(9)));
        assert_eq!(resume("streams=a&last_event_id=5", Some("")), Resume::AfterId(MessageId(5)));
        assert_eq!(resume("streams=a&last_event_id=5", None), Resume::AfterId(MessageId(5)));
        assert_eq!(resume("streams=a", None), Resume::Now);
        assert_eq!(refused("streams=a&last_event_id=fx", None), "invalid_cursor");
    }

    #[test]
    fn a_path_names_a_stream_by_its_last_segment() {
        let name = |path: &str| stream_of_path(path).map(|s| s.as_str().to_owned());
        assert_eq!(name("/firehose/streams/a%2Fb").unwrap(), "a/b");
        assert_eq!(name("/firehose/streams/a+b%20c").unwrap(), "a+b c", "a plus is a plus in a path");
        assert_eq!(name("/x/%E2%82%AC").unwrap(), "€");
        for path in ["/firehose/streams/", "/s/%00", "/s/%FF", &format!("/s/{}", "x".repeat(1025))] {
            assert_eq!(name(path).unwrap_err().kind(), "invalid_name", "{path:?}");
        }
    }
}
