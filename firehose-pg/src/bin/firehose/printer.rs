//! What `tail` writes to standard output. A thread writes it, so that a reader who stalls does not hold up the signals.

use std::io::{self, BufWriter, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use firehose_core::{Clock as _, Cursor, Delivery, Error, Message, StreamName, SystemClock, Timestamp, Token};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use crate::output::failed;

/// How many deliveries wait for the thread, and how many it writes before it notes how far it is.
const QUEUE: usize = 64;

/// A delivery, with its stream and the position after it.
pub(crate) type Printed = (StreamName, Delivery, Cursor);

/// How lines look.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Plain,
}

pub(crate) struct Printer {
    pub(crate) queue: mpsc::Sender<Printed>,
    done: oneshot::Receiver<io::Result<()>>,
    /// The positions after what was written.
    written: Arc<Mutex<Token>>,
}

impl Printer {
    /// Begins at `token`.
    pub(crate) fn start(form: Form, token: Token) -> Self {
        let (queue, printed) = mpsc::channel(QUEUE);
        let (ended, done) = oneshot::channel();
        let written = Arc::new(Mutex::new(token.clone()));
        let noted = written.clone();
        // It ends with the queue, or with the process where the reader of standard output has stalled.
        std::thread::spawn(move || {
            let note = |token: &Token| *noted.lock().unwrap_or_else(PoisonError::into_inner) = token.clone();
            // Who does not wait any more does not need the answer.
            let _ = ended.send(print(form, token, printed, note));
        });
        Self { queue, done, written }
    }

    /// Waits until what is queued is written, but not longer than `most`. Gives the token to go on with.
    pub(crate) async fn finish(self, most: Duration) -> (Result<(), Error>, Token) {
        let Self { queue, done, written } = self;
        drop(queue);
        let clock = SystemClock::new();
        let ended = tokio::select! {
            biased;
            ended = done => ended.unwrap_or(Ok(())),
            () = clock.sleep_until(clock.now() + most) => Ok(()),
        };
        let token = written.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match ended {
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => (Err(failed(&e)), token),
            _ => (Ok(()), token),
        }
    }
}

fn print(form: Form, mut token: Token, mut printed: mpsc::Receiver<Printed>, note: impl Fn(&Token)) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut batch = Vec::with_capacity(QUEUE);
    while printed.blocking_recv_many(&mut batch, QUEUE) > 0 {
        for (stream, delivery, cursor) in batch.drain(..) {
            token.set(&stream, cursor);
            if let Some(line) = line(form, &delivery, &token) {
                writeln!(out, "{line}")?;
            }
        }
        out.flush()?;
        note(&token);
    }
    Ok(())
}

#[derive(Serialize)]
struct MessageLine<'a> {
    id: i64,
    channel_id: i64,
    sequence: i64,
    stream: &'a str,
    data: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Timestamp>,
    cursor: String,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum EventLine<'a, Reason> {
    Gap { stream: &'a str, from: i64, to: i64, reason: Reason },
    Reset { stream: &'a str, epoch: i64, head: i64, reason: Reason },
}

/// `token` is the one to go on with after it.
fn line(form: Form, delivery: &Delivery, token: &Token) -> Option<String> {
    match (delivery, form) {
        (Delivery::Message(message), Form::Json) => json(&MessageLine {
            id: message.id.0,
            channel_id: message.channel_id.0,
            sequence: message.sequence.0,
            stream: message.stream.as_str(),
            data: &message.data,
            at: message.created_at,
            cursor: token.to_string(),
        }),
        (Delivery::Message(message), Form::Plain) => Some(plain(message)),
        (Delivery::Gap(gap), Form::Json) => {
            json(&EventLine::Gap { stream: gap.stream.as_str(), from: gap.from.0, to: gap.to.0, reason: gap.reason })
        }
        (Delivery::Gap(gap), Form::Plain) => {
            let (stream, reason) = (one_line(gap.stream.as_str()), word(&gap.reason));
            Some(format!("-- gap: {stream} seq:{}..{} ({reason})", gap.from, gap.to))
        }
        (Delivery::Reset(reset), Form::Json) => json(&EventLine::Reset {
            stream: reset.stream.as_str(),
            epoch: reset.epoch.0,
            head: reset.head.0,
            reason: reset.reason,
        }),
        (Delivery::Reset(reset), Form::Plain) => {
            let (stream, reason) = (one_line(reset.stream.as_str()), word(&reset.reason));
            Some(format!("-- reset: {stream} epoch:{} head:{} ({reason})", reset.epoch, reset.head))
        }
        _ => None,
    }
}

fn json(line: &impl Serialize) -> Option<String> {
    serde_json::to_string(line).ok()
}

/// A reason as JSON has it.
fn word(reason: &impl Serialize) -> String {
    json(reason).unwrap_or_default().trim_matches('"').to_owned()
}

/// `[HH:MM:SS.mmm] #ID STREAM seq:N DATA`, in UTC.
fn plain(message: &Message) -> String {
    let time = match message.created_at {
        Some(Timestamp(us)) => {
            let ms = us.div_euclid(1_000).rem_euclid(86_400_000);
            let (s, ms) = (ms / 1_000, ms % 1_000);
            format!("{:02}:{:02}:{:02}.{ms:03}", s / 3_600, s / 60 % 60, s % 60)
        }
        None => "--:--:--.---".to_owned(),
    };
    let (stream, data) = (one_line(message.stream.as_str()), one_line(&message.data));
    format!("[{time}] #{} {stream} seq:{} {data}", message.id, message.sequence)
}

/// Without what would end the line, or command the terminal.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use firehose_core::{Epoch, GapReason, MessageId, ResetReason, Sequence};

    use super::*;

    fn message(data: &str) -> Message {
        let stream = StreamName::new("a\nb").unwrap();
        Message::new(MessageId(7), Epoch(2), Sequence(5), stream, data.into())
    }

    #[test]
    fn a_message_is_one_line_in_both_forms() {
        let timed = message("\"x\"\r\n\u{1b}[2Jü").with_created_at(Timestamp(86_400_000_000 * 3 + 3_723_004_999));
        assert_eq!(plain(&timed), r#"[01:02:03.004] #7 a\nb seq:5 "x"\r\n\u{1b}[2Jü"#);
        assert_eq!(plain(&message("")), r"[--:--:--.---] #7 a\nb seq:5 ");
        let delivery = Delivery::Message(Arc::new(message("é\n").with_created_at(Timestamp(9))));
        assert_eq!(
            line(Form::Json, &delivery, &Token::new()).unwrap(),
            r#"{"id":7,"channel_id":2,"sequence":5,"stream":"a\nb","data":"é\n","at":9,"cursor":"fAQ"}"#
        );
    }

    #[test]
    fn gaps_and_resets_have_a_type_and_no_id() {
        let gap = EventLine::Gap { stream: "a", from: 1, to: 9, reason: GapReason::Trimmed };
        assert_eq!(json(&gap).unwrap(), r#"{"type":"gap","stream":"a","from":1,"to":9,"reason":"trimmed"}"#);
        let reset = EventLine::Reset { stream: "a", epoch: 4, head: 3, reason: ResetReason::WentBack };
        assert_eq!(json(&reset).unwrap(), r#"{"type":"reset","stream":"a","epoch":4,"head":3,"reason":"went_back"}"#);
    }
}
