//! `firehose tail`.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use firehose_core::{Config, Delivery, Error, ErrorKind, Firehose, MessageId, Start, StreamName, Subscriptions, Token};

use crate::output::say;
use crate::printer::{Form, Printer};
use crate::signals::Signals;
use crate::start::{Pauses, Role, start};

/// How long the end waits for a reader of standard output, and then for the engine.
const FAREWELL: Duration = Duration::from_secs(2);

/// Print what is published. At its end it says on standard error how to go on.
#[derive(Args)]
pub(crate) struct Tail {
    /// The streams
    #[arg(required = true, value_name = "STREAM")]
    streams: Vec<StreamName>,
    /// Where to begin: now, earliest, or a token that tail gave; with one stream also the id of a message, to begin after it
    #[arg(long, value_name = "now|earliest|TOKEN", default_value = "now")]
    from: Beginning,
}

/// Where to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Beginning {
    Now,
    Earliest,
    AfterId(MessageId),
    /// A stream that is not in it begins now.
    Token(Token),
}

impl FromStr for Beginning {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "now" => return Ok(Self::Now),
            "earliest" => return Ok(Self::Earliest),
            _ => {}
        }
        if let Ok(id) = text.parse::<i64>() {
            return match id {
                0.. => Ok(Self::AfterId(MessageId(id))),
                _ => Err(Error::new(ErrorKind::InvalidCursor, "message id", "must not be negative")),
            };
        }
        text.parse().map(Self::Token)
    }
}

impl Beginning {
    fn of(&self, stream: &StreamName) -> Start {
        match self {
            Self::Now => Start::Now,
            Self::Earliest => Start::Earliest,
            Self::AfterId(id) => Start::AfterId(*id),
            Self::Token(token) => match token.get(stream) {
                Some(cursor) => Start::After(cursor),
                None => {
                    say(format_args!("the token has no position in {stream:?}: it begins now"));
                    Start::Now
                }
            },
        }
    }
}

impl Tail {
    pub(crate) async fn run(&self, config: &Config, json: bool) -> Result<(), Error> {
        if matches!(self.from, Beginning::AfterId(_)) && self.streams.iter().any(|stream| *stream != self.streams[0]) {
            let message = "a message id is a position in one stream only";
            return Err(Error::new(ErrorKind::InvalidCursor, "tail", message).with_hint("use a token"));
        }
        let mut signals = Signals::new()?;
        let (firehose, mut set) = tokio::select! {
            biased;
            () = signals.next() => return Ok(()),
            opened = self.open(config) => opened?,
        };
        say(format_args!("listening to {} stream{}", set.len(), if set.len() == 1 { "" } else { "s" }));
        let printer = Printer::start(if json { Form::Json } else { Form::Plain }, set.token());
        let ended = tokio::select! {
            biased;
            () = signals.next() => Ok(()),
            ended = forward(&mut set, &printer) => ended,
        };
        let (written, token) = printer.finish(FAREWELL).await;
        firehose.shutdown(FAREWELL).await;
        say(format_args!("to go on from here: --from {token}"));
        ended.and(written)
    }

    async fn open(&self, config: &Config) -> Result<(Firehose, Subscriptions), Error> {
        let firehose = start(config, Role::Subscriber).await?;
        let mut set = firehose.subscriptions();
        let mut pauses = Pauses::new();
        for stream in &self.streams {
            if set.cursor(stream).is_some() {
                continue;
            }
            let from = self.from.of(stream);
            while let Err(error) = set.add(stream, from).await {
                if !error.is_retryable() {
                    return Err(error);
                }
                say(format_args!("{error}; trying again"));
                pauses.pause().await;
            }
        }
        Ok((firehose, set))
    }
}

/// Hands everything to the printer, until it writes no more.
async fn forward(set: &mut Subscriptions, printer: &Printer) -> Result<(), Error> {
    loop {
        // A place first: what was taken from the set and found none would be lost.
        let Ok(place) = printer.queue.reserve().await else { return Ok(()) };
        let next = tokio::select! {
            biased;
            () = printer.queue.closed() => return Ok(()),
            next = set.next() => next,
        };
        match next {
            Some((_, Delivery::Closed(_))) | None => {
                return Err(Error::new(ErrorKind::Backend, "tail", "the engine ended"));
            }
            Some((stream, delivery)) => {
                if let Some(cursor) = set.cursor(&stream) {
                    place.send((stream, delivery, cursor));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_are_told_apart() {
        let parse = |text: &str| text.parse::<Beginning>();
        assert_eq!(parse("now").unwrap(), Beginning::Now);
        assert_eq!(parse("earliest").unwrap(), Beginning::Earliest);
        assert_eq!(parse("0").unwrap(), Beginning::AfterId(MessageId(0)));
        assert_eq!(parse("9223372036854775807").unwrap(), Beginning::AfterId(MessageId(i64::MAX)));
        assert_eq!(parse("fAQ").unwrap(), Beginning::Token(Token::new()));
        for bad in ["", "-1", "yesterday", "f", "fAg", "9223372036854775808", "1.2.3.4"] {
            assert_eq!(parse(bad).unwrap_err().kind(), ErrorKind::InvalidCursor, "{bad}");
        }
    }
}
