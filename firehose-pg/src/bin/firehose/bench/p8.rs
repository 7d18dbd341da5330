//! P8: what it costs to sweep many streams that nothing happens on.

use std::path::Path;

use firehose_core::{Config, Error, Firehose, Subscription};
use futures_util::future::try_join_all;
use tokio_postgres::Client;

use super::place::Place;
use super::report::Row;
use super::rounds::{Plan, Round};
use super::{clock, failed, wrong};

/// How many streams; with short rounds fewer, so that they can be subscribed in the time.
const STREAMS: (usize, usize) = (50_000, 5_000);

/// So many sweeps are measured: each tenth is of all heads.
const SWEEPS: u32 = 10;

pub(crate) async fn measure(place: &Place, plan: Plan) -> Result<Row, Error> {
    let (streams, rounds) = if plan.is_quick() { (STREAMS.1, 1) } else { (STREAMS.0, plan.rounds) };
    let admin = place.client().await?;
    place.fill(&admin, streams).await?;
    // The sessions are told from others' by their name.
    let config = Config { application_name: place.schema.as_str().to_owned(), ..place.config() };
    let backend = firehose_pg::connect(&config).await?;
    let engine = Firehose::builder(backend).config(config.clone()).start().await?;
    let _subscriptions = subscribe(&engine, streams).await?;
    let window = config.sweep_interval * SWEEPS;
    // The first sweep of all that has every stream, and what subscribing left to do.
    clock::pause(window + config.sweep_interval).await;
    let mut measured = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let (begin, before) = (clock::now(), Used::read(place, &admin).await?);
        clock::pause(window).await;
        let (seconds, after) = (begin.elapsed().as_secs_f64(), Used::read(place, &admin).await?);
        let share = |after: u64, before: u64| after.saturating_sub(before) as f64 / 1e9 / seconds * 100.0;
        let (client, server) = (share(after.client, before.client), share(after.server, before.server));
        let detail = vec![("client", client), ("server", server), ("streams", streams as f64)];
        measured.push(Round { value: client + server, floor: f64::NAN, detail });
    }
    super::place::end(&engine).await?;
    let what = "of one core: sweeps of idle streams, server and client";
    Ok(Row { row: "P8", what, floor: "", unit: "%", rounds: measured })
}

/// Some at a time, so that no subscribe waits longer than it may.
async fn subscribe(engine: &Firehose, streams: usize) -> Result<Vec<Subscription>, Error> {
    let names: Vec<String> = (1..=streams).map(|n| format!("idle {n}")).collect();
    let mut subscriptions = Vec::with_capacity(streams);
    for some in names.chunks(2_000) {
        subscriptions.extend(try_join_all(some.iter().map(|name| engine.subscribe(name.as_str()))).await?);
    }
    Ok(subscriptions)
}

/// Time on a processor, in nanoseconds.
struct Used {
    client: u64,
    server: u64,
}

impl Used {
    async fn read(place: &Place, admin: &Client) -> Result<Self, Error> {
        let sql = "SELECT pid FROM pg_stat_activity WHERE application_name = $1";
        let name = place.schema.as_str();
        let rows = admin.query(sql, &[&name]).await.map_err(|e| failed("cannot ask for sessions", e))?;
        let mut server = 0;
        for row in rows {
            let pid: i32 = row.try_get(0).map_err(|e| failed("cannot ask for sessions", e))?;
            server += of_process(&pid.to_string())?;
        }
        Ok(Self { client: of_process("self")?, server })
    }
}

/// The time of all threads of a process, by the scheduler's own account.
fn of_process(pid: &str) -> Result<u64, Error> {
    let unreadable =
        |_| wrong("P8 reads the times of processes in /proc: it needs Linux, and the server on this machine");
    let mut sum = 0;
    for task in std::fs::read_dir(Path::new("/proc").join(pid).join("task")).map_err(unreadable)? {
        // One that ended meanwhile used next to nothing.
        let Ok(text) = std::fs::read_to_string(task.map_err(unreadable)?.path().join("schedstat")) else { continue };
        sum += text.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}
