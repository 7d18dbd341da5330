//! Writing a connection URL from its parts.

use std::fmt;

use firehose_core::Secret;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// Makes a connection URL from parts as they are: each is encoded where it has to be.
///
/// ```
/// # use firehose_pg::DatabaseUrl;
/// let url = DatabaseUrl::new("localhost", 5432, "app").user("app").password("p@ss/w?rd").parameter("sslmode", "require");
/// assert_eq!(url.to_secret().expose(), "postgres://app:p%40ss%2Fw%3Frd@localhost:5432/app?sslmode=require");
/// ```
#[derive(Clone, PartialEq, Eq)]
#[must_use]
pub struct DatabaseUrl {
    host: String,
    port: u16,
    database: String,
    user: String,
    password: Option<Secret>,
    parameters: Vec<(String, String)>,
}

impl DatabaseUrl {
    /// The database `database` at `host`: a name, an address without brackets, or the folder of a socket.
    pub fn new(host: impl Into<String>, port: u16, database: impl Into<String>) -> Self {
        let (host, database) = (host.into(), database.into());
        Self { host, port, database, user: String::new(), password: None, parameters: Vec::new() }
    }

    /// Logs in as `user`.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = user.into();
        self
    }

    /// Logs in with `password`, whatever characters it has.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(Secret::from(password.into()));
        self
    }

    /// Adds a parameter such as `sslmode`.
    pub fn parameter(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.parameters.push((name.into(), value.into()));
        self
    }

    /// The URL, for the key `database_url`.
    pub fn to_secret(&self) -> Secret {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let password = self.password.as_ref().map(|p| format!(":{}", encoded(p.expose()))).unwrap_or_default();
        let at = if self.user.is_empty() && password.is_empty() { "" } else { "@" };
        let host = match self.host.parse::<std::net::Ipv6Addr>() {
            Ok(address) => format!("[{address}]"),
            Err(_) if self.host.starts_with('/') => encoded(&self.host),
            Err(_) => self.host.clone(),
        };
        let (user, database) = (encoded(&self.user), encoded(&self.database));
        let mut url = format!("postgres://{user}{password}{at}{host}:{}/{database}", self.port);
        for (at, (name, value)) in self.parameters.iter().enumerate() {
            url.push(if at == 0 { '?' } else { '&' });
            url.push_str(&format!("{name}={}", encoded(value)));
        }
        url.into()
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseUrl")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}
