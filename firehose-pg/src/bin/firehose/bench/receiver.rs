//! The other process: receives, and measures by the clock that all processes of the machine share.

use std::future::poll_fn;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use firehose_core::{Config, Delivery, Error};
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, NoTls};

use super::place::Place;
use super::{clock, failed, wrong};

/// How long it may take to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the other process prints when it listens.
const READY: &str = "ready";

const PAYLOAD: usize = 100;

/// How to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Receive {
    /// By a subscription
    Ours,
    /// By LISTEN on a bare connection
    Raw,
}

/// What a message is sent for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    WarmUp,
    Counted,
    End,
}

/// 100 bytes, with the time of now in front.
pub(crate) fn payload(kind: Kind) -> String {
    let letter = match kind {
        Kind::WarmUp => 'w',
        Kind::Counted => 'c',
        Kind::End => 'e',
    };
    format!("{:x<PAYLOAD$}", format!("{letter}{:020}", clock::wall()))
}

/// What the receiver keeps.
#[derive(Debug, Default)]
struct Latencies(Vec<u64>);

impl Latencies {
    /// Takes a payload in; gives whether it was the last.
    fn take(&mut self, payload: &str) -> bool {
        let now = clock::wall();
        if let Some(sent) = payload.strip_prefix('c').and_then(|rest| rest.get(..20)?.parse::<u64>().ok()) {
            self.0.push(now.saturating_sub(sent));
        }
        payload.starts_with('e')
    }
}

impl Receive {
    /// What the other process does: prints that it listens, and in the end one line of numbers.
    pub(crate) async fn run(self, config: &Config, schema: &str, channel: &str) -> Result<(), Error> {
        let (place, channel) = (Place::at(config, schema)?, channel.to_owned());
        // In a task: the thread that blocks on the runtime is woken later than those of the runtime.
        let receiving = tokio::spawn(async move {
            match self {
                Self::Ours => ours(&place, &channel).await,
                Self::Raw => raw(&place, &channel).await,
            }
        });
        let latencies = receiving.await.map_err(|e| failed("the receiver did not end", e))??;
        let numbers: Vec<String> = latencies.0.iter().map(u64::to_string).collect();
        println!("{}", numbers.join(" "));
        Ok(())
    }
}

async fn ours(place: &Place, stream: &str) -> Result<Latencies, Error> {
    let engine = place.engine().await?;
    let mut subscription = engine.subscribe(stream).await?;
    println!("{READY}");
    let mut latencies = Latencies::default();
    loop {
        match subscription.next().await {
            Some(Delivery::Message(message)) if latencies.take(&message.data) => return Ok(latencies),
            Some(Delivery::Message(_)) => {}
            other => return Err(wrong(format!("the subscription gave {other:?}"))),
        }
    }
}

async fn raw(place: &Place, channel: &str) -> Result<Latencies, Error> {
    let (client, mut connection) = place.options()?.connect(NoTls).await.map_err(|e| failed("cannot connect", e))?;
    let listen = async {
        client.batch_execute(&format!("LISTEN {channel}")).await.map_err(|e| failed("cannot listen", e))?;
        println!("{READY}");
        Ok(())
    };
    let receive = async {
        let mut latencies = Latencies::default();
        while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(n) = message.map_err(|e| failed("cannot receive", e))?
                && latencies.take(n.payload())
            {
                return Ok(latencies);
            }
        }
        Err(wrong("the connection was closed"))
    };
    let ((), latencies) = tokio::try_join!(listen, receive)?;
    Ok(latencies)
}

/// That process, seen from the one that measures. It is ended with this.
pub(crate) struct Receiver {
    child: Child,
    lines: mpsc::UnboundedReceiver<std::io::Result<String>>,
}

impl Receiver {
    /// Starts it, and waits until it listens.
    pub(crate) async fn start(place: &Place, receive: Receive, channel: &str) -> Result<Self, Error> {
        let program = std::env::current_exe().map_err(|e| failed("cannot find this program", e))?;
        let how = receive.to_possible_value().ok_or_else(|| wrong("no such receiver"))?;
        let child = Command::new(program)
            .args(["bench", "--receive", how.get_name(), "--schema", place.schema.as_str(), "--channel", channel])
            .env("FIREHOSE_DATABASE_URL", place.url().expose())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|e| failed("cannot start the receiver", e))?;
        let output = child.stdout.take().ok_or_else(|| wrong("the receiver has no output"))?;
        let (line, lines) = mpsc::unbounded_channel();
        // It ends with the process.
        std::thread::spawn(move || BufReader::new(output).lines().try_for_each(|read| line.send(read)));
        let mut receiver = Self { child, lines };
        match receiver.line().await? {
            line if line == READY => Ok(receiver),
            line => Err(wrong(format!("the receiver said {line:?}"))),
        }
    }

    /// What it measured, in nanoseconds. The last message is on its way.
    pub(crate) async fn end(mut self) -> Result<Vec<u64>, Error> {
        let line = self.line().await?;
        let numbers = line.split_ascii_whitespace().map(str::parse);
        numbers.collect::<Result<_, _>>().map_err(|e| failed("the receiver said something else", e))
    }

    async fn line(&mut self) -> Result<String, Error> {
        match clock::within(PATIENCE, self.lines.recv()).await {
            Some(Some(line)) => line.map_err(|e| failed("cannot hear the receiver", e)),
            Some(None) => Err(wrong("the receiver ended early")),
            None => Err(wrong("the receiver is silent")),
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
