//! Retention: what is older than it has to be, and more than is kept, goes; in the background, and in small steps.
//!
//! Every engine takes its turns, whether it listens or only publishes, and looks at all streams, whoever wrote them.
//! The store lets one at a time do the work. What is kept is the database's word of the moment, not that of the start:
//! an operator who raises the threshold must not lose what an engine remembers otherwise.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Retain, Scope, Trimmed};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::observe::{Event, Stage};
use crate::stream::StreamName;

/// How many messages one call of the store removes at most.
const BUDGET: u64 = 5_000;

/// The least and the longest pause between two steps of a turn.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// The task: a turn each `retention_interval`, the first one at a time of chance, so that a fleet is not in step.
pub(crate) async fn run(engine: Arc<Engine>) {
    let first = engine.config.retention_interval.mul_f64(engine.random());
    let mut next = engine.clock.now() + first;
    if !engine.retention {
        return engine.cancelled().await;
    }
    loop {
        tokio::select! {
            biased;
            () = engine.cancelled() => return,
            () = engine.clock.sleep_until(next) => {}
        }
        let result = tokio::select! {
            biased;
            () = engine.cancelled() => return,
            result = turn(&engine) => result,
        };
        match result {
            Ok(()) => engine.observer.healed(Stage::Retention),
            Err(error) => {
                engine.observer.error(Stage::Retention, &error);
                if error.kind() == ErrorKind::NotSupported {
                    break;
                }
            }
        }
        next = engine.clock.now() + engine.config.retention_interval;
    }
    engine.cancelled().await;
}

/// Steps until there is nothing more to trim. What went before a failure is told all the same.
async fn turn(engine: &Engine) -> Result<()> {
    let (began, mut messages, mut steps) = (engine.clock.now(), 0, 0);
    let result = async {
        let retain = policy(engine).await?;
        while retain.messages.is_some() || retain.max_age.is_some() {
            let step = step(engine, Scope::All, retain).await?;
            messages += step.trimmed.messages;
            steps += 1;
            // Without progress somebody else is at it, and goes on with it.
            if !step.trimmed.more || step.trimmed.messages == 0 {
                break;
            }
            engine.clock.sleep_until(engine.clock.now() + pause_after(step.took)).await;
        }
        Ok(())
    }
    .await;
    if messages > 0 {
        let took = engine.clock.now().since(began);
        engine.observer.event(&Event::Trimmed { messages, steps, took });
    }
    result
}

/// Trims one stream by the same rule; gives how many messages went.
pub(crate) async fn trim_stream(engine: &Engine, stream: &StreamName) -> Result<u64> {
    let retain = policy(engine).await?;
    let (mut messages, mut progress) = (0, engine.clock.now());
    loop {
        let step = step(engine, Scope::Stream(stream.clone()), retain).await?;
        messages += step.trimmed.messages;
        if !step.trimmed.more {
            return Ok(messages);
        }
        let (now, limit) = (engine.clock.now(), engine.config.statement_timeout);
        if step.trimmed.messages > 0 {
            progress = now;
        } else if now.since(progress) >= limit {
            return Err(Error::timeout("trim", Step::Trim, limit));
        }
        engine.clock.sleep_until(now + pause_after(step.took)).await;
    }
}

/// What is kept: by the database's threshold as it is now, and the configuration's ages.
async fn policy(engine: &Engine) -> Result<Retain> {
    let settings = engine.call("trim", Step::Settings, engine.backend.store.settings()).await?;
    let (stored, config) = (settings.cleanup_threshold, &engine.config);
    if let Some(own) = config.cleanup_threshold.filter(|own| *own != stored) {
        let message = format!("cleanup_threshold is {own} in the configuration and {stored} in the database by now");
        let error = Error::new(ErrorKind::SettingsMismatch, "trim", message);
        return Err(error.with_hint("nothing is trimmed until they agree; restart with the key changed or left out"));
    }
    Ok(Retain { messages: stored.messages(), max_age: config.retention_max_age, min_age: config.retention_min_age })
}

struct StepDone {
    trimmed: Trimmed,
    took: Duration,
}

async fn step(engine: &Engine, scope: Scope, retain: Retain) -> Result<StepDone> {
    let began = engine.clock.now();
    let trimmed = engine.call("trim", Step::Trim, engine.backend.store.trim(scope, retain, BUDGET)).await?;
    engine.observer.counters.messages_trimmed.add(trimmed.messages);
    Ok(StepDone { trimmed, took: engine.clock.now().since(began) })
}

/// As long as the step took, so that at most half of the time is spent on trimming.
fn pause_after(took: Duration) -> Duration {
    took.clamp(PAUSES.0, PAUSES.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_step_is_followed_by_a_long_pause() {
        let ms = Duration::from_millis;
        assert_eq!(pause_after(Duration::ZERO), ms(10));
        assert_eq!(pause_after(ms(70)), ms(70));
        assert_eq!(pause_after(Duration::from_secs(9)), Duration::from_secs(1));
    }
}
