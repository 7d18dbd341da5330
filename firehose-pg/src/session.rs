//! One tokio-postgres connection: opened under a deadline, on the first address that takes writes.

use std::fmt;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use firehose_core::{ErrorKind, Step};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Row, SimpleQueryMessage, Socket, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::deadline::Deadline;
use crate::error::Cause;
use crate::target::{Address, Target};
use crate::tls::Tls;

/// The half of a connection that must be polled for anything to happen.
pub(crate) type Driver =
    tokio_postgres::Connection<Socket, <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<Socket>>::Stream>;

/// A connection that nobody drives yet.
pub(crate) struct Dialled {
    pub(crate) client: Client,
    pub(crate) driver: Driver,
    pub(crate) address: Address,
    /// Whether statements need a transaction that says READ COMMITTED and READ WRITE: the role's default is another.
    pub(crate) strange_defaults: bool,
}

/// Opens connections to one target.
pub(crate) struct Dialler {
    pub(crate) target: Target,
    pub(crate) tls: Tls,
    timeout: Duration,
}

/// What is looked at before a connection counts as one: a standby takes no writes and no LISTEN.
const PROBE: &str = "SELECT pg_catalog.pg_is_in_recovery(), \
     pg_catalog.current_setting('default_transaction_isolation') <> 'read committed', \
     pg_catalog.current_setting('default_transaction_read_only') = 'on'";

impl Dialler {
    pub(crate) fn new(target: Target, tls: Tls, statement_timeout: Duration) -> Self {
        let timeout = target.connect_timeout.map_or(statement_timeout, |given| given.min(statement_timeout));
        Self { target, tls, timeout }
    }

    /// Connects to the first address that takes writes. The time limit is for all of it: names, TLS, login.
    ///
    /// # Cancel safety
    /// Dropped half way, it leaves no session behind.
    pub(crate) async fn dial(&self) -> Result<Dialled, Cause> {
        let deadline = Deadline::after(self.timeout);
        deadline.bound(Box::pin(self.try_all(&deadline))).await.unwrap_or(Err(Cause::Late(Step::Connect)))
    }

    /// Each address gets an equal share of the time that is left, so that one that is silent does not use up that of
    /// the next.
    async fn try_all(&self, deadline: &Deadline) -> Result<Dialled, Cause> {
        let mut last = Cause::Known { kind: ErrorKind::Config, message: "the URL names no host".to_owned() };
        for (at, address) in self.target.addresses.iter().enumerate() {
            let hosts_left = self.target.addresses.len() - at;
            // Resolved anew each time: a failover may move the name.
            let ips = match resolve(address).await {
                Ok(ips) => ips,
                Err(cause) => {
                    last = cause;
                    continue;
                }
            };
            let tries = u32::try_from(hosts_left - 1 + ips.len()).unwrap_or(u32::MAX);
            for (ip, left) in ips.into_iter().zip((1..=tries).rev()) {
                let share = Deadline::after(deadline.left() / left);
                match share.bound(self.try_one(address, ip)).await {
                    Some(Ok(dialled)) => return Ok(dialled),
                    Some(Err(cause)) => last = cause,
                    None => last = Cause::Late(Step::Connect),
                }
            }
        }
        Err(last)
    }

    async fn try_one(&self, address: &Address, ip: Option<IpAddr>) -> Result<Dialled, Cause> {
        let options = self.target.tokio_options(address, ip);
        let (client, mut driver) = options.connect(self.tls.connector.clone()).await?;
        let answer = drive(client.simple_query(PROBE), |cx| drain(&mut driver, cx)).await??;
        let mut yes = [false; 3];
        for row in answer.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        }) {
            yes = [0, 1, 2].map(|column| row.get(column) == Some("t"));
        }
        let [standby, isolation, read_only] = yes;
        if standby || (read_only && self.target.read_write) {
            let why = if standby { "is a standby" } else { "is read-only by default" };
            let message = format!("the server at {address} {why}");
            return Err(Cause::Known { kind: ErrorKind::Standby, message });
        }
        Ok(Dialled { client, driver, address: address.clone(), strange_defaults: isolation || read_only })
    }
}

impl fmt::Debug for Dialler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialler").field("target", &self.target).finish_non_exhaustive()
    }
}

/// `None` stands for what needs no address.
async fn resolve(address: &Address) -> Result<Vec<Option<IpAddr>>, Cause> {
    let Address::Tcp { host, port } = address else { return Ok(vec![None]) };
    let failed = |why: String| Cause::Known { kind: ErrorKind::Dns, message: format!("cannot resolve {host}: {why}") };
    let found = tokio::net::lookup_host((host.as_str(), *port)).await.map_err(|e| failed(e.to_string()))?;
    let mut ips: Vec<_> = Vec::new();
    for ip in found.map(|socket| Some(socket.ip())) {
        if !ips.contains(&ip) {
            ips.push(ip);
        }
    }
    if ips.is_empty() { Err(failed("no address".to_owned())) } else { Ok(ips) }
}

/// Gives what `work` gives, which waits for a connection; `drain` reads and writes what can be at once, and gives an error
/// where the connection has ended.
pub(crate) async fn drive<T, E>(
    work: impl Future<Output = T>,
    mut drain: impl FnMut(&mut Context<'_>) -> Option<E>,
) -> Result<T, E> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Ok(done));
        }
        let ended = drain(cx);
        // What was read may be the answer.
        match (work.as_mut().poll(cx), ended) {
            (Poll::Ready(done), _) => Poll::Ready(Ok(done)),
            (Poll::Pending, Some(ended)) => Poll::Ready(Err(ended)),
            (Poll::Pending, None) => Poll::Pending,
        }
    })
    .await
}

/// Reads and writes what can be at once. Gives why the connection ended, where it did.
fn drain(driver: &mut Driver, cx: &mut Context<'_>) -> Option<Cause> {
    loop {
        match driver.poll_message(cx) {
            Poll::Ready(Some(Ok(AsyncMessage::Notice(notice)))) => {
                tracing::debug!(code = notice.code().code(), "notice: {}", notice.message());
            }
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(Some(Err(e))) => return Some(e.into()),
            Poll::Ready(None) => {
                let message = "the connection was closed".to_owned();
                return Some(Cause::Io { kind: ErrorKind::ConnectionLost, message });
            }
            Poll::Pending => return None,
        }
    }
}

/// The statements that a session keeps prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prepared {
    AppendOne,
    Append,
    AppendWaiting,
    Create,
    ByKey,
    Notify,
}

/// A connection for one caller at a time, who drives it himself while he waits for an answer: no task stands between
/// him and the socket. Dropping it closes the socket.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) strange_defaults: bool,
    statements: Mutex<[Option<Statement>; 6]>,
    /// `None` once it has ended. Locked for the length of a poll only.
    driver: Mutex<Option<Driver>>,
}

impl Session {
    pub(crate) fn new(dialled: Dialled) -> Self {
        let Dialled { client, driver, strange_defaults, .. } = dialled;
        Self { client, strange_defaults, statements: Mutex::default(), driver: Mutex::new(Some(driver)) }
    }

    /// Whether it can still be used, as far as the socket tells now.
    pub(crate) fn is_open(&self) -> bool {
        self.drain(&mut Context::from_waker(Waker::noop())).is_none()
    }

    /// Gives what `work` gives, which asks the server something by [`client`](Self::client).
    ///
    /// # Cancel safety
    /// Dropped half way, answers are still to come: then close the session.
    pub(crate) async fn drive<T>(&self, work: impl Future<Output = T>) -> Result<T, Cause> {
        drive(work, |cx| self.drain(cx)).await
    }

    fn drain(&self, cx: &mut Context<'_>) -> Option<Cause> {
        let mut driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = match &mut *driver {
            Some(driver) => drain(driver, cx)?,
            None => Cause::Io { kind: ErrorKind::ConnectionLost, message: "the connection was closed".to_owned() },
        };
        *driver = None;
        Some(ended)
    }

    /// The rows that the statement `which` gives; it is prepared at its first use.
    pub(crate) async fn query(
        &self,
        which: Prepared,
        sql: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Cause> {
        let statement = self.prepared(which, sql).await?;
        Ok(self.drive(self.client.query(&statement, parameters)).await??)
    }

    /// The statement `which`, prepared at its first use.
    pub(crate) async fn prepared(&self, which: Prepared, sql: &str) -> Result<Statement, Cause> {
        let at = which as usize;
        if let Some(statement) = &self.statements.lock().unwrap_or_else(PoisonError::into_inner)[at] {
            return Ok(statement.clone());
        }
        let statement = self.drive(self.client.prepare(sql)).await??;
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(statement.clone());
        Ok(statement)
    }
}
