//! One call on its way through the faults.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use firehose_core::Result;

use super::Faults;
use super::operation::Operation;
use super::plan::Moment;
use super::trace::Phase;

/// A call that has begun; dropped before its end, it is traced as dropped.
pub(crate) struct Call<'a> {
    faults: &'a Faults,
    operation: Operation,
    about: Vec<String>,
    ended: bool,
}

impl Faults {
    /// Begins a call: whatever is to happen before anything is done happens here. `about` names streams or channels.
    pub(crate) async fn begin(
        &self,
        operation: Operation,
        about: impl IntoIterator<Item = String>,
    ) -> Result<Call<'_>> {
        let call = Call { faults: self, operation, about: about.into_iter().collect(), ended: false };
        call.record(Phase::Started);
        for faults in self.levels() {
            if let Err(error) = faults.strike(operation, Moment::Before).await {
                return call.end_now(Err(error));
            }
        }
        Ok(call)
    }

    /// The common faults, then the process's own.
    fn levels(&self) -> impl Iterator<Item = &Faults> {
        self.common.as_deref().into_iter().chain([self])
    }

    async fn strike(&self, operation: Operation, moment: Moment) -> Result<()> {
        if moment == Moment::Before {
            let delay = self.plan(operation, |plan| plan.delay);
            if delay > Duration::ZERO {
                let clock = &self.shared.clock;
                clock.sleep_until(clock.now() + delay).await;
            }
        }
        self.hang(operation, moment).await;
        if moment == Moment::Before {
            let panics = self.plan(operation, |plan| plan.panics_now());
            assert!(!panics, "{operation}: a panic that the test asked for");
        }
        self.plan(operation, |plan| plan.failure(moment)).map_or(Ok(()), Err)
    }

    async fn hang(&self, operation: Operation, moment: Moment) {
        let mut hanging = None;
        loop {
            let mut released = pin!(self.shared.released.notified());
            // Before the look at the plan, so that a release in between is not missed.
            released.as_mut().enable();
            if !self.plan(operation, |plan| plan.is_held(moment)) {
                return;
            }
            hanging.get_or_insert_with(|| Hanging::new(self, operation, moment));
            released.await;
        }
    }
}

impl Call<'_> {
    /// Ends the call: whatever is to happen after all was done happens here.
    pub(crate) async fn end<T>(self, result: Result<T>) -> Result<T> {
        for faults in self.faults.levels() {
            if let Err(error) = faults.strike(self.operation, Moment::After).await {
                return self.end_now(Err(error));
            }
        }
        self.end_now(result)
    }

    /// Whether this read is to find nothing.
    pub(crate) fn finds_nothing(&self) -> bool {
        let take = |left: u64| left.checked_sub(1);
        self.faults.levels().any(|f| f.shared.hidden.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok())
    }

    fn end_now<T>(mut self, result: Result<T>) -> Result<T> {
        self.ended = true;
        self.record(result.as_ref().map_or_else(|error| Phase::Failed(error.kind()), |_| Phase::Done));
        result
    }

    fn record(&self, phase: Phase) {
        let shared = &self.faults.shared;
        shared.trace.record(shared.clock.now(), shared.process, self.operation, phase, &self.about);
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.record(Phase::Dropped);
        }
    }
}

/// Counts a call as hanging while it does.
struct Hanging<'a> {
    faults: &'a Faults,
    operation: Operation,
    moment: Moment,
}

impl<'a> Hanging<'a> {
    fn new(faults: &'a Faults, operation: Operation, moment: Moment) -> Self {
        faults.plan(operation, |plan| *plan.hanging(moment) += 1);
        Self { faults, operation, moment }
    }
}

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.faults.plan(self.operation, |plan| *plan.hanging(self.moment) -= 1);
    }
}
