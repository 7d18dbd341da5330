//! `firehose publish`.
//!
//! The order holds, and nothing is stored twice, because a window of lines is one append of one stream: it is stored as
//! a whole or not at all. A window that failed is repeated with the same keys before the next one is sent.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use firehose_core::{Config, Error, Firehose, Message, MessageKey, NewMessage, Outcome, StreamName};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::lines::{Limits, Windows};
use crate::output::{Output, say};
use crate::start::{Pauses, Role, start};

/// How many lines are on their way at a time.
const WINDOW_LINES: usize = 512;

/// How long the end waits until what was stored is announced. Subscribers find the rest themselves.
const FAREWELL: Duration = Duration::from_secs(5);

/// Store a message, or each line of standard input as one. A connection that is lost meanwhile is made again.
#[derive(Args)]
pub(crate) struct Publish {
    /// The stream
    stream: StreamName,
    /// The data of the message
    #[arg(required_unless_present = "stdin", conflicts_with = "stdin", allow_negative_numbers = true)]
    data: Option<String>,
    /// Each line of standard input is a message; the first one that cannot be stored ends it
    #[arg(long)]
    stdin: bool,
    /// Publishing again under the same key stores nothing and gives the first message; line N of standard input has the key KEY:N
    #[arg(long)]
    key: Option<MessageKey>,
}

impl Publish {
    pub(crate) async fn run(&self, config: &Config, json: bool) -> Result<(), Error> {
        let keys = self.keys()?;
        let firehose = start(config, Role::Publisher).await?;
        let mut publishing = Publishing {
            firehose: &firehose,
            stream: &self.stream,
            keys,
            pauses: Pauses::new(),
            output: Output::default(),
            json,
            stored: 0,
            last: None,
        };
        let done = match &self.data {
            Some(data) => publishing.store(vec![data.as_str().into()]).await,
            None => publishing.store_lines(config).await,
        };
        let told = publishing.summary(done.is_ok());
        firehose.shutdown(FAREWELL).await;
        done.and(told)
    }

    fn keys(&self) -> Result<Keys, Error> {
        Ok(match &self.key {
            Some(key) if self.stdin => {
                let longest = Keys::Numbered(key.to_string());
                longest.of(u64::MAX)?;
                longest
            }
            Some(key) => Keys::One(key.clone()),
            None => Keys::Numbered(format!("{:032x}", random())),
        })
    }
}

/// What no other run has.
#[allow(clippy::disallowed_methods, reason = "two runs of the command must not draw the same keys")]
fn random() -> u128 {
    rand::random()
}

/// The keys of the lines: each line has one, so that it can be repeated.
enum Keys {
    One(MessageKey),
    Numbered(String),
}

impl Keys {
    fn of(&self, line: u64) -> Result<MessageKey, Error> {
        match self {
            Self::One(key) => Ok(key.clone()),
            Self::Numbered(base) => MessageKey::new(format!("{base}:{line}")),
        }
    }
}

/// A line of `--json`.
#[derive(Serialize)]
struct Stored<'a> {
    id: i64,
    channel_id: i64,
    sequence: i64,
    stream: &'a str,
}

struct Publishing<'a> {
    firehose: &'a Firehose,
    stream: &'a StreamName,
    keys: Keys,
    pauses: Pauses,
    output: Output,
    json: bool,
    /// How many lines are stored: the first ones.
    stored: u64,
    last: Option<Message>,
}

impl Publishing<'_> {
    async fn store_lines(&mut self, config: &Config) -> Result<(), Error> {
        let most = WINDOW_LINES.min(config.broadcast_batch_max).min(config.max_waiting_broadcasts);
        let limits = Limits { lines: most, line_bytes: config.max_message_bytes };
        let (full, mut windows) = mpsc::channel(1);
        // Reading blocks, so it has a thread of its own, which ends with the process.
        std::thread::spawn(move || {
            for window in Windows::new(std::io::stdin().lock(), limits) {
                if full.blocking_send(window).is_err() {
                    return;
                }
            }
        });
        while let Some(window) = windows.recv().await {
            self.store(window?).await?;
        }
        Ok(())
    }

    /// Stores a window, however often it takes.
    async fn store(&mut self, lines: Vec<Arc<str>>) -> Result<(), Error> {
        let message = |(line, data)| {
            let mut message = NewMessage::new(self.stream, data)?;
            message.key = Some(self.keys.of(line)?);
            Ok(message)
        };
        let messages: Result<Vec<NewMessage>, Error> = (self.stored + 1..).zip(lines).map(message).collect();
        let messages = messages?;
        loop {
            // This runtime has one thread, so the publisher finds all of them waiting when its turn comes.
            let results = self.firehose.broadcast_many(messages.iter().cloned()).await;
            let Some(passing) = results.iter().find_map(|result| result.as_ref().err().filter(|e| passes(e))) else {
                self.pauses.start_over();
                return self.settle(results);
            };
            say(format_args!("{passing}; trying again"));
            self.pauses.pause().await;
        }
    }

    fn settle(&mut self, results: Vec<Result<Message, Error>>) -> Result<(), Error> {
        let (mut text, mut failed) = (String::new(), None);
        for result in results {
            match result {
                Ok(message) => {
                    self.stored += 1;
                    if self.json {
                        let (id, channel_id, sequence) = (message.id.0, message.channel_id.0, message.sequence.0);
                        let stored = Stored { id, channel_id, sequence, stream: message.stream.as_str() };
                        text.push_str(&serde_json::to_string(&stored).unwrap_or_default());
                        text.push('\n');
                    }
                    self.last = Some(message);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        self.output.write(&text)?;
        failed.map_or(Ok(()), Err)
    }

    /// Says what was done.
    fn summary(&mut self, well: bool) -> Result<(), Error> {
        if !well {
            say(format_args!("{} stored before that", count(self.stored)));
        } else if !self.json {
            let last =
                self.last.as_ref().map(|m| format!(", the last one with sequence {} and id {}", m.sequence, m.id));
            return self.output.write(&format!("{} stored{}\n", count(self.stored), last.unwrap_or_default()));
        }
        Ok(())
    }
}

fn count(messages: u64) -> String {
    format!("{messages} message{}", if messages == 1 { "" } else { "s" })
}

/// Whether a repeat may well succeed; with its key it is safe even where the outcome is unknown.
fn passes(error: &Error) -> bool {
    error.is_retryable() || error.outcome() == Outcome::Unknown
}
