//! P4: from broadcast to receipt in another process, 500 a second.

use std::sync::Arc;
use std::time::Duration;

use firehose_core::Error;
use tokio::task::JoinSet;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use super::place::{self, Place};
use super::receiver::{Kind, Receive, Receiver, payload};
use super::report::Row;
use super::rounds::{Contest, Measured, Plan, alternate};
use super::{clock, failed, statements, wrong};

const STREAM: &str = "bench";
const CHANNEL: &str = "firehose_bench";
/// 500 a second.
const PERIOD: Duration = Duration::from_millis(2);

struct P4<'a> {
    place: &'a Place,
    plan: Plan,
    admin: Client,
}

pub(crate) async fn measure(place: &Place, plan: Plan) -> Result<Row, Error> {
    let rounds = alternate(plan, &P4 { place, plan, admin: place.client().await? }).await?;
    let what = "p50 from broadcast to receipt in another process, 500/s";
    Ok(Row { row: "P4", what, floor: "insert, pg_notify, raw receive", unit: "ms", rounds })
}

impl Contest for P4<'_> {
    /// The least that does the same: append, then notify on a second connection.
    async fn floor(&self) -> Result<Measured, Error> {
        self.place.fresh(&self.admin, STREAM).await?;
        let append = Prepared::new(self.place, &statements::least(&self.place.schema)).await?;
        let notify = Prepared::new(self.place, statements::NOTIFY).await?;
        let send = move |kind| {
            let (append, notify) = (append.clone(), notify.clone());
            async move {
                let data = payload(kind);
                append.run(&[&STREAM, &data]).await?;
                notify.run(&[&CHANNEL, &data]).await
            }
        };
        let receiver = Receiver::start(self.place, Receive::Raw, CHANNEL).await?;
        Ok(Measured::latency(steadily(self.plan, send, receiver).await?, "floor_p99"))
    }

    async fn ours(&self) -> Result<Measured, Error> {
        self.place.fresh(&self.admin, STREAM).await?;
        let engine = self.place.engine().await?;
        let sender = engine.clone();
        let send = move |kind| {
            let engine = sender.clone();
            async move { engine.broadcast(STREAM, payload(kind)).await.map(drop) }
        };
        let receiver = Receiver::start(self.place, Receive::Ours, STREAM).await?;
        let latencies = steadily(self.plan, send, receiver).await?;
        place::end(&engine).await?;
        Ok(Measured::latency(latencies, "p99"))
    }
}

/// A statement on a connection of its own.
#[derive(Clone)]
struct Prepared(Arc<(Client, Statement)>);

impl Prepared {
    async fn new(place: &Place, sql: &str) -> Result<Self, Error> {
        let client = place.client().await?;
        let statement = client.prepare(sql).await.map_err(|e| failed("cannot prepare", e))?;
        Ok(Self(Arc::new((client, statement))))
    }

    async fn run(&self, parameters: &[&(dyn ToSql + Sync)]) -> Result<(), Error> {
        let (client, statement) = &*self.0;
        client.query_one(statement, parameters).await.map(drop).map_err(|e| failed("cannot send", e))
    }
}

/// Sends at a steady rate, whether or not the one before is done, and gives what the receiver measured.
async fn steadily<F>(plan: Plan, send: impl Fn(Kind) -> F + Send, receiver: Receiver) -> Result<Vec<u64>, Error>
where
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    let (mut ticks, mut sending, mut counted) = (clock::every(PERIOD), JoinSet::new(), 0);
    let begin = clock::now();
    while begin.elapsed() < plan.warm_up + plan.length {
        ticks.tick().await;
        let kind = if begin.elapsed() < plan.warm_up { Kind::WarmUp } else { Kind::Counted };
        counted += usize::from(kind == Kind::Counted);
        sending.spawn(send(kind));
        while let Some(sent) = sending.try_join_next() {
            sent.map_err(|e| failed("a sender did not end", e))??;
        }
    }
    while let Some(sent) = sending.join_next().await {
        sent.map_err(|e| failed("a sender did not end", e))??;
    }
    send(Kind::End).await?;
    let latencies = receiver.end().await?;
    match latencies.len() {
        received if received == counted => Ok(latencies),
        received => Err(wrong(format!("{counted} messages were sent, and {received} received"))),
    }
}
