//! One tokio-postgres connection: opened under a deadline, on the first address that takes writes.

use std::fmt;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use firehose_core::{ErrorKind, Step};
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, SimpleQueryMessage, Socket, Statement};
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
        deadline.bound(self.try_all(&deadline)).await.unwrap_or(Err(Cause::Late(Step::Connect)))
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
        let answer = drive_until(&mut driver, client.simple_query(PROBE)).await??;
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

/// Runs `work`, which needs the connection driven, before anything drives it.
async fn drive_until<T>(driver: &mut Driver, work: impl Future<Output = T>) -> Result<T, Cause> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            match driver.poll_message(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(e))) => return Poll::Ready(Err(e.into())),
                Poll::Ready(None) => {
                    let message = "the connection was closed".to_owned();
                    return Poll::Ready(Err(Cause::Io { kind: ErrorKind::ConnectionLost, message }));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}

/// The statements that a session keeps prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prepared {
    Append,
    AppendWaiting,
    Create,
    ByKey,
    Notify,
}

/// A connection for one caller at a time. Dropping it closes the socket.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) strange_defaults: bool,
    statements: Mutex<[Option<Statement>; 5]>,
    driver: JoinHandle<()>,
}

impl Session {
    /// Sets a connection going.
    pub(crate) fn start(dialled: Dialled) -> Self {
        let Dialled { client, mut driver, strange_defaults, .. } = dialled;
        let drive = async move {
            // Its errors reach whoever waits for an answer.
            while let Some(Ok(message)) = poll_fn(|cx| driver.poll_message(cx)).await {
                if let AsyncMessage::Notice(notice) = message {
                    tracing::debug!(code = notice.code().code(), "notice: {}", notice.message());
                }
            }
        };
        Self { client, strange_defaults, statements: Mutex::default(), driver: tokio::spawn(drive) }
    }

    /// Whether it can still be used, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        !self.client.is_closed()
    }

    /// The statement `which`, prepared at its first use.
    pub(crate) async fn prepared(&self, which: Prepared, sql: &str) -> Result<Statement, Cause> {
        let at = which as usize;
        if let Some(statement) = &self.statements.lock().unwrap_or_else(PoisonError::into_inner)[at] {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(statement.clone());
        Ok(statement)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
