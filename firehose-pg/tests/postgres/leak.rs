//! Rounds of subscribing, and what is left of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use firehose_core::{Backend, ChannelIdentifier, Config, Firehose, ListenControl, Listener, Result, Session, Start};

use crate::engine::next;
use crate::harness::{Shape, eventually, full, run, within};

/// A backend's listener, whose sessions can be asked what the server believes that they listen to.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    listener: Arc<dyn Listener>,
    control: Arc<Mutex<Option<Arc<dyn ListenControl>>>>,
    sessions: Arc<AtomicUsize>,
}

impl Watched {
    pub(crate) fn wrap(backend: Backend) -> (Backend, Self) {
        let listener = backend.listener.clone().unwrap();
        let watched = Self { listener, control: Arc::default(), sessions: Arc::default() };
        (Backend { listener: Some(Arc::new(watched.clone())), ..backend }, watched)
    }

    /// What the server says of the newest session.
    pub(crate) async fn registered(&self) -> Vec<ChannelIdentifier> {
        let control = self.control.lock().unwrap().clone().unwrap();
        control.registered().await.unwrap().unwrap()
    }

    /// How many there have been.
    pub(crate) fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Listener for Watched {
    async fn connect(&self) -> Result<Session> {
        let Session { control, events } = self.listener.connect().await?;
        let control: Arc<dyn ListenControl> = control.into();
        *self.control.lock().unwrap() = Some(control.clone());
        self.sessions.fetch_add(1, Ordering::Relaxed);
        Ok(Session { control: Box::new(Control(control)), events })
    }
}

#[derive(Debug)]
struct Control(Arc<dyn ListenControl>);

#[async_trait]
impl ListenControl for Control {
    async fn listen(&self, channels: &[ChannelIdentifier]) -> Result<()> {
        self.0.listen(channels).await
    }
    async fn unlisten(&self, channels: &[ChannelIdentifier]) -> Result<()> {
        self.0.unlisten(channels).await
    }
    async fn registered(&self) -> Result<Option<Vec<ChannelIdentifier>>> {
        self.0.registered().await
    }
    async fn ping(&self) -> Result<()> {
        self.0.ping().await
    }
    async fn close(&self) {
        self.0.close().await;
    }
}

/// Where the rounds are to be made: then this process makes them, and nothing else.
const DATABASE: &str = "FIREHOSE_TEST_ROUNDS_IN";

/// As many rounds as the case says, or fewer where time is short.
fn rounds() -> usize {
    if full() { 10_000 } else { 1_000 }
}

/// The most that memory may grow after the first third: less than 600 bytes a round in the full form.
const GROWTH: u64 = 4 << 20;

/// In a process of its own, whose memory nobody else uses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c48_rounds_of_subscribing_leave_nothing_behind() {
    if let Ok(url) = std::env::var(DATABASE) {
        return subscribe_and_leave(Config { database_url: Some(url.into()), ..Config::default() }).await;
    }
    run(Shape::Fresh, |db| async move {
        let child = tokio::process::Command::new(std::env::current_exe().unwrap())
            .args(["leak::c48_rounds_of_subscribing_leave_nothing_behind", "--exact", "--nocapture"])
            .env(DATABASE, db.url().to_secret().expose())
            .kill_on_drop(true)
            .output();
        let output = within(if full() { 300 } else { 60 }, child).await.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("1 passed"), "{said}");
    })
    .await;
}

async fn subscribe_and_leave(config: Config) {
    let (backend, watched) = Watched::wrap(firehose_pg::connect(&config).await.unwrap());
    let firehose = Firehose::builder(backend).config(config).start().await.unwrap();
    firehose.broadcast("kept", "1").await.unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let mut third = None;
    for round in 0..rounds() {
        // Streams that were there, and streams that were not; and what is delivered in between.
        let fresh = firehose.subscribe(format!("round {round}")).await.unwrap();
        let mut kept = firehose.subscribe_from("kept", Start::Earliest).await.unwrap();
        assert_eq!(next(&mut kept).await, (1, "1".to_owned()));
        drop((fresh, kept));
        if round == rounds() / 3 {
            nothing_left(&firehose, &watched).await;
            third = Some((resident(), tasks()));
        }
    }
    nothing_left(&firehose, &watched).await;
    let (memory, running) = third.unwrap();
    let grown = resident().saturating_sub(memory);
    println!("{} rounds, {grown} bytes more than after the first third of them", rounds());
    assert!(grown < GROWTH, "memory grew by {grown} bytes");
    eventually("no task is left", || async { (tasks() <= running).then_some(()) }).await;
    assert_eq!((watched.sessions(), firehose.metrics_snapshot().reconnects_total), (1, 0), "one session, all along");
    firehose.shutdown(Duration::from_secs(5)).await;
}

/// No registration, neither here nor at the server.
async fn nothing_left(firehose: &Firehose, watched: &Watched) {
    let gone = || async { watched.registered().await.is_empty().then_some(()) };
    eventually("every LISTEN is taken back", gone).await;
    let diagnostics = firehose.diagnostics();
    assert_eq!((diagnostics.streams.len(), diagnostics.metrics.subscribed_channels), (0, 0));
}

/// The bytes of memory that this process uses.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1_024
}
