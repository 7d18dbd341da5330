//! The wire: identifiers and payloads by the vectors of `tests/fixtures/wire.json`, which a running gem gave.

use firehose_core::wire::{decode, encode};
use serde_json::Value;

use super::*;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../fixtures/wire.json")).unwrap()
}

fn texts<'a>(vectors: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    vectors[list].as_array().unwrap().iter()
}

#[test]
fn every_identifier_is_the_gems() {
    let (vectors, naming) = (vectors(), Naming::default());
    for v in texts(&vectors, "identifiers") {
        let (stream, identifier) = (v["stream"].as_str().unwrap(), v["identifier"].as_str().unwrap());
        assert_eq!(ChannelIdentifier::hashed(v["channel"].as_str().unwrap()).as_str(), identifier, "{stream}");
        match StreamName::new(stream) {
            Ok(name) => assert_eq!(naming.stream(&name).as_str(), identifier, "{stream}"),
            Err(e) => assert_eq!((stream, e.kind()), ("", ErrorKind::InvalidName), "the empty name is an error here"),
        }
    }
    for v in texts(&vectors, "queue_identifiers") {
        assert_eq!(naming.raw(v["queue"].as_str().unwrap()).unwrap().as_str(), v["identifier"].as_str().unwrap());
    }
    for v in texts(&vectors, "bucket_identifiers") {
        let bucket = naming.bucket(v["bucket"].as_u64().unwrap() as u32);
        assert_eq!(bucket.as_str(), v["identifier"].as_str().unwrap());
    }
}

#[test]
fn every_payload_is_read() {
    let vectors = vectors();
    for v in texts(&vectors, "payloads") {
        let (wire, event) = (v["wire"].as_str().unwrap(), &v["event"]);
        let read = decode(wire).unwrap_or_else(|| panic!("{wire}"));
        assert_eq!(read.id.0, event["id"].as_i64().unwrap(), "{wire}");
        assert_eq!(read.epoch.0, event["channel_id"].as_i64().unwrap(), "{wire}");
        assert_eq!(read.sequence.0, event["sequence"].as_i64().unwrap(), "{wire}");
        assert_eq!(read.stream.as_str(), event["stream"].as_str().unwrap(), "{wire}");
        assert_eq!(read.data.as_deref(), event["data"].as_str(), "{wire}");
        assert_eq!(read.at.map(|t| t.0), event["at"].as_i64(), "{wire}");
    }
    for v in texts(&vectors, "not_events") {
        assert_eq!(decode(v.as_str().unwrap()), None, "{v}");
    }
}

fn message(data: &str) -> Message {
    let name = StreamName::new("dashboard").unwrap();
    Message::new(MessageId(1), Epoch(1), Sequence(1), name, data.into())
        .with_created_at(Timestamp(1_764_547_200_123_456))
}

#[test]
fn a_payload_is_compact_and_its_keys_are_in_order() {
    let whole = encode(&message("refresh"), 7_999);
    let expected =
        r#"{"id":1,"channel_id":1,"sequence":1,"stream":"dashboard","data":"refresh","at":1764547200123456}"#;
    assert_eq!(whole.as_ref(), expected);
    assert_eq!(encode(&message("<b>&</b>"), 7_999).matches("<b>&</b>").count(), 1, "fault 21: nothing is inflated");
}

#[test]
fn c40_the_limit_counts_bytes_after_escaping() {
    let overhead = encode(&message(""), 7_999).len();
    for (unit, bytes) in [("a", 1), ("🌍", 4), ("\"", 2), ("\u{1}", 6)] {
        for envelope in [7_998, 7_999, 8_000, 8_001] {
            let fill = envelope - overhead;
            let data = unit.repeat(fill / bytes) + &"a".repeat(fill % bytes);
            let payload = encode(&message(&data), 7_999);
            assert_eq!(payload.len() == envelope, envelope <= 7_999, "{unit:?} {envelope}");
            assert_eq!(decode(&payload).unwrap().data.is_some(), envelope <= 7_999, "{unit:?} {envelope}");
            assert!(payload.len() <= 7_999);
        }
    }
    let longest = StreamName::new("\u{1}".repeat(1_024)).unwrap();
    let named =
        Message::new(MessageId(i64::MAX), Epoch(i64::MAX), Sequence(i64::MAX), longest, "x".repeat(9_000).into());
    assert!(encode(&named, 7_000).len() <= 7_000, "fault 16: the longest name fits the shortest limit");
}

proptest::proptest! {
    #[test]
    fn what_is_written_is_read(data in "\\PC{0,300}", stream in "[^\\x00]{1,200}") {
        let name = StreamName::new(&stream).unwrap();
        let m = Message::new(MessageId(7), Epoch(3), Sequence(9), name, data.into()).with_created_at(Timestamp(5));
        let read = decode(&encode(&m, 7_999)).unwrap();
        proptest::prop_assert_eq!(read.data.as_deref(), Some(m.data.as_ref()));
        proptest::prop_assert_eq!(read.stream, m.stream);
    }

    #[test]
    fn garbage_is_no_announcement_and_no_panic(text in "\\PC{0,300}") {
        let _ = decode(&text);
        let _ = decode(&format!("{{{text}}}"));
    }
}
