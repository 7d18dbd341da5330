//! P3: what one caller waits for a broadcast, on one stream.

use std::sync::Arc;
use std::time::Instant;

use firehose_core::Error;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use super::place::{self, Place};
use super::report::Row;
use super::rounds::{Contest, Measured, Plan, alternate};
use super::{clock, failed, statements};

const STREAM: &str = "bench";
const PAYLOAD: usize = 100;

struct P3<'a> {
    place: &'a Place,
    plan: Plan,
    admin: Client,
}

pub(crate) async fn measure(place: &Place, plan: Plan) -> Result<Row, Error> {
    let rounds = alternate(plan, &P3 { place, plan, admin: place.client().await? }).await?;
    let what = "p50 of a broadcast, one caller, one stream";
    Ok(Row { row: "P3", what, floor: "the same statement on a bare connection", unit: "ms", rounds })
}

impl Contest for P3<'_> {
    async fn floor(&self) -> Result<Measured, Error> {
        self.place.fresh(&self.admin, STREAM).await?;
        let (data, schema) = ("x".repeat(PAYLOAD), &self.place.schema);
        let (names, all, keys) = (&[STREAM][..], &[&*data][..], &[None::<&str>][..]);
        let same = statement(&self.admin, self.plan, &statements::append(schema), &[&names, &all, &keys]).await?;
        let mut measured = Measured::latency(same, "floor_p99");
        // Not the floor, but what the statement itself costs beside the least that appends one message.
        let least = statement(&self.admin, self.plan, &statements::least(schema), &[&STREAM, &data]).await?;
        measured.detail.push(("least", Measured::latency(least, "p99").value));
        Ok(measured)
    }

    async fn ours(&self) -> Result<Measured, Error> {
        self.place.fresh(&self.admin, STREAM).await?;
        let data: Arc<str> = "x".repeat(PAYLOAD).into();
        let engine = self.place.engine().await?;
        let mut stopwatch = Stopwatch::start(self.plan);
        while stopwatch.goes_on() {
            engine.broadcast(STREAM, data.clone()).await?;
            stopwatch.lap();
        }
        place::end(&engine).await?;
        Ok(Measured::latency(stopwatch.laps, "p99"))
    }
}

/// The latencies of `sql`, prepared.
async fn statement(
    client: &Client,
    plan: Plan,
    sql: &str,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<Vec<u64>, Error> {
    let statement = client.prepare(sql).await.map_err(|e| failed("cannot prepare", e))?;
    let mut stopwatch = Stopwatch::start(plan);
    while stopwatch.goes_on() {
        client.query(&statement, parameters).await.map_err(|e| failed("cannot append", e))?;
        stopwatch.lap();
    }
    Ok(stopwatch.laps)
}

/// Times calls that go one after the other.
struct Stopwatch {
    plan: Plan,
    begin: Instant,
    lap: Instant,
    /// In nanoseconds, without the warm-up.
    laps: Vec<u64>,
}

impl Stopwatch {
    fn start(plan: Plan) -> Self {
        let now = clock::now();
        Self { plan, begin: now, lap: now, laps: Vec::new() }
    }

    fn goes_on(&self) -> bool {
        self.lap.duration_since(self.begin) < self.plan.warm_up + self.plan.length
    }

    fn lap(&mut self) {
        let (before, now) = (self.lap, clock::now());
        self.lap = now;
        if before.duration_since(self.begin) >= self.plan.warm_up {
            self.laps.push(u64::try_from(now.duration_since(before).as_nanos()).unwrap_or(u64::MAX));
        }
    }
}
