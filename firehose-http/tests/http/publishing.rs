//! `POST /firehose/streams/{stream}`.

use firehose_core::{Start, StreamName};
use firehose_http::Options;

use crate::support::{Server, json, within};

async fn stored(server: &Server, stream: &str) -> Vec<String> {
    let name = StreamName::new(stream).unwrap();
    let head = server.firehose.head(&name).await.unwrap();
    let count = head.map_or(0, |head| head.sequence.0);
    let mut set = server.firehose.subscriptions();
    set.add(name, Start::Earliest).await.unwrap();
    let mut data = Vec::new();
    for _ in 0..count {
        let (_, delivery) = within("a stored message", set.next()).await.unwrap();
        data.push(delivery.message().unwrap().data.to_string());
    }
    data
}

#[tokio::test]
async fn a_body_becomes_a_message_and_its_place_is_told() {
    let server = Server::start().await;
    let first = server.publish("orders", "paid").await;
    let second = server.publish("orders", "shipped").await;
    assert_eq!((&first["stream"], &first["sequence"]), (&"orders".into(), &1.into()));
    assert_eq!(second["sequence"], 2);
    assert_eq!(first["channel_id"], second["channel_id"]);
    assert!(second["id"].as_i64() > first["id"].as_i64());
    assert_eq!(stored(&server, "orders").await, ["paid", "shipped"]);
}

#[tokio::test]
async fn the_keys_of_the_answer_are_in_order() {
    let server = Server::start().await;
    let response = server.post("/firehose/streams/orders", "paid").send().await.unwrap();
    assert_eq!(response.status(), 201);
    assert_eq!(response.headers()["content-type"], "application/json");
    let text = response.text().await.unwrap();
    let places: Vec<_> =
        ["{\"id\":", ",\"channel_id\":", ",\"sequence\":1", ",\"stream\":\"orders\"}"].map(|k| text.find(k)).into();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{text}");
}

#[tokio::test]
async fn the_body_is_the_data_as_it_is() {
    let server = Server::start().await;
    for (content_type, body) in [
        ("application/json", "{ \"a\": 1 }"),
        ("application/x-www-form-urlencoded", "a=1&b=%20"),
        ("text/plain; charset=latin1", "é 🚒 \u{2028}\r\n\t"),
        ("multipart/form-data; boundary=x", ""),
    ] {
        let request = server.post("/firehose/streams/raw", body).header("Content-Type", content_type);
        assert_eq!(request.send().await.unwrap().status(), 201, "{content_type}");
    }
    assert_eq!(stored(&server, "raw").await, ["{ \"a\": 1 }", "a=1&b=%20", "é 🚒 \u{2028}\r\n\t", ""]);
}

#[tokio::test]
async fn a_segment_is_a_name_whatever_is_in_it() {
    let server = Server::start().await;
    for (segment, name) in [
        ("a%2Fb", "a/b"),
        ("a%2fb%2F", "a/b/"),
        ("a,b", "a,b"),
        ("a+b", "a+b"),
        ("caf%C3%A9%20%F0%9F%9A%92", "café 🚒"),
        ("two%0Alines", "two\nlines"),
        ("%3Fq%23h%25", "?q#h%"),
        ("open", "open"),
        ("sse", "sse"),
    ] {
        assert_eq!(server.publish(segment, "x").await["stream"], name, "{segment}");
    }
    let longest = "x".repeat(1024);
    assert_eq!(server.publish(&longest, "x").await["stream"], longest);
}

#[tokio::test]
async fn an_idempotency_key_stores_once() {
    let server = Server::start().await;
    let send = async |data: &'static str, key: &'static str| {
        let request = server.post("/firehose/streams/payments", data).header("Idempotency-Key", key);
        let response = within("publish", request.send()).await.unwrap();
        assert_eq!(response.status(), 201);
        json(response).await
    };
    let first = send("one", "payment-7").await;
    assert_eq!(send("again", "payment-7").await, first, "the place of the first");
    assert_ne!(send("two", "payment-8").await, first);
    assert_eq!(stored(&server, "payments").await, ["one", "two"]);
}

#[tokio::test]
async fn a_body_of_just_the_limit_is_taken_and_one_byte_more_is_not() {
    let server = Server::with(Options::default().with_max_message_bytes(1_000)).await;
    server.publish("big", "x".repeat(1_000)).await;
    let response = server.post("/firehose/streams/big", "x".repeat(1_001)).send().await.unwrap();
    assert_eq!(response.status(), 413);
    let answer = json(response).await;
    assert_eq!(
        (&answer["error"], &answer["message"]),
        (&"too_large".into(), &"the body is longer than 1000 bytes".into())
    );
    // Far beyond it, and without a length: what is too much is thrown away as it comes.
    let chunks = futures_util::stream::iter((0..30).map(|_| Ok::<_, std::io::Error>(vec![b'x'; 100_000])));
    let response = server.post("/firehose/streams/big", reqwest::Body::wrap_stream(chunks)).send().await.unwrap();
    assert_eq!(response.status(), 413);
    assert_eq!(stored(&server, "big").await.len(), 1);
}
