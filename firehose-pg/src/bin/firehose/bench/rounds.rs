//! Rounds: the other and ours in turn, so that a machine that drifts takes both along.

use std::time::Duration;

use firehose_core::Error;

/// How long and how often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    /// What goes before each measurement and is not counted.
    pub(crate) warm_up: Duration,
    /// One measurement.
    pub(crate) length: Duration,
}

impl Plan {
    pub(crate) fn is_quick(&self) -> bool {
        self.length == Self::QUICK.length
    }

    pub(crate) const FULL: Self =
        Self { rounds: 5, warm_up: Duration::from_millis(500), length: Duration::from_secs(3) };
    pub(crate) const QUICK: Self =
        Self { rounds: 3, warm_up: Duration::from_millis(200), length: Duration::from_secs(1) };
}

/// A figure, and what else was seen on the way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    pub(crate) value: f64,
    pub(crate) detail: Vec<(&'static str, f64)>,
}

impl Measured {
    /// Half of `latencies` (in nanoseconds) are at most the value, in milliseconds; 99 of 100 at most `p99`.
    pub(crate) fn latency(mut latencies: Vec<u64>, p99: &'static str) -> Self {
        latencies.sort_unstable();
        Self { value: percentile(&latencies, 50), detail: vec![(p99, percentile(&latencies, 99))] }
    }
}

/// The floor's figure and ours, of the same moment. A row without a floor has no number there.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    pub(crate) value: f64,
    pub(crate) floor: f64,
    pub(crate) detail: Vec<(&'static str, f64)>,
}

/// A floor or a rival, and ours.
pub(crate) trait Contest: Sync {
    fn floor(&self) -> impl Future<Output = Result<Measured, Error>> + Send;
    fn ours(&self) -> impl Future<Output = Result<Measured, Error>> + Send;
}

/// Measures both in turn.
pub(crate) async fn alternate(plan: Plan, contest: &impl Contest) -> Result<Vec<Round>, Error> {
    let mut rounds = Vec::with_capacity(plan.rounds);
    for _ in 0..plan.rounds {
        let floor = contest.floor().await?;
        let ours = contest.ours().await?;
        let detail = ours.detail.into_iter().chain(floor.detail).collect();
        rounds.push(Round { value: ours.value, floor: floor.value, detail });
    }
    Ok(rounds)
}

/// The middle one; of an even number, the mean of the two.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => values[len / 2],
        len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
    }
}

/// By the nearest rank, of sorted nanoseconds, in milliseconds.
fn percentile(sorted: &[u64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map_or(f64::NAN, |&nanos| Duration::from_nanos(nanos).as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn percentiles_are_by_the_nearest_rank() {
        let nanos: Vec<u64> = (1..=200).map(|n| n * 1_000_000).collect();
        assert_eq!(percentile(&nanos, 50), 100.0);
        assert_eq!(percentile(&nanos, 99), 198.0);
        assert_eq!(percentile(&nanos[..1], 99), 1.0);
    }
}
