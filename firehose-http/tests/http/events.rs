//! `GET /firehose/sse`: what goes over the wire.

use std::time::Duration;

use firehose_core::Token;
use firehose_http::Options;

use crate::support::Server;

#[tokio::test]
async fn the_headers_and_the_first_line() {
    let server = Server::start().await;
    let mut events = server.events("streams=orders").await;
    assert_eq!(events.header("content-type"), "text/event-stream");
    assert_eq!(events.header("cache-control"), "no-cache, no-store");
    assert_eq!(events.header("x-accel-buffering"), "no");
    assert_eq!(events.header("connection"), "keep-alive");
    let first = events.block().await.unwrap();
    let delay: u64 = first.strip_prefix("retry: ").unwrap().parse().unwrap();
    assert!((1_000..=3_000).contains(&delay), "{delay}");
}

#[tokio::test]
async fn a_message_is_an_id_an_event_and_its_data() {
    let server = Server::start().await;
    let mut events = server.events("streams=orders").await;
    let place = server.publish("orders", "paid \"x\"\n🚒").await;
    let event = events.next().await;
    assert_eq!(event.name.as_deref(), Some("orders"));
    let channel_id = place["channel_id"].as_i64().unwrap();
    let expected = format!(r#"{{"data":"paid \"x\"\n🚒","channel_id":{channel_id},"sequence":1}}"#);
    assert_eq!(event.data.as_deref(), Some(&*expected));
    let token: Token = event.id.unwrap().parse().unwrap();
    assert_eq!(token.len(), 1);
}

#[tokio::test]
async fn the_answer_means_that_every_stream_is_subscribed() {
    let server = Server::start().await;
    for round in 0..20 {
        let mut events = server.events(&format!("streams=a{round},b{round}")).await;
        server.publish(&format!("a{round}"), "first").await;
        server.publish(&format!("b{round}"), "second").await;
        let mut got = events.messages(2).await;
        got.sort();
        assert_eq!(got, ["first", "second"]);
    }
}

/// Faults 64 of the gem: injection by a newline, collisions with the browser's events, commas.
#[tokio::test]
async fn every_name_arrives_and_injects_nothing() {
    let server = Server::start().await;
    for (segment, name) in [
        ("open", "firehose:open"),
        ("error", "firehose:error"),
        ("message", "firehose:message"),
        ("x%0Aid%3A%20999%0A%0Adata%3A%20y", "x id: 999  data: y"),
        ("x%0D%0Aretry%3A%201", "x  retry: 1"),
        ("a%2Cb", "a,b"),
        ("a%2Fb", "a/b"),
        ("%20padded%20", " padded "),
        ("%F0%9F%9A%92%20%C3%BC", "🚒 ü"),
    ] {
        let mut events = server.events(&format!("stream={segment}")).await;
        assert!(events.block().await.unwrap().starts_with("retry: "));
        assert!(events.block().await.unwrap().starts_with("id: f"));
        server.publish(segment, "line 1\nid: 7\n\ndata: z").await;
        let block = events.block().await.unwrap();
        let lines: Vec<&str> = block.split('\n').collect();
        assert_eq!(lines.len(), 3, "{block}");
        assert_eq!(lines[1].strip_prefix("event: "), Some(name), "{block}");
    }
}

#[tokio::test]
async fn commas_separate_and_exact_names_do_not() {
    let server = Server::start().await;
    let mut events = server.events("streams=a,%20b&stream=a%2Cb").await;
    for segment in ["a", "b", "a%2Cb"] {
        server.publish(segment, "x").await;
        assert_eq!(events.next().await.name.unwrap(), segment.replace("%2C", ","));
    }
}

#[tokio::test]
async fn above_eight_streams_the_token_comes_by_itself() {
    let server = Server::with(Options::default().with_token_interval(Duration::from_millis(30))).await;
    let streams: Vec<String> = (0..9).map(|n| format!("s{n}")).collect();
    let query = format!("streams={}", streams.join(","));
    let mut events = server.events(&query).await;
    let first = events.token().await;
    for stream in &streams {
        server.publish(stream, stream.clone()).await;
    }
    let mut seen = Vec::new();
    let mut last = first.clone();
    while seen.len() < 9 || last == first {
        let event = events.fields().await.unwrap();
        match (&event.id, &event.data) {
            (None, Some(_)) => seen.push(event.message()),
            (Some(id), None) => last = id.clone(),
            _ => panic!("an id with an event, or neither: {event:?}"),
        }
    }
    seen.sort();
    assert_eq!(seen, streams);
    let token: Token = events_token_after_all(&server, &query, &last).await;
    assert_eq!(token.len(), 9);
}

/// Goes on from `last`, which may lie before messages already seen, and gives the token after a message that is new.
async fn events_token_after_all(server: &Server, query: &str, last: &str) -> Token {
    let mut events = server.events_after(query, last).await;
    server.publish("s4", "new").await;
    while events.next().await.message() != "new" {}
    events.token().await.parse().unwrap()
}

#[tokio::test]
async fn eight_streams_have_the_token_with_each_event() {
    let server = Server::start().await;
    let mut events = server.events("streams=1,2,3,4,5,6,7,8").await;
    server.publish("5", "x").await;
    let event = events.next().await;
    assert_eq!(event.id.unwrap().parse::<Token>().unwrap().len(), 8);
}

#[tokio::test]
async fn silence_is_broken_by_a_comment() {
    let server = Server::with(Options::default().with_keep_alive(Duration::from_millis(20))).await;
    let mut events = server.events("streams=quiet").await;
    assert!(events.block().await.unwrap().starts_with("retry: "));
    assert!(events.block().await.unwrap().starts_with("id: f"));
    for _ in 0..3 {
        assert_eq!(events.block().await.unwrap(), ": keepalive");
    }
}

#[tokio::test]
async fn a_client_that_asks_is_told_where_each_stream_begins() {
    let server = Server::start().await;
    server.publish("orders", "one").await;
    let mut events = server.events("streams=orders,new&subscribed=true").await;
    let event = events.next().await;
    assert_eq!(event.name.as_deref(), Some("firehose_subscribed"));
    let expected = r#"{"streams":[{"stream":"orders","from":1,"head":1},{"stream":"new","from":0,"head":0}]}"#;
    assert_eq!(event.data.as_deref(), Some(expected));
    for data in ["two", "three"] {
        server.publish("orders", data).await;
    }
    let mut again = server.events_after("streams=orders&subscribed=1", event.id.as_deref().unwrap()).await;
    let expected = r#"{"streams":[{"stream":"orders","from":1,"head":3}]}"#;
    assert_eq!(again.next().await.data.as_deref(), Some(expected));
    assert_eq!(again.messages(2).await, ["two", "three"]);
}

#[tokio::test]
async fn many_messages_arrive_whole_and_in_order() {
    let server = Server::start().await;
    let mut events = server.events("streams=many").await;
    let big = "🚒".repeat(20_000);
    for n in 0..300 {
        server.firehose.broadcast("many", format!("{n} {}", if n % 50 == 0 { &*big } else { "" })).await.unwrap();
    }
    for n in 0..300 {
        let event = events.next().await;
        assert_eq!(event.json()["sequence"], n + 1);
        let data = event.message();
        let (number, rest) = data.split_once(' ').unwrap();
        assert_eq!((number, rest.len()), (&*n.to_string(), if n % 50 == 0 { 80_000 } else { 0 }));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_holds_nobody_up_and_gets_everything_later() {
    let server = Server::start().await;
    let mut slow = server.events("streams=busy").await;
    let mut quick = server.events("streams=busy").await;
    let padding = "x".repeat(16 << 10);
    // 32 MiB, more than the sockets between hold.
    for n in 0..2_000 {
        server.firehose.broadcast("busy", format!("{n} {padding}")).await.unwrap();
    }
    for events in [&mut quick, &mut slow] {
        for n in 0..2_000 {
            assert_eq!(events.next().await.json()["sequence"], n + 1);
        }
    }
}
