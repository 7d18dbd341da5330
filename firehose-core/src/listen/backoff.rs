//! How long to wait before the next attempt. Pure: the randomness comes in as a number.

use std::time::Duration;

/// Doubling pauses with jitter, that start over only after a time of health.
#[derive(Debug)]
pub(crate) struct Backoff {
    delay: Duration,
    most: Duration,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(delay: Duration, most: Duration) -> Self {
        Self { delay, most, failures: 0 }
    }

    /// The pause after one more failure: between half of `delay` · 2ⁿ and all of it, by `random` in 0..1.
    pub(crate) fn next(&mut self, random: f64) -> Duration {
        let doubled = self.delay.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX)).min(self.most);
        self.failures = self.failures.saturating_add(1);
        doubled.mul_f64(0.5 + 0.5 * random.clamp(0.0, 1.0))
    }

    /// How many failures in a row there were.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// A session ended after it was healthy for `lasted`: a short one does not make the next pause shorter.
    pub(crate) fn session_ended(&mut self, lasted: Duration) {
        if lasted >= self.healthy_after() {
            self.failures = 0;
        }
    }

    /// How long a session has to last so that the pauses start over: as long as the longest pause.
    pub(crate) fn healthy_after(&self) -> Duration {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(backoff: &mut Backoff, n: usize) -> Vec<u64> {
        (0..n).map(|_| backoff.next(1.0).as_secs()).collect()
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut b = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        assert_eq!(seconds(&mut b, 7), [1, 2, 4, 8, 16, 30, 30]);
    }

    #[test]
    fn jitter_takes_up_to_half() {
        let mut b = Backoff::new(Duration::from_secs(2), Duration::from_secs(30));
        assert_eq!(b.next(0.0), Duration::from_secs(1));
        assert_eq!(b.next(0.5), Duration::from_secs(3));
    }

    #[test]
    fn c18_only_a_healthy_session_starts_over() {
        let mut b = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        assert_eq!(seconds(&mut b, 3), [1, 2, 4]);
        b.session_ended(Duration::from_secs(1));
        assert_eq!(seconds(&mut b, 1), [8], "a session that flaps");
        b.session_ended(Duration::from_secs(60));
        assert_eq!(seconds(&mut b, 1), [1]);
    }

    #[test]
    fn a_hundred_failures_do_not_overflow() {
        let mut b = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        assert_eq!(seconds(&mut b, 100).last(), Some(&30));
    }
}
