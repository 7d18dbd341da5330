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
            ("metrics_interval", self.metrics_interval),
            ("sweep_interval", self.sweep_interval),
            ("subscribe_timeout", self.subscribe_timeout),
            ("statement_timeout", self.statement_timeout),
        ] {
            found.duration(key, value, Duration::from_millis(1));
        }
        found.duration("gap_grace", self.gap_grace, Duration::ZERO);
        found.duration("shutdown_timeout", self.shutdown_timeout, Duration::ZERO);
        if self.reconnect_delay > self.reconnect_max_delay {
            found.0.push("reconnect_delay is longer than reconnect_max_delay".to_owned());
        }
        if let Some(buckets) = self.buckets {
            found.number("buckets", buckets as usize, 1, 65_536);
        }
        if let Some(prefix) = &self.prefix
            && (prefix.is_empty() || prefix.len() > 64 || prefix.contains([':', '\0']))
        {
            found.0.push(format!("prefix = {prefix:?}: 1 to 64 bytes without ':' and NUL are allowed"));
        }
        found.0
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
