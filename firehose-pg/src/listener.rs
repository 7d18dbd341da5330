//! Listening: one connection, and one task that owns it.
//!
//! The task drains the socket whatever its callers do: a command is answered inside it, and what was heard goes into a
//! queue that is bounded and never waited for. Who does not empty it loses the session, and reads from the store.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use firehose_core::{
    ChannelIdentifier, Error, ErrorKind, ListenControl, ListenEvent, ListenEvents, Listener, Result, Session, Step,
};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio_postgres::{AsyncMessage, SimpleQueryMessage};

use crate::deadline::Deadline;
use crate::error::{Cause, Work};
use crate::session::{Dialled, Dialler};

/// How many notifications, and how many bytes of them, a session may leave unread.
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
        let inbox = Arc::<Inbox>::default();
        let (commands, received) = mpsc::channel(16);
        let task = tokio::spawn(drive(dialled, received, inbox.clone())).abort_handle();
        let socket = Arc::new(Socket { task, inbox: inbox.clone() });
        let control = Control { commands, socket: Socket::clone(&socket), timeout: self.timeout };
        Ok(Session { control: Box::new(control), events: Box::new(Events { socket: Socket::clone(&socket) }) })
    }
}

/// What the session's task shares with its two halves.
#[derive(Default)]
struct Inbox {
    unread: Mutex<Unread>,
    arrived: Notify,
}

#[derive(Default)]
struct Unread {
    heard: VecDeque<(ChannelIdentifier, Arc<str>)>,
    bytes: usize,
    lost: Option<Error>,
}

impl Inbox {
    fn unread(&self) -> MutexGuard<'_, Unread> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there was room.
    fn push(&self, channel: ChannelIdentifier, payload: &str) -> bool {
        let mut unread = self.unread();
        if unread.heard.len() >= MOST_UNREAD || unread.bytes + payload.len() > MOST_UNREAD_BYTES {
            return false;
        }
        unread.bytes += payload.len();
        unread.heard.push_back((channel, payload.into()));
        drop(unread);
        self.arrived.notify_one();
        true
    }

    fn lose(&self, error: Error) {
        self.unread().lost.get_or_insert(error);
        self.arrived.notify_one();
    }
}

/// The connection's end: whichever half goes first closes it, since the task owns the socket.
#[derive(Clone)]
struct Socket {
    task: AbortHandle,
    inbox: Arc<Inbox>,
}

impl Socket {
    fn close(&self) {
        self.task.abort();
        self.inbox.lose(Error::new(ErrorKind::ConnectionLost, "listen", "the session was closed"));
    }

    fn lost(&self) -> Option<Error> {
        self.inbox.unread().lost.as_ref().map(Error::replicate)
    }
}

enum Command {
    /// A statement, and who waits for its answer.
    Run { sql: String, reply: oneshot::Sender<Result<Vec<String>, Cause>> },
    /// The end, in good order.
    Close,
}

/// Owns the connection until it ends.
async fn drive(dialled: Dialled, mut commands: mpsc::Receiver<Command>, inbox: Arc<Inbox>) {
    let Dialled { client, mut driver, .. } = dialled;
    let mut client = Some(Arc::new(client));
    let mut running: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
    let end = loop {
        tokio::select! {
            biased;
            // Both are bounded by how many callers there are; neither keeps the socket waiting.
            Some(()) = running.next() => {}
            command = commands.recv(), if client.is_some() => match (command, &client) {
                (Some(Command::Run { sql, reply }), Some(client)) => running.push(Box::pin(run(client.clone(), sql, reply))),
                // Without its client the connection says goodbye and ends.
                _ => client = None,
            },
            message = poll_fn(|cx| driver.poll_message(cx)) => match message {
                Some(Ok(AsyncMessage::Notification(heard))) => {
                    let Ok(channel) = ChannelIdentifier::new(heard.channel()) else { continue };
                    if !inbox.push(channel, heard.payload()) {
                        break Error::new(ErrorKind::ConnectionLost, "listen", "the session did not keep up");
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(e)) => break Cause::from(e).explain("listen", Work::Harmless),
                None => break Error::new(ErrorKind::ConnectionLost, "listen", "the connection was closed"),
            },
        }
    };
    tracing::debug!(error = %end, "listening session ended");
    inbox.lose(end);
}

async fn run(client: Arc<tokio_postgres::Client>, sql: String, reply: oneshot::Sender<Result<Vec<String>, Cause>>) {
    let answer = client.simple_query(&sql).await.map_err(Cause::from).map(|messages| {
        let column = |message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        };
        messages.into_iter().filter_map(column).collect()
    });
    // Who no longer waits does not want it.
    drop(reply.send(answer));
}

struct Control {
    commands: mpsc::Sender<Command>,
    socket: Socket,
    timeout: Duration,
}

impl Control {
    async fn ask(&self, operation: &'static str, step: Step, sql: String) -> Result<Vec<String>> {
        if let Some(lost) = self.socket.lost() {
            return Err(lost);
        }
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.commands.send(Command::Run { sql, reply }).await.ok()?;
            answer.await.ok()
        };
        match Deadline::after(self.timeout).bound(asked).await {
            Some(Some(answer)) => answer.map_err(|cause| cause.explain(operation, Work::Harmless)),
            Some(None) => Err(self
                .socket
                .lost()
                .unwrap_or_else(|| Error::new(ErrorKind::ConnectionLost, operation, "the session was closed"))),
            None => Err(Cause::Late(step).explain(operation, Work::Harmless)),
        }
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
            drop(self.commands.send(Command::Close).await);
            self.commands.closed().await;
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
    socket: Socket,
}

#[async_trait]
impl ListenEvents for Events {
    async fn next(&mut self) -> ListenEvent {
        loop {
            let arrived = self.socket.inbox.arrived.notified();
            {
                let mut unread = self.socket.inbox.unread();
                if let Some((channel, payload)) = unread.heard.pop_front() {
                    unread.bytes -= payload.len();
                    return ListenEvent::Notification { channel, payload };
                }
                if let Some(lost) = &unread.lost {
                    return ListenEvent::Lost(lost.replicate());
                }
            }
            arrived.await;
        }
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
    fn an_inbox_is_bounded_in_messages_and_bytes() {
        let inbox = Inbox::default();
        let channel = ChannelIdentifier::new("a").unwrap();
        let payload = "x".repeat(7_999);
        let mut pushed = 0;
        while inbox.push(channel.clone(), &payload) {
            pushed += 1;
        }
        assert_eq!(pushed, MOST_UNREAD_BYTES / 7_999);
        let inbox = Inbox::default();
        let mut pushed = 0;
        while inbox.push(channel.clone(), "") {
            pushed += 1;
        }
        assert_eq!(pushed, MOST_UNREAD);
    }
}
