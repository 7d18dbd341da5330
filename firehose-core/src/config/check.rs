//! What a configuration must hold to; every problem is told at once.

use std::time::Duration;

use super::keys::Config;
use crate::error::{Error, ErrorKind, Result};

impl Config {
    /// Checks every key, and what keys say together.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] with all problems in one message, each naming its key and what is allowed.
    pub fn validate(&self) -> Result<()> {
        let problems = self.problems();
        if problems.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Config, "configuration", problems.join("; ")))
    }

    fn problems(&self) -> Vec<String> {
        let mut found = Problems(Vec::new());
        found.number("notify_max_bytes", self.notify_max_bytes, 7_000, 7_999);
        found.number("max_command_queue_depth", self.max_command_queue_depth, 1, 100_000_000);
        found.number("subscriber_buffer", self.subscriber_buffer, 1, 100_000_000);
        found.number("subscriber_buffer_bytes", self.subscriber_buffer_bytes, 1, usize::MAX);
        found.number("catch_up_concurrency", self.catch_up_concurrency, 1, 1_024);
        found.number("max_message_bytes", self.max_message_bytes, 1, 256 << 20);
        found.number("max_waiting_broadcasts", self.max_waiting_broadcasts, 1, 100_000_000);
        found.number("broadcast_batch_max", self.broadcast_batch_max, 1, 32_768);
        for (key, value) in [
            ("reconnect_delay", self.reconnect_delay),
            ("reconnect_max_delay", self.reconnect_max_delay),
            ("watchdog_interval", self.watchdog_interval),
            ("watchdog_deadline", self.watchdog_deadline),
            ("probe_interval", self.probe_interval),
            ("metrics_interval", self.metrics_interval),
            ("sweep_interval", self.sweep_interval),
            ("subscribe_timeout", self.subscribe_timeout),
            ("statement_timeout", self.statement_timeout),
            ("retention_interval", self.retention_interval),
        ] {
            found.duration(key, value, Duration::from_millis(1));
        }
        found.duration("gap_grace", self.gap_grace, Duration::ZERO);
        found.duration("retention_min_age", self.retention_min_age, Duration::ZERO);
        if let Some(age) = self.retention_max_age {
            found.duration("retention_max_age", age, Duration::from_millis(1));
            if age < self.retention_min_age {
                found.0.push("retention_max_age is shorter than retention_min_age".to_owned());
            }
        }
        found.duration("shutdown_timeout", self.shutdown_timeout, Duration::ZERO);
        if self.reconnect_delay > self.reconnect_max_delay {
            found.0.push("reconnect_delay is longer than reconnect_max_delay".to_owned());
        }
        if self.watchdog_interval > self.watchdog_deadline {
            found.0.push("watchdog_interval is longer than watchdog_deadline".to_owned());
        }
        if let Some(attempts) = self.reconnect_attempts {
            found.number("reconnect_attempts", attempts as usize, 1, u32::MAX as usize);
        }
        if let Some(buckets) = self.buckets {
            found.number("buckets", buckets as usize, 1, 65_536);
        }
        if let Some(prefix) = &self.prefix
            && (prefix.is_empty() || prefix.len() > 64 || prefix.contains([':', '\0']))
        {
            found.0.push(format!("prefix = {prefix:?}: 1 to 64 bytes without ':' and NUL are allowed"));
        }
        self.postgres_problems(&mut found);
        found.0
    }

    fn postgres_problems(&self, found: &mut Problems) {
        found.number("pool_size", self.pool_size, 1, 1_000);
        found.number("notify_pool_size", self.notify_pool_size, 0, 1_000);
        found.number("tcp_keepalives_count", self.tcp_keepalives_count as usize, 1, 100);
        found.duration("tcp_keepalives_idle", self.tcp_keepalives_idle, Duration::from_secs(1));
        found.duration("tcp_keepalives_interval", self.tcp_keepalives_interval, Duration::from_secs(1));
        let names = [("schema", self.schema.as_deref()), ("application_name", Some(self.application_name.as_str()))];
        for (key, name) in names {
            // The server cuts a longer name, and would then look for another schema than the one that was meant.
            if let Some(name) = name
                && (name.is_empty() || name.len() > 63 || name.contains('\0'))
            {
                found.0.push(format!("{key} = {name:?}: 1 to 63 bytes without NUL are allowed"));
            }
        }
    }
}

struct Problems(Vec<String>);

impl Problems {
    fn number(&mut self, key: &str, value: usize, least: usize, most: usize) {
        if !(least..=most).contains(&value) {
            let range = if most == usize::MAX { format!("at least {least}") } else { format!("{least} to {most}") };
            self.0.push(format!("{key} = {value}: {range} is allowed"));
        }
    }

    fn duration(&mut self, key: &str, value: Duration, least: Duration) {
        const MOST: Duration = Duration::from_secs(365 * 24 * 3600);
        if value < least || value > MOST {
            let (value, least) = (humantime::format_duration(value), humantime::format_duration(least));
            self.0.push(format!("{key} = {value}: {least} to a year is allowed"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid() {
        Config::default().validate().unwrap();
    }

    #[test]
    fn the_keys_of_postgresql_are_checked_and_the_urls_never_shown() {
        let config = Config {
            pool_size: 0,
            schema: Some(String::new()),
            tcp_keepalives_idle: Duration::from_millis(999),
            database_url: Some("postgres://u:hunter2@h/d".into()),
            ..Config::default()
        };
        let e = config.validate().unwrap_err();
        assert_eq!(
            e.to_string(),
            "configuration: pool_size = 0: 1 to 1000 is allowed; tcp_keepalives_idle = 999ms: 1s to a year is allowed; \
             schema = \"\": 1 to 63 bytes without NUL are allowed"
        );
        assert!(!format!("{config:?} {e:?} {}", serde_json::to_string(&config).unwrap()).contains("hunter2"));
    }

    #[test]
    fn ages_that_contradict_each_other_are_told() {
        let day = Duration::from_secs(24 * 3600);
        let config = |retention_min_age, age| {
            let retention_max_age = Some(age);
            Config { retention_min_age, retention_max_age, ..Config::default() }.validate().map_err(|e| e.to_string())
        };
        assert_eq!(config(day, day), Ok(()));
        let said = "configuration: retention_max_age is shorter than retention_min_age";
        assert_eq!(config(day, day / 2), Err(said.to_owned()));
        let said = "configuration: retention_max_age = 2years: 1ms to a year is allowed";
        let years = Duration::from_secs(2 * 31_557_600);
        assert_eq!(config(day, years), Err(said.to_owned()));
    }

    #[test]
    fn every_problem_is_told_at_once() {
        let config = Config {
            notify_max_bytes: 8_000,
            catch_up_concurrency: 0,
            sweep_interval: Duration::ZERO,
            reconnect_delay: Duration::from_secs(60),
            prefix: Some("a:b".to_owned()),
            ..Config::default()
        };
        let e = config.validate().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Config);
        assert_eq!(
            e.to_string(),
            "configuration: notify_max_bytes = 8000: 7000 to 7999 is allowed; \
             catch_up_concurrency = 0: 1 to 1024 is allowed; \
             sweep_interval = 0s: 1ms to a year is allowed; \
             reconnect_delay is longer than reconnect_max_delay; \
             prefix = \"a:b\": 1 to 64 bytes without ':' and NUL are allowed"
        );
    }
}
