//! The gateway: Firehose over HTTP as a program of its own, serving from PostgreSQL, from a file, or from memory.

use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use axum::serve::ListenerExt;
use clap::Parser;
use firehose_core::{Backend, Clock, Config, ErrorKind, Firehose, InProcess, SystemClock};
use firehose_examples::SqliteStore;
use firehose_http::Options;
use firehose_testkit::{Database, MemoryStore, WireListener, WireNotifier};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// How long open requests get to end after the first signal; the rest of five seconds is the engine's.
const DRAIN: Duration = Duration::from_secs(3);

/// How long the engine gets to announce what it stored.
const SHUTDOWN: Duration = Duration::from_millis(1_500);

/// How long a file gets to be closed.
const CLOSE: Duration = Duration::from_millis(400);

/// The database cannot be reached.
const UNREACHABLE: u8 = 3;

/// Wrong use, or nothing to work with.
const WRONG_USE: u8 = 2;

/// Publishes by HTTP, delivers as Server-Sent Events, and has a page to try both on.
///
/// The level of its log, on standard error, is the variable FIREHOSE_LOG: "info", "firehose_core=debug", …
#[derive(Debug, Parser)]
#[command(name = "gateway", version)]
struct Args {
    /// Where to listen; port 0 takes a free one
    #[arg(long, env = "FIREHOSE_LISTEN", value_name = "HOST:PORT", default_value = "127.0.0.1:7474")]
    listen: String,

    /// The configuration; without it, firehose.toml of the working directory where there is one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The PostgreSQL to serve from, whose tables it makes or brings up to date; without it and --store it serves from
    /// memory
    #[arg(long, env = "FIREHOSE_DATABASE_URL", value_name = "URL", hide_env_values = true)]
    database_url: Option<String>,

    /// A file to serve from, which it makes where it is missing: messages outlive it, without a server
    #[arg(long, env = "FIREHOSE_STORE", value_name = "sqlite:FILE")]
    store: Option<String>,
}

/// Why it ends early: one line for a person, and the exit code.
struct Failure(u8, String);

impl Failure {
    fn wrong_use(what: impl Display) -> Self {
        Self(WRONG_USE, what.to_string())
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).with_env_var("FIREHOSE_LOG");
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter.from_env_lossy()).init();
    let result = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let result = runtime.block_on(run(args));
            // What still hangs on a client that does not read is not waited for.
            runtime.shutdown_background();
            result
        }
        Err(e) => Err(Failure(1, format!("the runtime does not start: {e}"))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(code, message)) => {
            complain(&message);
            ExitCode::from(code)
        }
    }
}

async fn run(args: Args) -> Result<(), Failure> {
    let mut loaded = Config::load_from(args.config.as_deref()).map_err(Failure::wrong_use)?;
    if let Some(url) = args.database_url {
        loaded.config.database_url = Some(url.into());
    }
    for warning in &loaded.warnings {
        complain(&format!("warning: {warning}"));
    }
    let file = args.store.as_deref().map(file_of).transpose()?;
    if file.is_some() && loaded.config.database_url.is_some() {
        let both = "--store and a database URL (--database-url, FIREHOSE_DATABASE_URL or database_url) are both given; \
                    choose one";
        return Err(Failure::wrong_use(both));
    }
    let mut signals = Signals::new()?;
    let (listener, address) = bind(&args.listen).await?;

    let drain = CancellationToken::new();
    let mut store = None;
    let (backend, kept_in) = match (&loaded.config.database_url, file) {
        (Some(_), _) => (postgres(&loaded.config).await?, "PostgreSQL".to_owned()),
        (None, Some(file)) => {
            let transport = InProcess::new();
            let opened = store.insert(SqliteStore::open(file).await.map_err(unusable)?).clone();
            (Backend::new(opened, transport.clone(), transport), file.to_owned())
        }
        (None, None) => (memory(), "memory, gone when it stops".to_owned()),
    };
    let options = Options::default()
        .with_drain(drain.clone())
        .with_max_message_bytes(loaded.config.max_message_bytes)
        .with_kept_in(&kept_in);
    let firehose = Firehose::builder(backend)
        .config(loaded.config)
        .start()
        .await
        .map_err(|e| Failure(1, format!("the engine does not start: {e}")))?;
    let app = firehose_http::gateway(firehose.clone(), options);
    // Events are small and must not wait for each other.
    let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
    let mut server = std::pin::pin!(
        axum::serve(listener, app).with_graceful_shutdown(drain.clone().cancelled_owned()).into_future()
    );
    announce(address, &kept_in);

    tokio::select! {
        // It ends only when it is told to.
        _ = &mut server => {}
        () = signals.next() => {}
    }
    drain.cancel();
    let clock = SystemClock::new();
    let deadline = clock.now() + DRAIN;
    tokio::select! {
        _ = &mut server => {}
        () = signals.next() => {}
        () = clock.sleep_until(deadline) => tracing::warn!("some clients did not let go; they are cut off"),
    }
    firehose.shutdown(SHUTDOWN).await;
    if let Some(store) = store {
        // All that was acknowledged is in the file already; this only leaves one file where there were two.
        tokio::select! {
            () = store.close() => {}
            () = clock.sleep_until(clock.now() + CLOSE) => {}
        }
    }
    Ok(())
}

/// The file of `--store`.
fn file_of(store: &str) -> Result<&str, Failure> {
    match store.strip_prefix("sqlite:").map(|file| file.strip_prefix("//").unwrap_or(file)) {
        Some(file) if !file.is_empty() => Ok(file),
        _ => Err(Failure::wrong_use(format!(
            "{store:?} is no store; give --store sqlite:FILE, or --database-url for PostgreSQL"
        ))),
    }
}

/// A store or a database that cannot be had, with a word on what to do.
fn unusable(e: firehose_core::Error) -> Failure {
    let code = match e.kind() {
        ErrorKind::Config => WRONG_USE,
        ErrorKind::UnknownDatabase | ErrorKind::Permission | ErrorKind::NotMigrated
            if e.operation() == "open store" =>
        {
            WRONG_USE
        }
        _ => UNREACHABLE,
    };
    let hint = e.hint().map_or_else(String::new, |hint| format!(" ({hint})"));
    Failure(code, format!("{}{hint}", e.replicate()))
}

/// A database in memory, in real time.
fn memory() -> Backend {
    let database = Database::new(RandomState::new().hash_one(std::process::id()), SystemClock::new());
    Backend::new(MemoryStore::new(&database), WireNotifier::new(database.wire()), WireListener::new(database.wire()))
}

/// The database of the configuration, with its tables as they should be.
async fn postgres(config: &Config) -> Result<Backend, Failure> {
    firehose_pg::migrate(config).await.map_err(unusable)?;
    firehose_pg::connect(config).await.map_err(unusable)
}

async fn bind(listen: &str) -> Result<(TcpListener, SocketAddr), Failure> {
    let failed = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::AddrInUse => {
            Failure::wrong_use(format!("{listen} is taken by another program; choose another with --listen HOST:PORT"))
        }
        _ => Failure::wrong_use(format!("cannot listen on {listen}: {e}")),
    };
    let listener = TcpListener::bind(listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// The one line on standard output: where to look, and what serves.
fn announce(mut address: SocketAddr, kept_in: &str) {
    if address.ip().is_unspecified() {
        address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let mut out = std::io::stdout().lock();
    // Whoever started it may not care to read.
    let _ = writeln!(out, "firehose gateway: http://{address} (messages in {kept_in})");
    let _ = out.flush();
}

fn complain(message: &str) {
    let _ = writeln!(std::io::stderr(), "firehose gateway: {message}");
}

/// The signals that ask a program to end.
struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    #[cfg(unix)]
    fn new() -> Result<Self, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let failed = |e| Failure(1, format!("signals cannot be heard: {e}"));
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
        })
    }

    #[cfg(not(unix))]
    fn new() -> Result<Self, Failure> {
        Ok(Self {})
    }

    /// Waits for the next one.
    async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    }
}
