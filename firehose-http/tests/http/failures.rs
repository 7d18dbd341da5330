//! What a client is told when the store is away, does not answer, or no longer has what it asks for.

use firehose_core::{Config, ErrorKind};
use firehose_http::Options;
use firehose_testkit::Operation;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::support::{Server, json, within};

#[tokio::test]
async fn a_store_that_is_away_is_a_503_that_says_when_to_come_back() {
    let server = Server::start().await;
    server.faults.on(Operation::Append).refuse(ErrorKind::ConnectionLost);
    let refused = within("publish", server.post("/firehose/streams/a", "x").send()).await.unwrap();
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["retry-after"], "1");
    let answer = json(refused).await;
    assert_eq!(answer["error"], "connection_lost", "{answer}");
    assert_eq!(answer.get("outcome"), None, "nothing was done, and nothing else is said");
    server.faults.heal();
    assert_eq!(server.publish("a", "x").await["sequence"], 1);
}

#[tokio::test]
async fn too_much_at_once_is_a_503_too() {
    let config = Config { max_waiting_broadcasts: 1, ..Config::default() };
    let server = Server::with_config(Options::default(), config).await;
    let stuck = server.faults.on(Operation::Append).hang();
    let mut requests: FuturesUnordered<_> = (0..4).map(|_| server.post("/firehose/streams/a", "x").send()).collect();
    let refused = within("the first answer", requests.next()).await.unwrap().unwrap();
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    let answer = json(refused).await;
    assert_eq!((&answer["error"], answer.get("outcome")), (&"overloaded".into(), None), "{answer}");
    drop(stuck);
    let mut stored = 0;
    while let Some(answer) = within("the others", requests.next()).await {
        stored += usize::from(answer.unwrap().status() == 201);
    }
    assert_eq!(server.database.messages("a").len(), stored, "what was refused was not stored");
    assert!(stored > 0);
}

#[tokio::test]
async fn an_unknown_outcome_is_called_so_and_a_repeat_with_the_key_stores_once() {
    let server = Server::start().await;
    server.faults.on(Operation::Append).lose_answer(1);
    let request = || server.post("/firehose/streams/payments", "paid").header("Idempotency-Key", "payment-7").send();
    let unknown = within("publish", request()).await.unwrap();
    assert_eq!(unknown.status(), 503);
    assert_eq!(unknown.headers()["retry-after"], "1");
    let answer = json(unknown).await;
    assert_eq!((&answer["error"], &answer["outcome"]), (&"outcome_unknown".into(), &"unknown".into()), "{answer}");
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains("outcome is unknown") && message.contains("same Idempotency-Key"), "{message}");
    let repeated = within("publish", request()).await.unwrap();
    assert_eq!(repeated.status(), 201);
    assert_eq!(json(repeated).await["sequence"], 1);
    assert_eq!(server.database.messages("payments").len(), 1);
}

#[tokio::test]
async fn what_was_trimmed_is_said_and_delivery_goes_on() {
    let server = Server::start().await;
    let mut events = server.events("streams=orders").await;
    let mut ids = Vec::new();
    for data in ["one", "two", "three", "four", "five"] {
        ids.push(server.publish("orders", data).await["id"].as_i64().unwrap());
    }
    let token = events.next().await.id.unwrap();
    drop(events);
    server.trim("orders", 2).await;

    let mut again = server.events_after("streams=orders", &token).await;
    let gap = again.next().await;
    assert_eq!((gap.name.as_deref(), gap.id.as_deref()), (Some("firehose_replay_gap"), None));
    let expected = format!(
        r#"{{"stream":"orders","last_event_id":{},"oldest_retained_id":{},"current_id":{},"from":2,"to":3,"exact":true,"reason":"trimmed"}}"#,
        ids[0], ids[3], ids[4]
    );
    assert_eq!(gap.data, Some(expected));
    assert_eq!(again.messages(2).await, ["four", "five"]);

    let mut by_id = server.events_after("streams=orders", &ids[0].to_string()).await;
    let gap = by_id.next().await.json();
    assert_eq!((&gap["last_event_id"], &gap["exact"]), (&ids[0].into(), &false.into()), "{gap}");
    assert_eq!((&gap["oldest_retained_id"], &gap["current_id"]), (&ids[3].into(), &ids[4].into()), "{gap}");
    assert_eq!(by_id.messages(2).await, ["four", "five"]);
}

#[tokio::test]
async fn a_stream_that_was_made_again_is_a_reset_and_the_new_one_follows() {
    let server = Server::start().await;
    let mut events = server.events("streams=orders").await;
    server.publish("orders", "old").await;
    let token = events.next().await.id.unwrap();
    drop(events);
    server.database.delete_stream("orders").await.unwrap();
    let epoch = server.publish("orders", "new").await["channel_id"].as_i64().unwrap();

    let mut again = server.events_after("streams=orders", &token).await;
    let reset = again.next().await;
    assert_eq!((reset.name.as_deref(), reset.id.as_deref()), (Some("firehose_reset"), None));
    let expected = format!(r#"{{"stream":"orders","epoch":{epoch},"head":1,"reason":"recreated"}}"#);
    assert_eq!(reset.data, Some(expected));
    let new = again.next().await;
    assert_eq!(new.message(), "new");
    server.publish("orders", "newer").await;
    assert_eq!(server.events_after("streams=orders", &new.id.unwrap()).await.messages(1).await, ["newer"]);
}

#[tokio::test]
async fn a_lost_session_costs_a_stream_of_events_nothing() {
    let server = Server::start().await;
    let mut events = server.events("streams=orders").await;
    server.publish("orders", "before").await;
    assert_eq!(events.messages(1).await, ["before"]);
    server.database.wire().cut();
    server.publish("orders", "after").await;
    assert_eq!(events.messages(1).await, ["after"]);
}
