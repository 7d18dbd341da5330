//! Listening: one connection, which whoever waits on it drives.
//!
//! Who waits for an event reads the socket himself, so that nothing stands between the two. Who waits for the answer to a
//! command drives it too, and keeps what he hears meanwhile for the other, so a LISTEN never interrupts the wait and needs
//! nobody who waits.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use async_trait::async_trait;
use firehose_core::{
    ChannelIdentifier, Error, ErrorKind, ListenControl, ListenEvent, ListenEvents, Listener, Result, Session, Step,
};
use futures_util::task::AtomicWaker;
use tokio_postgres::{AsyncMessage, Client, SimpleQueryMessage};

use crate::deadline::Deadline;
use crate::error::{Cause, Work};
use crate::session::{Dialled, Dialler, Driver, drive};

/// How many notifications, and how many bytes of them, are kept while only commands read the socket.
const MOST_UNREAD: usize = 65_536;
const MOST_UNREAD_BYTES: usize = 64 << 20;

/// How many LISTENs go into one round trip.
const LISTENS: usize = 1_000;

/// How long a session may take to end in good order.
const GOODBYE: Duration = Duration::from_secs(1);

/// A [`Listener`] over PostgreSQL's LISTEN.
#[derive(Debug)]
pub struct PgListener {
    dialler: Arc<Dialler>,
    timeout: Duration,
}

impl PgListener {
    pub(crate) fn new(dialler: Arc<Dialler>, timeout: Duration) -> Self {
        Self { dialler, timeout }
    }
}

#[async_trait]
impl Listener for PgListener {
    async fn connect(&self) -> Result<Session> {
        let dialled = self.dialler.dial().await.map_err(|cause| cause.explain("connect", Work::Harmless))?;
        let socket = Arc::new(Socket::new(dialled));
        let turn = tokio::sync::Mutex::new(());
        let control = Control { socket: socket.clone(), turn, timeout: self.timeout };
        Ok(Session { control: Box::new(control), events: Box::new(Events { socket }) })
    }
}

/// Who waits on the connection: both are woken by whatever happens to it.
#[derive(Default)]
struct Waiting {
    events: AtomicWaker,
    control: AtomicWaker,
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.events.wake();
        self.control.wake();
    }
}

/// The connection, in the hands of two.
struct Socket {
    line: Mutex<Line>,
    waiting: Arc<Waiting>,
    /// Wakes both.
    waker: Waker,
}

struct Line {
    /// Without it the connection says goodbye and ends.
    client: Option<Arc<Client>>,
    /// `None` once it is closed.
    driver: Option<Driver>,
    unread: Unread,
    lost: Option<Error>,
}

/// What was heard while a command was waited for.
#[derive(Default)]
struct Unread {
    heard: VecDeque<(ChannelIdentifier, Arc<str>)>,
    bytes: usize,
}

impl Unread {
    /// Whether there was room.
    fn push(&mut self, channel: ChannelIdentifier, payload: Arc<str>) -> bool {
        if self.heard.len() >= MOST_UNREAD || self.bytes + payload.len() > MOST_UNREAD_BYTES {
            return false;
        }
        self.bytes += payload.len();
        self.heard.push_back((channel, payload));
        true
    }

    fn pop(&mut self) -> Option<(ChannelIdentifier, Arc<str>)> {
        let (channel, payload) = self.heard.pop_front()?;
        self.bytes -= payload.len();
        Some((channel, payload))
    }
}

impl Line {
    /// The next notification that the socket has; none is left unread before the connection's end.
    fn poll_heard(&mut self, cx: &mut Context<'_>) -> Poll<Option<(ChannelIdentifier, Arc<str>)>> {
        while let Some(driver) = &mut self.driver {
            let end = match driver.poll_message(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(AsyncMessage::Notification(heard)))) => {
                    let Ok(channel) = ChannelIdentifier::new(heard.channel()) else { continue };
                    return Poll::Ready(Some((channel, heard.payload().into())));
                }
                Poll::Ready(Some(Ok(_))) => continue,
                Poll::Ready(Some(Err(e))) => Cause::from(e).explain("listen", Work::Harmless),
                Poll::Ready(None) => Error::new(ErrorKind::ConnectionLost, "listen", "the connection was closed"),
            };
            self.close(end);
        }
        Poll::Ready(None)
    }

    fn close(&mut self, why: Error) {
        self.client = None;
        self.driver = None;
        if self.lost.is_none() {
            tracing::debug!(error = %why, "listening session ended");
            self.lost = Some(why);
        }
    }

    fn lost(&self, operation: &'static str) -> Error {
        match &self.lost {
            Some(lost) => lost.replicate(),
            None => Error::new(ErrorKind::ConnectionLost, operation, "the session was closed"),
        }
    }
}

impl Socket {
    fn new(dialled: Dialled) -> Self {
        let Dialled { client, driver, .. } = dialled;
        let line = Line { client: Some(Arc::new(client)), driver: Some(driver), unread: Unread::default(), lost: None };
        let waiting = Arc::<Waiting>::default();
        Self { line: Mutex::new(line), waker: waiting.clone().into(), waiting }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll_event(&self, cx: &Context<'_>) -> Poll<ListenEvent> {
        self.waiting.events.register(cx.waker());
        let mut line = self.line();
        let heard = match line.unread.pop() {
            Some(heard) => Some(heard),
            None => std::task::ready!(line.poll_heard(&mut Context::from_waker(&self.waker))),
        };
        Poll::Ready(match heard {
            Some((channel, payload)) => ListenEvent::Notification { channel, payload },
            None => ListenEvent::Lost(line.lost("listen")),
        })
    }

    /// Drives the connection for who waits for an answer. Gives the error that ended it, where it ended.
    fn drain(&self, cx: &Context<'_>) -> Option<Error> {
        self.waiting.control.register(cx.waker());
        let mut line = self.line();
        let mut heard_any = false;
        let ended = loop {
            match line.poll_heard(&mut Context::from_waker(&self.waker)) {
                Poll::Pending => break None,
                Poll::Ready(None) => break Some(line.lost("listen")),
                Poll::Ready(Some((channel, payload))) => {
                    heard_any = true;
                    if !line.unread.push(channel, payload) {
                        line.close(Error::new(ErrorKind::ConnectionLost, "listen", "the session did not keep up"));
                    }
                }
            }
        };
        drop(line);
        if heard_any || ended.is_some() {
            self.waiting.events.wake();
        }
        ended
    }

    /// Whichever half goes first closes it.
    fn close(&self) {
        self.line().close(Error::new(ErrorKind::ConnectionLost, "listen", "the session was closed"));
        self.waker.wake_by_ref();
    }
}

struct Control {
    socket: Arc<Socket>,
    /// One command at a time: the server takes them so too.
    turn: tokio::sync::Mutex<()>,
    timeout: Duration,
}

impl Control {
    async fn ask(&self, operation: &'static str, step: Step, sql: String) -> Result<Vec<String>> {
        let asked = async {
            let _turn = self.turn.lock().await;
            let client = {
                let line = self.socket.line();
                line.client.clone().ok_or_else(|| line.lost(operation))?
            };
            let answer = drive(client.simple_query(&sql), |cx| self.socket.drain(cx)).await?;
            answer.map_err(|e| Cause::from(e).explain(operation, Work::Harmless))
        };
        let answer = match Deadline::after(self.timeout).bound(asked).await {
            Some(answer) => answer?,
            None => return Err(Cause::Late(step).explain(operation, Work::Harmless)),
        };
        let column = |message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        };
        Ok(answer.into_iter().filter_map(column).collect())
    }

    async fn change(&self, step: Step, word: &'static str, channels: &[ChannelIdentifier]) -> Result<()> {
        let operation = if step == Step::Listen { "listen" } else { "unlisten" };
        for some in channels.chunks(LISTENS) {
            let mut sql = String::with_capacity(some.len() * 80);
            for channel in some {
                sql.push_str(word);
                sql.push_str(&quoted(channel));
                sql.push(';');
            }
            self.ask(operation, step, sql).await?;
        }
        Ok(())
    }
}

/// The channel as an identifier in a statement.
fn quoted(channel: &ChannelIdentifier) -> String {
    format!("\"{}\"", channel.as_str().replace('"', "\"\""))
}

#[async_trait]
impl ListenControl for Control {
    async fn listen(&self, channels: &[ChannelIdentifier]) -> Result<()> {
        self.change(Step::Listen, "LISTEN ", channels).await
    }

    async fn unlisten(&self, channels: &[ChannelIdentifier]) -> Result<()> {
        self.change(Step::Unlisten, "UNLISTEN ", channels).await
    }

    async fn registered(&self) -> Result<Option<Vec<ChannelIdentifier>>> {
        let sql = "SELECT pg_catalog.pg_listening_channels()".to_owned();
        let names = self.ask("registered", Step::Listen, sql).await?;
        Ok(Some(names.iter().filter_map(|name| ChannelIdentifier::new(name).ok()).collect()))
    }

    async fn ping(&self) -> Result<()> {
        self.ask("ping", Step::Listen, "SELECT 1".to_owned()).await.map(drop)
    }

    async fn close(&self) {
        let ended = async {
            let _turn = self.turn.lock().await;
            self.socket.line().client = None;
            poll_fn(|cx| self.socket.drain(cx).map_or(Poll::Pending, Poll::Ready)).await;
        };
        // In good order or not, it ends now.
        Deadline::after(GOODBYE).bound(ended).await.unwrap_or_default();
        self.socket.close();
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.socket.close();
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgListenControl").finish_non_exhaustive()
    }
}

struct Events {
    socket: Arc<Socket>,
}

#[async_trait]
impl ListenEvents for Events {
    async fn next(&mut self) -> ListenEvent {
        poll_fn(|cx| self.socket.poll_event(cx)).await
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.socket.close();
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgListenEvents").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c42_a_channel_cannot_break_out_of_its_quotes() {
        let evil = ChannelIdentifier::new("a\"; DROP TABLE x; --").unwrap();
        assert_eq!(quoted(&evil), "\"a\"\"; DROP TABLE x; --\"");
    }

    #[test]
    fn what_is_unread_is_bounded_in_messages_and_bytes() {
        let mut unread = Unread::default();
        let channel = ChannelIdentifier::new("a").unwrap();
        let payload: Arc<str> = "x".repeat(7_999).into();
        let mut pushed = 0;
        while unread.push(channel.clone(), payload.clone()) {
            pushed += 1;
        }
        assert_eq!(pushed, MOST_UNREAD_BYTES / 7_999);
        let mut unread = Unread::default();
        let mut pushed = 0;
        while unread.push(channel.clone(), "".into()) {
            pushed += 1;
        }
        assert_eq!(pushed, MOST_UNREAD);
    }
}
