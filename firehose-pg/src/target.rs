//! Where the database is and how to talk to it, parsed once; both drivers' options are made from it.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use firehose_core::Secret;
use sea_orm::sqlx::ConnectOptions as _;
use sea_orm::sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio_postgres::config::{ChannelBinding, SslMode};

/// One place to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// A name or an IP address, without brackets, and a port.
    Tcp { host: String, port: u16 },
    /// The folder of a Unix socket, and the port that its name carries.
    Socket { folder: PathBuf, port: u16 },
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Socket { folder, port } => write!(f, "{}/.s.PGSQL.{port}", folder.display()),
        }
    }
}

/// How far a connection is encrypted and the server's certificate believed. Sockets are never encrypted, as in libpq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsMode {
    /// Never encrypted.
    Disable,
    /// Encrypted where the server offers it; its certificate is not looked at.
    Prefer,
    /// Encrypted or not at all; its certificate is not looked at.
    Require,
    /// Encrypted, and the certificate is signed by a root that is believed.
    VerifyCa,
    /// The same, and it is the host's.
    VerifyFull,
}

/// The roots that a server's certificate is held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Roots {
    /// Those of the operating system.
    System,
    /// Those of a PEM file.
    File(PathBuf),
}

/// TCP's own ways to notice a dead peer. A time of zero leaves the operating system's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keepalive {
    pub(crate) on: bool,
    pub(crate) idle: Duration,
    pub(crate) interval: Duration,
    pub(crate) count: u32,
    /// How long what was sent may stay unacknowledged. Keepalives do not see a peer that dies with a query in flight.
    pub(crate) user_timeout: Duration,
}

/// A database, and everything a session needs to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) addresses: Vec<Address>,
    pub(crate) user: String,
    pub(crate) password: Option<Secret>,
    pub(crate) database: String,
    pub(crate) tls: TlsMode,
    pub(crate) roots: Roots,
    pub(crate) channel_binding: Binding,
    pub(crate) application_name: String,
    pub(crate) keepalive: Keepalive,
    pub(crate) connect_timeout: Option<Duration>,
    /// `target_session_attrs=read-write`: a server that is read-only by default is refused too.
    pub(crate) read_write: bool,
    /// The URL's own `options`, as (setting, value).
    pub(crate) options: Vec<(String, String)>,
}

/// Whether SCRAM ties itself to the TLS connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    Disable,
    Prefer,
    Require,
}

impl Target {
    /// How `address` is encrypted.
    pub(crate) fn tls_for(&self, address: &Address) -> TlsMode {
        match address {
            Address::Tcp { .. } => self.tls,
            Address::Socket { .. } => TlsMode::Disable,
        }
    }

    /// tokio-postgres' options for `address`, which was resolved to `ip` where it is a name.
    pub(crate) fn tokio_options(&self, address: &Address, ip: Option<IpAddr>) -> tokio_postgres::Config {
        let mut options = tokio_postgres::Config::new();
        match address {
            Address::Tcp { host, port } => {
                options.host(host).port(*port);
                if let Some(ip) = ip {
                    options.hostaddr(ip);
                }
            }
            Address::Socket { folder, port } => {
                options.host_path(folder).port(*port);
            }
        }
        options.user(&self.user).dbname(&self.database).application_name(&self.application_name);
        if let Some(password) = &self.password {
            options.password(password.expose());
        }
        options.ssl_mode(match self.tls_for(address) {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
        });
        options.channel_binding(match self.channel_binding {
            Binding::Disable => ChannelBinding::Disable,
            Binding::Prefer => ChannelBinding::Prefer,
            Binding::Require => ChannelBinding::Require,
        });
        let keepalive = self.keepalive;
        options.keepalives(keepalive.on);
        if keepalive.on {
            if !keepalive.idle.is_zero() {
                options.keepalives_idle(keepalive.idle);
            }
            if !keepalive.interval.is_zero() {
                options.keepalives_interval(keepalive.interval);
            }
            if keepalive.count > 0 {
                options.keepalives_retries(keepalive.count);
            }
        }
        if !keepalive.user_timeout.is_zero() {
            options.tcp_user_timeout(keepalive.user_timeout);
        }
        if !self.options.is_empty() {
            options.options(self.options_text());
        }
        options
    }

    /// sqlx' options for `address`; `roots` is the PEM text to verify with, where verifying was asked for.
    pub(crate) fn sqlx_options(&self, address: &Address, roots: Option<&[u8]>) -> PgConnectOptions {
        let mut options = PgConnectOptions::new_without_pgpass();
        options = match address {
            Address::Tcp { host, port } => options.host(host).port(*port),
            Address::Socket { folder, port } => options.socket(folder).port(*port),
        };
        options = options
            .username(&self.user)
            .password(self.password.as_ref().map_or("", Secret::expose))
            .database(&self.database)
            .application_name(&self.application_name)
            // A start-up parameter that poolers refuse.
            .extra_float_digits(None)
            .ssl_mode(match self.tls_for(address) {
                TlsMode::Disable => PgSslMode::Disable,
                TlsMode::Prefer => PgSslMode::Prefer,
                TlsMode::Require => PgSslMode::Require,
                TlsMode::VerifyCa => PgSslMode::VerifyCa,
                TlsMode::VerifyFull => PgSslMode::VerifyFull,
            });
        if let Some(pem) = roots {
            options = options.ssl_root_cert_from_pem(pem.to_vec());
        }
        if !self.options.is_empty() {
            options = options.options(self.options.iter().map(|(k, v)| (k, v)));
        }
        options.disable_statement_logging()
    }

    fn options_text(&self) -> String {
        let escaped = |value: &str| value.replace('\\', "\\\\").replace(' ', "\\ ");
        let parts: Vec<String> = self.options.iter().map(|(k, v)| format!("-c {k}={}", escaped(v))).collect();
        parts.join(" ")
    }
}
