//! Every key, with its unit and its default.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::durations;
use super::secret::Secret;
use super::threshold::CleanupThreshold;
use crate::naming::Layout;

/// How an engine behaves. Every key has a default; none needs to be set.
///
/// Load it with [`Config::load`], or fill it in: `Config { gap_grace: …, ..Config::default() }`. Durations are written
/// `"250ms"`, `"1m 30s"`; a bare number is seconds. [`Config::validate`] tells every problem at once, and
/// [`start`](crate::Builder::start) calls it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The longest payload that a notification carries whole, in bytes after escaping; a longer one goes without its
    /// data. 7,000 to 7,999. Default 7,999.
    pub notify_max_bytes: usize,

    /// The pause before the first new connection after a loss; doubled with each failure. Default 1 s.
    #[serde(with = "durations")]
    pub reconnect_delay: Duration,

    /// The longest pause between two attempts to connect. Default 30 s.
    #[serde(with = "durations")]
    pub reconnect_max_delay: Duration,

    /// How many attempts to get a session may fail one after the other before the engine gives up and stops. Unset: it
    /// never does.
    pub reconnect_attempts: Option<u32>,

    /// Whether the listening session is watched: asked for answers, and replaced when it gives none. Calls have their
    /// deadlines all the same. Default on.
    pub watchdog_enabled: bool,

    /// How soon a session that has gone silent is noticed: it is pinged each half of this, with as long to answer.
    /// Default 10 s.
    #[serde(with = "durations")]
    pub watchdog_interval: Duration,

    /// By when there is a new session in the place of one that has gone silent; at least `watchdog_interval`. Default
    /// 60 s.
    #[serde(with = "durations")]
    pub watchdog_deadline: Duration,

    /// How often a notification is sent all the way, to know that notifications arrive. Default 30 s.
    #[serde(with = "durations")]
    pub probe_interval: Duration,

    /// How often `on_metrics` is called. Default 15 s.
    #[serde(with = "durations")]
    pub metrics_interval: Duration,

    /// How many announcements of stored messages may wait to be sent; more are dropped, counted and made up for.
    /// Default 65,536.
    pub max_command_queue_depth: usize,

    /// Whether what was missed while there was no session is read after a reconnect. Off, subscriptions go on at the head
    /// and are told the rest as a gap. Default on.
    pub replay_on_reconnect: bool,

    /// How often the heads of the subscribed streams are read, whatever notifications say. Default 1 s.
    #[serde(with = "durations")]
    pub sweep_interval: Duration,

    /// How long a hole in a stream waits for its own notification before the store is read. Default 10 ms.
    #[serde(with = "durations")]
    pub gap_grace: Duration,

    /// The longest that a `subscribe` waits for its LISTEN and its start. Default 10 s.
    #[serde(with = "durations")]
    pub subscribe_timeout: Duration,

    /// The longest that one call to a backend may take. Default 10 s.
    #[serde(with = "durations")]
    pub statement_timeout: Duration,

    /// How long a shutdown by the last handle's drop may go on announcing what was stored. Default 10 s.
    #[serde(with = "durations")]
    pub shutdown_timeout: Duration,

    /// How many messages of a stream are kept in memory for subscribers that have not read them yet; who falls further
    /// behind reads from the store. Default 1,024.
    pub subscriber_buffer: usize,

    /// The same in bytes of data. Default 8 MiB.
    pub subscriber_buffer_bytes: usize,

    /// How many catch-up reads run at a time, over all streams and subscribers. Default 4.
    pub catch_up_concurrency: usize,

    /// The longest data of a message, in bytes. Default 1 MiB.
    pub max_message_bytes: usize,

    /// How many broadcasts may wait to be stored; the next gets `Overloaded`. Default 65,536.
    pub max_waiting_broadcasts: usize,

    /// How many messages one append stores at most. Default 1,024.
    pub broadcast_batch_max: usize,

    /// How streams are laid out on channels, `per_stream` or `buckets`. Unset: as the database says. A value that
    /// differs from the database's is an error at start.
    pub layout: Option<Layout>,

    /// How many channels the layout `buckets` has. Unset: as the database says. A value that differs is an error.
    pub buckets: Option<u32>,

    /// The word that channel names begin with. Unset: as the database says. A value that differs is an error.
    pub prefix: Option<String>,

    /// Whether processes of the Ruby gem may listen to this database. Unset: as the database says. A value that differs
    /// is an error.
    pub gem: Option<bool>,

    /// How often this engine looks for messages to remove, in all streams; one engine at a time does it. Default 10 s.
    #[serde(with = "durations")]
    pub retention_interval: Duration,

    /// What is younger is not removed, whatever the other keys say. Default 2 min.
    #[serde(with = "durations")]
    pub retention_min_age: Duration,

    /// What is older is removed, also where a stream has fewer messages than are kept. Unset, or `"none"`: nothing is
    /// removed for its age.
    #[serde(with = "durations::optional")]
    pub retention_max_age: Option<Duration>,

    /// How many messages of a stream are kept, or `"none"`: all. Unset: as the database says, which is 100 unless it was
    /// changed. A value that differs is an error.
    pub cleanup_threshold: Option<CleanupThreshold>,

    /// PostgreSQL: where the database is, as `postgres://user:password@host:port/database?sslmode=…`. Never shown.
    pub database_url: Option<Secret>,

    /// PostgreSQL: a direct URL for LISTEN, where `database_url` goes through a pooler. Unset: `database_url`.
    pub listen_url: Option<Secret>,

    /// PostgreSQL: how many connections the store reads through, and through how many others it appends; each is
    /// opened when it is needed. 1 to 1,000. Default 4.
    pub pool_size: usize,

    /// PostgreSQL: the schema that holds the tables. Unset: the first of the `search_path`.
    pub schema: Option<String>,

    /// PostgreSQL: what sessions are called in `pg_stat_activity`. Default `firehose`.
    pub application_name: String,

    /// PostgreSQL: how long a connection is silent before the kernel asks whether the other end lives. Whole seconds.
    /// Default 30 s.
    #[serde(with = "durations")]
    pub tcp_keepalives_idle: Duration,

    /// PostgreSQL: the pause between two such questions. Whole seconds. Default 10 s.
    #[serde(with = "durations")]
    pub tcp_keepalives_interval: Duration,

    /// PostgreSQL: after how many unanswered ones the connection counts as lost. 1 to 100. Default 3.
    pub tcp_keepalives_count: u32,

    /// PostgreSQL: how many connections notifications may be sent through, so that others stand in for one that
    /// stalls; 0 sends them through the store's own. At most 1,000. Default 4.
    pub notify_pool_size: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            notify_max_bytes: 7_999,
            reconnect_delay: Duration::from_secs(1),
            reconnect_max_delay: Duration::from_secs(30),
            reconnect_attempts: None,
            watchdog_enabled: true,
            watchdog_interval: Duration::from_secs(10),
            watchdog_deadline: Duration::from_secs(60),
            probe_interval: Duration::from_secs(30),
            metrics_interval: Duration::from_secs(15),
            max_command_queue_depth: 65_536,
            replay_on_reconnect: true,
            sweep_interval: Duration::from_secs(1),
            gap_grace: Duration::from_millis(10),
            subscribe_timeout: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(10),
            shutdown_timeout: Duration::from_secs(10),
            subscriber_buffer: 1_024,
            subscriber_buffer_bytes: 8 << 20,
            catch_up_concurrency: 4,
            max_message_bytes: 1 << 20,
            max_waiting_broadcasts: 65_536,
            broadcast_batch_max: 1_024,
            layout: None,
            buckets: None,
            prefix: None,
            gem: None,
            retention_interval: Duration::from_secs(10),
            retention_min_age: Duration::from_secs(120),
            retention_max_age: None,
            cleanup_threshold: None,
            database_url: None,
            listen_url: None,
            pool_size: 4,
            schema: None,
            application_name: "firehose".to_owned(),
            tcp_keepalives_idle: Duration::from_secs(30),
            tcp_keepalives_interval: Duration::from_secs(10),
            tcp_keepalives_count: 3,
            notify_pool_size: 4,
        }
    }
}
