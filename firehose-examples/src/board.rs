//! A transport of one's own: a notice board, which is a file that processes of one machine write to and look at.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use firehose_core::{ChannelIdentifier, Clock, Error, ErrorKind, SystemClock, Timestamp};
use firehose_core::{ListenControl, ListenEvent, ListenEvents, Listener, Notification, Notifier, Result, Session};
use tokio_util::sync::CancellationToken;

/// How often a session looks, and how large the board grows before it begins anew.
const LOOK: Duration = Duration::from_millis(5);
const MOST_BYTES: u64 = 8 << 20;

/// [`Notifier`] and [`Listener`] over a file: eight bytes that tell this life of it from others, then lines of JSON. It
/// brings to several processes what one has with [`InProcess`](firehose_core::InProcess): a message within milliseconds.
#[derive(Debug, Clone)]
pub struct Board(pub PathBuf);

/// A life of the board, and a place in it.
type Mark = ([u8; 8], u64);

impl Board {
    fn open(&self) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.0)
    }

    fn write(&self, lines: &[u8]) -> io::Result<()> {
        let mut file = self.open()?;
        file.lock()?;
        if !(8..MOST_BYTES).contains(&file.seek(SeekFrom::End(0))?) {
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(&Timestamp::from_system_time(SystemClock::new().wall()).0.to_le_bytes())?;
        }
        file.write_all(lines)
    }

    /// What stands behind a mark, each with its place, and where the board ends.
    fn read(&self, since: Option<Mark>) -> io::Result<(VecDeque<(u64, Notification)>, Mark)> {
        let (mut file, mut life, mut text) = (self.open()?, [0; 8], String::new());
        file.lock_shared()?;
        file.read_exact(&mut life)?;
        let end = file.seek(SeekFrom::End(0))?;
        let Some((same, mut at)) = since else { return Ok((VecDeque::new(), (life, end))) };
        if life != same {
            return Err(io::Error::other("the board began anew"));
        }
        file.seek(SeekFrom::Start(at))?;
        file.read_to_string(&mut text)?;
        let lines = text.split_inclusive('\n').filter_map(|line| {
            at += line.len() as u64;
            // A line is cut short where its writer died; nobody was told that it was sent.
            let (channel, payload) = serde_json::from_str::<(ChannelIdentifier, String)>(line).ok()?;
            Some((at, Notification::new(channel, payload)))
        });
        Ok((lines.collect(), (life, end)))
    }

    /// Where the wait for the file's lock holds up nobody.
    async fn with<T: Send + 'static>(&self, f: impl FnOnce(&Self) -> io::Result<T> + Send + 'static) -> Result<T> {
        let board = self.clone();
        let done = tokio::task::spawn_blocking(move || f(&board)).await.map_err(io::Error::other).flatten();
        done.map_err(|e| Error::new(ErrorKind::ConnectionLost, "board", e.to_string()))
    }
}

#[async_trait]
impl Notifier for Board {
    async fn notify(&self, notifications: &[Notification]) -> Result<()> {
        if notifications.iter().any(|n| n.payload.len() > self.max_payload_bytes()) {
            return Err(Error::new(ErrorKind::TooLarge, "notify", "a payload is too long"));
        }
        let line = |n: &Notification| format!("\n{}\n", serde_json::json!([n.channel, &*n.payload]));
        let lines: String = notifications.iter().map(line).collect();
        self.with(move |board| board.write(lines.as_bytes())).await
    }
    fn max_payload_bytes(&self) -> usize {
        60_000
    }
}

#[async_trait]
impl Listener for Board {
    async fn connect(&self) -> Result<Session> {
        let (_, begun) = self.with(|board| board.write(b"").and_then(|()| board.read(None))).await?;
        let half = Half { board: self.clone(), begun, listening: Arc::default(), over: CancellationToken::new() };
        let events = Events { half: half.clone(), seen: begun, waiting: VecDeque::new() };
        Ok(Session { control: Box::new(half), events: Box::new(events) })
    }
}

/// What each half of a session has; the first that is dropped ends it. A channel stands with the end that the board had.
#[derive(Debug, Clone)]
struct Half {
    board: Board,
    begun: Mark,
    listening: Arc<Mutex<HashMap<ChannelIdentifier, u64>>>,
    over: CancellationToken,
}

impl Drop for Half {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

fn over() -> Error {
    Error::new(ErrorKind::ConnectionLost, "board", "the session is over")
}

impl Half {
    fn listening(&self) -> MutexGuard<'_, HashMap<ChannelIdentifier, u64>> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the board ends, if the session goes on.
    async fn end(&self) -> Result<u64> {
        let (_, (life, end)) = self.board.with(|board| board.read(None)).await?;
        (life == self.begun.0 && !self.over.is_cancelled()).then_some(end).ok_or_else(over)
    }
}

#[async_trait]
impl ListenControl for Half {
    async fn listen(&self, channels: &[ChannelIdentifier]) -> Result<()> {
        let (end, mut listening) = (self.end().await?, self.listening());
        for channel in channels {
            listening.entry(channel.clone()).or_insert(end);
        }
        Ok(())
    }
    async fn unlisten(&self, channels: &[ChannelIdentifier]) -> Result<()> {
        self.end().await?;
        let mut listening = self.listening();
        channels.iter().for_each(|channel| _ = listening.remove(channel));
        Ok(())
    }
    async fn registered(&self) -> Result<Option<Vec<ChannelIdentifier>>> {
        self.end().await.map(|_| Some(self.listening().keys().cloned().collect()))
    }
    async fn ping(&self) -> Result<()> {
        self.end().await.map(drop)
    }
    async fn close(&self) {
        self.over.cancel();
    }
}

#[derive(Debug)]
struct Events {
    half: Half,
    seen: Mark,
    waiting: VecDeque<(u64, Notification)>,
}

#[async_trait]
impl ListenEvents for Events {
    async fn next(&mut self) -> ListenEvent {
        let clock = SystemClock::new();
        while !self.half.over.is_cancelled() {
            while let Some((at, Notification { channel, payload })) = self.waiting.pop_front() {
                if self.half.listening().get(&channel).is_some_and(|from| at > *from) {
                    return ListenEvent::Notification { channel, payload };
                }
            }
            let since = Some(self.seen);
            // Both change together, after the wait: a call that is dropped loses nothing.
            (self.waiting, self.seen) = match self.half.board.with(move |board| board.read(since)).await {
                Ok(read) => read,
                Err(e) => {
                    self.half.over.cancel();
                    return ListenEvent::Lost(e);
                }
            };
            if self.waiting.is_empty() {
                tokio::select! {
                    () = self.half.over.cancelled() => {}
                    () = clock.sleep_until(clock.now() + LOOK) => {}
                }
            }
        }
        ListenEvent::Lost(over())
    }
}
