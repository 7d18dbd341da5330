//! What no client should send: each is a clear answer, and nothing is done.

use reqwest::Response;
use serde_json::Value;

use crate::support::{Server, json};

async fn refused(response: Response, status: u16, error: &str) -> Value {
    assert_eq!(response.status(), status, "{}", response.url());
    assert_eq!(response.headers()["content-type"], "application/json");
    let answer = json(response).await;
    assert_eq!(answer["error"], error, "{answer}");
    assert!(!answer["message"].as_str().unwrap().is_empty());
    answer
}

#[tokio::test]
async fn names_that_are_none() {
    let server = Server::start().await;
    let long = "x".repeat(1025);
    for segment in ["", "%00", "a%00b", "%FF", "%C3", &long] {
        let response = server.post(&format!("/firehose/streams/{segment}"), "x").send().await.unwrap();
        refused(response, 400, "invalid_name").await;
        if !segment.is_empty() {
            refused(server.get(&format!("/firehose/sse?streams=ok,{segment}")).await, 400, "invalid_name").await;
        }
        refused(server.get(&format!("/firehose/sse?stream={segment}")).await, 400, "invalid_name").await;
    }
}

#[tokio::test]
async fn bodies_that_are_no_text() {
    let server = Server::start().await;
    let response = server.post("/firehose/streams/a", &b"ab\xff"[..]).send().await.unwrap();
    let answer = refused(response, 400, "invalid_data").await;
    assert_eq!(answer["message"], "the body is not UTF-8 at byte 2");
    let response = server.post("/firehose/streams/a", "a\0b").send().await.unwrap();
    refused(response, 400, "invalid_data").await;
    assert_eq!(server.publish("a", "x").await["sequence"], 1, "neither of them was stored");
}

#[tokio::test]
async fn keys_that_are_none() {
    let server = Server::start().await;
    let long = "k".repeat(256);
    for key in [&b""[..], b"\xff", long.as_bytes()] {
        let response = server.post("/firehose/streams/a", "x").header("Idempotency-Key", key).send().await.unwrap();
        refused(response, 400, "invalid_key").await;
    }
    assert_eq!(server.publish("a", "x").await["sequence"], 1, "none of them was stored");
}

#[tokio::test]
async fn no_stream_and_too_many() {
    let server = Server::start().await;
    for query in ["", "?", "?streams=", "?streams=,%20,", "?other=a"] {
        refused(server.get(&format!("/firehose/sse{query}")).await, 400, "no_streams").await;
    }
    let list = |n: usize| (0..n).map(|i| format!("s{i}")).collect::<Vec<_>>().join(",");
    refused(server.get(&format!("/firehose/sse?streams={}", list(65))).await, 400, "too_many_streams").await;
    assert_eq!(server.get(&format!("/firehose/sse?streams={}", list(64))).await.status(), 200);
}

#[tokio::test]
async fn positions_that_are_none() {
    let server = Server::start().await;
    for id in ["f", "f!", "fAg", "firehose", "99999999999999999999"] {
        refused(server.get(&format!("/firehose/sse?streams=a&last_event_id={id}")).await, 400, "invalid_cursor").await;
        let request = server.client.get(server.url("/firehose/sse?streams=a")).header("Last-Event-ID", id);
        refused(request.send().await.unwrap(), 400, "invalid_cursor").await;
    }
}

#[tokio::test]
async fn paths_and_methods_that_are_none() {
    let server = Server::start().await;
    refused(server.get("/nothing").await, 404, "not_found").await;
    refused(server.post("/firehose/streams/a/b", "x").send().await.unwrap(), 404, "not_found").await;
    assert_eq!(server.get("/firehose/streams/a").await.status(), 405);
    assert_eq!(server.post("/firehose/sse", "").send().await.unwrap().status(), 405);
}
