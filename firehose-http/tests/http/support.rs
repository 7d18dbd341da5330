//! A server on a free port of this machine, and a client that reads events as bytes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use firehose_core::{Backend, Clock, Config, Firehose, MessageStore, Retain, Scope, StreamName, SystemClock};
use firehose_http::Options;
use firehose_testkit::{Database, Faults, MemoryStore, WireListener, WireNotifier};
use reqwest::{Client, RequestBuilder, Response};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Ends a test that waits for what never comes.
pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    let clock = SystemClock::new();
    let deadline = clock.now() + Duration::from_secs(20);
    tokio::select! {
        done = work => done,
        () = clock.sleep_until(deadline) => panic!("{what}: nothing within 20 s"),
    }
}

/// A gateway over an engine in memory, on the system's clock: the connections are real.
pub(crate) struct Server {
    pub(crate) database: Database,
    pub(crate) faults: Faults,
    pub(crate) firehose: Firehose,
    pub(crate) drain: CancellationToken,
    pub(crate) client: Client,
    base: String,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(Options::default()).await
    }

    pub(crate) async fn with(options: Options) -> Self {
        let config = Config { max_message_bytes: options.max_message_bytes, ..Config::default() };
        Self::with_config(options, config).await
    }

    pub(crate) async fn with_config(options: Options, config: Config) -> Self {
        let clock = SystemClock::new();
        let (database, faults) = (Database::new(7, clock), Faults::new(Arc::new(clock)));
        let backend = Backend::new(
            MemoryStore::new(&database).with_faults(&faults),
            WireNotifier::new(database.wire()).with_faults(&faults),
            WireListener::new(database.wire()).with_faults(&faults),
        );
        let firehose = Firehose::builder(backend).config(config).start().await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let drain = options.drain.clone();
        let app = firehose_http::gateway(firehose.clone(), options);
        let serving = axum::serve(listener, app).with_graceful_shutdown(drain.clone().cancelled_owned());
        let serving = tokio::spawn(serving.into_future());
        Self { database, faults, firehose, drain, client: Client::new(), base, serving }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        within(path, self.client.get(self.url(path)).send()).await.unwrap()
    }

    pub(crate) fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> RequestBuilder {
        self.client.post(self.url(path)).body(body)
    }

    /// Publishes, and gives the answer's JSON.
    pub(crate) async fn publish(&self, segment: &str, data: impl Into<reqwest::Body>) -> Value {
        let response =
            within("publish", self.post(&format!("/firehose/streams/{segment}"), data).send()).await.unwrap();
        assert_eq!(response.status(), 201);
        json(response).await
    }

    pub(crate) async fn events(&self, query: &str) -> Events {
        Events::of(self.get(&format!("/firehose/sse?{query}")).await)
    }

    pub(crate) async fn events_after(&self, query: &str, last_event_id: &str) -> Events {
        let request =
            self.client.get(self.url(&format!("/firehose/sse?{query}"))).header("Last-Event-ID", last_event_id);
        Events::of(within(query, request.send()).await.unwrap())
    }

    /// Removes all but the newest `keep` messages of a stream.
    pub(crate) async fn trim(&self, stream: &str, keep: u64) {
        let scope = Scope::Stream(StreamName::new(stream).unwrap());
        let retain = Retain { messages: Some(keep), ..Retain::default() };
        MemoryStore::new(&self.database).trim(scope, retain, 1_000).await.unwrap();
    }

    /// Waits until the server has ended, which it does when it was drained.
    pub(crate) async fn ended(self) {
        within("the server's end", self.serving).await.unwrap().unwrap();
    }
}

pub(crate) async fn json(response: Response) -> Value {
    serde_json::from_slice(&within("a body", response.bytes()).await.unwrap()).unwrap()
}

/// What a client reads, block by block.
pub(crate) struct Events {
    response: Response,
    buffer: Vec<u8>,
}

/// The fields of one event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) data: Option<String>,
}

impl Event {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(self.data.as_deref().unwrap()).unwrap()
    }

    /// The data of the message in it.
    pub(crate) fn message(&self) -> String {
        self.json()["data"].as_str().unwrap().to_owned()
    }
}

impl Events {
    fn of(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        Self { response, buffer: Vec::new() }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.response.headers()[name].to_str().unwrap()
    }

    /// The next block, without the empty line that ends it; `None` at the end.
    pub(crate) async fn block(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let mut block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                block.truncate(end);
                return Some(String::from_utf8(block).unwrap());
            }
            let chunk = within("an event", self.response.chunk()).await.unwrap();
            let Some(chunk) = chunk else {
                assert!(self.buffer.is_empty(), "it ends between blocks");
                return None;
            };
            self.buffer.extend_from_slice(&chunk);
        }
    }

    /// The next block that is not the first line of all.
    pub(crate) async fn fields(&mut self) -> Option<Event> {
        loop {
            let block = self.block().await?;
            if block.starts_with("retry: ") {
                continue;
            }
            let mut event = Event::default();
            for line in block.lines() {
                match line.split_once(": ").unwrap() {
                    ("id", id) => event.id = Some(id.to_owned()),
                    ("event", name) => event.name = Some(name.to_owned()),
                    ("data", data) => event.data = Some(data.to_owned()),
                    _ => panic!("{line:?}"),
                }
            }
            return Some(event);
        }
    }

    /// The next event with data, as a browser would dispatch it.
    pub(crate) async fn next(&mut self) -> Event {
        loop {
            let event = self.fields().await.expect("the stream goes on");
            if event.data.is_some() {
                return event;
            }
        }
    }

    /// The next event that has a token.
    pub(crate) async fn token(&mut self) -> String {
        loop {
            if let Some(id) = self.fields().await.expect("the stream goes on").id {
                return id;
            }
        }
    }

    /// The data of the next `count` messages.
    pub(crate) async fn messages(&mut self, count: usize) -> Vec<String> {
        let mut messages = Vec::new();
        while messages.len() < count {
            messages.push(self.next().await.message());
        }
        messages
    }
}
