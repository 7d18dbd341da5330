//! The clauses' tests. A clock that goes by itself takes its time, so they ask for a few milliseconds at most.

use std::time::Duration;

use super::ClockFixture;
use crate::conformance::clause::Verdict;
use crate::conformance::expect::that;

const STEP: Duration = Duration::from_millis(2);

pub(super) async fn never_back(fixture: &dyn ClockFixture) -> Verdict {
    let clock = fixture.clock();
    let mut before = clock.now();
    for round in 0..3 {
        for _ in 0..200 {
            let now = clock.now();
            that(now >= before, || format!("in round {round}, `now` gave {before:?} and then {now:?}"))?;
            before = now;
        }
        fixture.pass(STEP).await;
        let now = clock.now();
        that(now >= before + STEP, || format!("{STEP:?} after {before:?} it is {now:?}"))?;
    }
    Ok(())
}
