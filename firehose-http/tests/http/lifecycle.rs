//! Health, the page, and the end.

use std::time::Duration;

use firehose_http::Options;

use crate::support::{Server, json, within};

#[tokio::test]
async fn the_process_answers_and_says_whether_it_is_ready() {
    let server = Server::start().await;
    assert_eq!(server.get("/healthz").await.status(), 200);
    let ready = server.get("/readyz").await;
    assert_eq!(ready.status(), 200);
    let body = json(ready).await;
    assert_eq!((&body["ready"], &body["state"]), (&true.into(), &"live".into()));

    server.firehose.shutdown(Duration::from_secs(5)).await;
    let ready = server.get("/readyz").await;
    assert_eq!(ready.status(), 503);
    let body = json(ready).await;
    assert_eq!((&body["ready"], &body["state"]), (&false.into(), &"stopped".into()));
    assert!(body["reason"].as_str().unwrap().starts_with("stopped"));
    assert_eq!(server.get("/healthz").await.status(), 200, "the process still runs");
}

#[tokio::test]
async fn the_page_comes_with_a_policy_that_lets_nothing_else_in() {
    let server = Server::start().await;
    let page = server.get("/").await;
    assert_eq!(page.status(), 200);
    assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
    assert_eq!(page.headers()["x-content-type-options"], "nosniff");
    let policy = page.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    assert!(page.text().await.unwrap().contains("<title>Firehose</title>"));
}

#[tokio::test]
async fn draining_ends_the_events_with_a_token_and_then_the_server() {
    let server = Server::start().await;
    let nine: Vec<String> = (0..9).map(|n| format!("s{n}")).collect();
    let mut few = server.events("streams=a").await;
    let mut many = server.events(&format!("streams={}", nine.join(","))).await;
    server.publish("s3", "seen").await;
    assert_eq!(many.messages(1).await, ["seen"]);
    server.drain.cancel();
    let mut last = None;
    while let Some(event) = many.fields().await {
        assert_eq!(event.data, None, "nothing but the token");
        last = event.id;
    }
    let token = last.expect("a token before the end");
    while few.block().await.is_some() {}
    // What the client missed while this server was away it gets from the next one; here, from the engine itself.
    server.firehose.broadcast("s3", "missed").await.unwrap();
    let next = firehose_core::StreamName::new("s3").unwrap();
    let mut set = server.firehose.subscriptions();
    let cursor = token.parse::<firehose_core::Token>().unwrap().get(&next).unwrap();
    set.add(next, firehose_core::Start::After(cursor)).await.unwrap();
    let (_, delivery) = within("what was missed", set.next()).await.unwrap();
    assert_eq!(&*delivery.message().unwrap().data, "missed");
    server.ended().await;
}

#[tokio::test]
async fn the_end_of_the_engine_ends_the_events() {
    let server = Server::start().await;
    let mut events = server.events("streams=a,b").await;
    server.publish("a", "last").await;
    assert_eq!(events.messages(1).await, ["last"]);
    server.firehose.shutdown(Duration::from_secs(5)).await;
    let mut token = None;
    while let Some(event) = events.fields().await {
        token = event.id.or(token);
    }
    assert!(token.is_some(), "a token before the end");

    let refused = server.get("/firehose/sse?streams=a").await;
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(json(refused).await["error"], "shut_down");
    let refused = within("publish", server.post("/firehose/streams/a", "x").send()).await.unwrap();
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(json(refused).await["error"], "shut_down");
}

#[tokio::test]
async fn the_router_nests_in_another_service() {
    let server = Server::start().await;
    let inner = firehose_http::router(server.firehose.clone(), Options::default());
    let app = axum::Router::new().nest("/api/v1", inner).route("/", axum::routing::get(async || "mine"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(axum::serve(listener, app).into_future());
    let url = format!("{base}/api/v1/firehose/streams/a%2Fb");
    let published = server.client.post(url).body("x").send().await.unwrap();
    assert_eq!(published.status(), 201);
    assert_eq!(json(published).await["stream"], "a/b");
    let events = server.client.get(format!("{base}/api/v1/firehose/sse?streams=a")).send().await.unwrap();
    assert_eq!(events.status(), 200);
    assert_eq!(server.client.get(base).send().await.unwrap().text().await.unwrap(), "mine");
    serving.abort();
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_no_subscription() {
    let server = Server::with(Options::default().with_keep_alive(Duration::from_millis(10))).await;
    let events = server.events("streams=a,b").await;
    assert_eq!(server.firehose.diagnostics().streams.len(), 2);
    drop(events);
    within("the end of its subscriptions", async {
        while !server.firehose.diagnostics().streams.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
