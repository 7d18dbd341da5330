//! `firehose bench`: figures that count, each a ratio against a floor or a rival of the same run.
//!
//! In reading order: `place` (a schema of its own), `rounds` (ours and the other in turn), `report`, then a file a row
//! with its floor beside it. `statements` has what floors send, `receiver` the other process, `clock` the time.

mod clock;
mod p1;
mod p3;
mod p4;
mod p8;
mod place;
mod receiver;
mod report;
mod rounds;
mod statements;

use std::pin::pin;

use clap::{Args, ValueEnum};
use firehose_core::{Config, Error, ErrorKind};
use tokio::signal::unix::{SignalKind, signal};

use place::Place;
use receiver::Receive;
use report::{Report, Row};
use rounds::Plan;

pub(crate) const OPERATION: &str = "bench";

/// What stands in the database is not touched: the tables are in a schema of their own, which goes at the end.
#[derive(Args)]
pub(crate) struct Bench {
    /// What to measure
    #[arg(value_name = "ROW", required_unless_present = "receive", ignore_case = true)]
    rows: Vec<Name>,
    /// Short rounds, and few: to see that it runs, not to quote
    #[arg(long)]
    quick: bool,
    /// Receive messages in this process, for another one that measures
    #[arg(long, hide = true, requires_all = ["schema", "channel"])]
    receive: Option<Receive>,
    #[arg(long, hide = true)]
    schema: Option<String>,
    /// The stream of our own, or the raw channel
    #[arg(long, hide = true)]
    channel: Option<String>,
}

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// All of them
    All,
    /// Durable broadcasts a second, 256 callers on one stream; beside a transaction a message
    P1,
    /// What one caller waits for a broadcast; beside the bare statement
    P3,
    /// From broadcast to receipt in another process, 500 a second; beside insert, notify and receive by hand
    P4,
    /// What sweeping 50,000 idle streams takes of one core, on a server of this machine
    P8,
}

impl Name {
    const ROWS: [Self; 4] = [Self::P1, Self::P3, Self::P4, Self::P8];
}

impl Bench {
    /// Runs on a runtime of its own with a thread a core, as an application's would be.
    pub(crate) fn run(&self, config: &Config, json: bool) -> Result<(), Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|e| failed("start", e))?;
        match (self.receive, &self.schema, &self.channel) {
            (Some(receive), Some(schema), Some(channel)) => runtime.block_on(receive.run(config, schema, channel)),
            _ => runtime.block_on(self.measure(config, json)),
        }
    }

    async fn measure(&self, config: &Config, json: bool) -> Result<(), Error> {
        let rows: Vec<Name> = match self.rows.contains(&Name::All) {
            true => Name::ROWS.to_vec(),
            false => Name::ROWS.into_iter().filter(|name| self.rows.contains(name)).collect(),
        };
        let plan = if self.quick { Plan::QUICK } else { Plan::FULL };
        let place = Place::make(config).await?;
        // In a task, so that the schema goes even if one of them panics.
        let measured = tokio::spawn(all(place.clone(), rows, plan));
        let stop = measured.abort_handle();
        let mut measured = pin!(measured);
        let ended = tokio::select! {
            ended = &mut measured => ended,
            stopped = signalled() => {
                stopped?;
                stop.abort();
                measured.await
            }
        };
        let removed = place.remove().await;
        let report = ended.map_err(|e| failed("the measurement did not end", e))??;
        removed?;
        report.print(json);
        Ok(())
    }
}

async fn all(place: Place, rows: Vec<Name>, plan: Plan) -> Result<Report, Error> {
    let mut report = Report::new(&place).await?;
    for name in rows {
        eprintln!("firehose: measuring {name:?}");
        let row: Row = match name {
            Name::P1 => p1::measure(&place, plan).await?,
            Name::P3 => p3::measure(&place, plan).await?,
            Name::P4 => p4::measure(&place, plan).await?,
            Name::P8 => p8::measure(&place, plan).await?,
            Name::All => continue,
        };
        report.rows.push(row);
    }
    Ok(report)
}

/// Until someone wants this to end.
async fn signalled() -> Result<(), Error> {
    let kind = |kind| signal(kind).map_err(|e| failed("cannot wait for signals", e));
    let (mut interrupt, mut terminate) = (kind(SignalKind::interrupt())?, kind(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// An error of a benchmark's own part.
pub(crate) fn failed(what: &str, cause: impl std::error::Error + Send + Sync + 'static) -> Error {
    let message = match cause.source() {
        Some(source) => format!("{what}: {cause}: {source}"),
        None => format!("{what}: {cause}"),
    };
    Error::new(ErrorKind::Backend, OPERATION, message).with_source(cause)
}

/// An error without a cause.
pub(crate) fn wrong(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Backend, OPERATION, what)
}
