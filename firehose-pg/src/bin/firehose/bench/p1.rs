//! P1: durable broadcasts a second, announced, from 256 callers on one stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use firehose_core::{Error, Firehose};
use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::place::{self, Place};
use super::report::Row;
use super::rounds::{Contest, Measured, Plan, alternate};
use super::{clock, failed, statements, wrong};

const CALLERS: usize = 256;
const CONNECTIONS: usize = 16;
const STREAM: &str = "bench";
const CHANNEL: &str = "firehose_bench";
const PAYLOAD: usize = 100;

struct P1<'a> {
    place: &'a Place,
    plan: Plan,
    admin: Client,
}

pub(crate) async fn measure(place: &Place, plan: Plan) -> Result<Row, Error> {
    let rounds = alternate(plan, &P1 { place, plan, admin: place.client().await? }).await?;
    let what = "durable broadcasts, announced, 256 callers, one stream";
    Ok(Row { row: "P1", what, floor: "a transaction a message, 16 connections", unit: "1/s", rounds })
}

impl Contest for P1<'_> {
    /// One statement a message, which is its own transaction: it appends and announces. Prepared, and pipelined, so that
    /// no caller waits for a connection.
    async fn floor(&self) -> Result<Measured, Error> {
        self.place.fresh(&self.admin, STREAM).await?;
        let mut connections = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            let client = self.place.client().await?;
            let statement = client.prepare(&statements::announced(&self.place.schema)).await;
            connections.push((client, statement.map_err(|e| failed("cannot prepare", e))?));
        }
        let (connections, data) = (Arc::new(connections), Arc::<str>::from("x".repeat(PAYLOAD)));
        let call = move |caller: usize| {
            let (connections, data) = (connections.clone(), data.clone());
            async move {
                let (client, statement) = &connections[caller % CONNECTIONS];
                let stored = client.query_one(statement, &[&STREAM, &&*data, &CHANNEL]).await;
                stored.map(drop).map_err(|e| failed("cannot append", e))
            }
        };
        let (rate, calls) = load(self.plan, call, None).await?;
        check(self.place, &self.admin, calls).await?;
        Ok(Measured { value: rate, detail: Vec::new() })
    }

    async fn ours(&self) -> Result<Measured, Error> {
        self.place.fresh(&self.admin, STREAM).await?;
        let engine = self.place.engine().await?;
        let data: Arc<str> = "x".repeat(PAYLOAD).into();
        let caller = engine.clone();
        let call = move |_| {
            let (engine, data) = (caller.clone(), data.clone());
            async move { engine.broadcast(STREAM, data).await.map(drop) }
        };
        let (rate, calls) = load(self.plan, call, Some(&engine)).await?;
        check(self.place, &self.admin, calls).await?;
        let metrics = engine.diagnostics().metrics;
        let mean = |batches: u64| calls as f64 / batches as f64;
        let detail = vec![("batch", mean(metrics.append_batches)), ("notify_batch", mean(metrics.notify_batches))];
        Ok(Measured { value: rate, detail })
    }
}

/// What was said to be stored is there.
async fn check(place: &Place, admin: &Client, calls: u64) -> Result<(), Error> {
    match place.count(admin).await? {
        stored if stored == calls => Ok(()),
        stored => Err(wrong(format!("{calls} messages were said to be stored, and {stored} are"))),
    }
}

/// Has all callers call one after the other for as long as planned. Gives calls a second, and how many there were with
/// those of the warm-up. With an engine, a message counts when it is announced too: the time ends when it has ended.
async fn load<F>(
    plan: Plan,
    call: impl Fn(usize) -> F + Clone + Send + 'static,
    engine: Option<&Firehose>,
) -> Result<(f64, u64), Error>
where
    F: Future<Output = Result<(), Error>> + Send,
{
    let (calls, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut callers: JoinSet<Result<(), Error>> = JoinSet::new();
    for caller in 0..CALLERS {
        let (calls, stop, call) = (calls.clone(), stop.clone(), call.clone());
        callers.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                call(caller).await?;
                calls.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    clock::pause(plan.warm_up).await;
    let (begin, before) = (clock::now(), calls.load(Ordering::Relaxed));
    clock::pause(plan.length).await;
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = callers.join_next().await {
        ended.map_err(|e| failed("a caller did not end", e))??;
    }
    if let Some(engine) = engine {
        place::end(engine).await?;
    }
    let (seconds, calls) = (begin.elapsed().as_secs_f64(), calls.load(Ordering::Relaxed));
    Ok(((calls - before) as f64 / seconds, calls))
}
