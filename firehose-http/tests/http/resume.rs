//! `Last-Event-ID`: after a cut connection a client gets what it missed, once.

use crate::support::Server;

#[tokio::test]
async fn by_header_and_by_query() {
    let server = Server::start().await;
    let mut events = server.events("streams=orders").await;
    for data in ["one", "two", "three"] {
        server.publish("orders", data).await;
    }
    let token = events.next().await.id.unwrap();
    drop(events);
    let mut by_header = server.events_after("streams=orders", &token).await;
    assert_eq!(by_header.messages(2).await, ["two", "three"]);
    let mut by_query = server.events(&format!("streams=orders&last_event_id={token}")).await;
    assert_eq!(by_query.messages(2).await, ["two", "three"]);
    server.publish("orders", "four").await;
    assert_eq!(by_header.messages(1).await, ["four"]);
    assert_eq!(by_query.messages(1).await, ["four"]);
}

#[tokio::test]
async fn the_header_of_a_browser_that_comes_back_wins_over_its_url() {
    let server = Server::start().await;
    let mut events = server.events("streams=orders").await;
    for data in ["one", "two", "three"] {
        server.publish("orders", data).await;
    }
    let old = events.next().await.id.unwrap();
    let new = events.next().await.id.unwrap();
    let mut again = server.events_after(&format!("streams=orders&last_event_id={old}"), &new).await;
    assert_eq!(again.messages(1).await, ["three"]);
}

#[tokio::test]
async fn each_stream_from_its_own_place() {
    let server = Server::start().await;
    let mut events = server.events("streams=a,b").await;
    server.publish("a", "a1").await;
    assert_eq!(events.messages(1).await, ["a1"]);
    server.publish("b", "b1").await;
    let token = events.next().await.id.unwrap();
    drop(events);
    for (stream, data) in [("b", "b2"), ("a", "a2"), ("c", "c1"), ("b", "b3")] {
        server.publish(stream, data).await;
    }
    let mut again = server.events_after("streams=a,b,c", &token).await;
    let mut got = again.messages(3).await;
    got.sort();
    assert_eq!(got, ["a2", "b2", "b3"], "what is not in the token starts at now");
    server.publish("c", "c2").await;
    assert_eq!(again.messages(1).await, ["c2"]);
}

#[tokio::test]
async fn a_client_that_was_cut_off_before_its_first_message_misses_nothing() {
    let server = Server::start().await;
    server.publish("old", "before").await;
    let mut events = server.events("streams=old,new").await;
    let token = events.token().await;
    drop(events);
    server.publish("old", "one").await;
    server.publish("new", "two").await;
    let mut got = server.events_after("streams=old,new", &token).await.messages(2).await;
    got.sort();
    assert_eq!(got, ["one", "two"]);
}

#[tokio::test]
async fn by_a_number_as_the_gems_clients_do() {
    let server = Server::start().await;
    let first = server.publish("a", "a1").await;
    server.publish("b", "b1").await;
    server.publish("a", "a2").await;
    let id = first["id"].as_i64().unwrap();
    let mut events = server.events_after("streams=a,b", &id.to_string()).await;
    let mut got = events.messages(2).await;
    got.sort();
    assert_eq!(got, ["a2", "b1"]);
    let mut by_query = server.events(&format!("streams=a&last_event_id={id}")).await;
    assert_eq!(by_query.messages(1).await, ["a2"]);
}

#[tokio::test]
async fn what_is_no_position_starts_at_now() {
    let server = Server::start().await;
    server.publish("a", "old").await;
    for id in ["", "0", "-5", "nonsense", "1.5"] {
        let mut events = server.events_after("streams=a", id).await;
        server.publish("a", id).await;
        assert_eq!(events.messages(1).await, [id], "{id:?}");
    }
}
