//! The safety net: the heads of all subscribed streams, read again and again, whatever notifications say.
//!
//! It runs in every state but `Stopped`, needs no session, and knows no backoff.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::topic::Why;
use super::topic_handle::TopicHandle;
use crate::backend::{Anchor, Head, HeadDetail};
use crate::cursor::Cursor;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::observe::Stage;
use crate::stream::StreamName;

/// How many streams one read asks for.
const MOST: usize = 10_000;

/// Each so many sweeps the ids of the newest messages are compared too.
const FULL_EVERY: u64 = 10;

/// The streams to look at out of turn, because LISTEN on them was acknowledged anew.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    asked: Mutex<HashMap<StreamName, Arc<TopicHandle>>>,
    arrived: Notify,
}

impl Sweep {
    /// Looks at these topics now: whether their history goes on, and what was missed.
    pub(crate) fn replay(&self, topics: Vec<Arc<TopicHandle>>) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.extend(topics.into_iter().map(|t| (t.stream.clone(), t)));
        drop(asked);
        self.arrived.notify_one();
    }

    /// Messages arrive otherwise than before: look anew when to look.
    pub(crate) fn state_changed(&self) {
        self.arrived.notify_one();
    }

    fn take_asked(&self) -> Vec<Arc<TopicHandle>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).drain().map(|(_, t)| t).collect()
    }

    /// The task.
    pub(crate) async fn run(engine: Arc<Engine>) {
        let this = &engine.sweep;
        let mut next = engine.clock.now() + engine.sweep_pause();
        let mut turn = 0;
        loop {
            let asked = this.take_asked();
            if !asked.is_empty() {
                let result = tokio::select! {
                    biased;
                    () = engine.cancelled() => return,
                    result = look(&engine, &asked, HeadDetail::Full, Why::Replay) => result,
                };
                if tell(&engine, result).is_err() {
                    // Not forgotten: tried again with the next sweep.
                    this.asked
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .extend(asked.into_iter().map(|t| (t.stream.clone(), t)));
                }
            }
            tokio::select! {
                biased;
                () = engine.cancelled() => return,
                () = engine.clock.sleep_until(next) => {}
                () = this.arrived.notified() => {
                    next = next.min(engine.clock.now() + engine.sweep_pause());
                    continue;
                }
            }
            let detail = if turn % FULL_EVERY == FULL_EVERY - 1 { HeadDetail::Full } else { HeadDetail::Cheap };
            turn += 1;
            let topics = engine.hub.started();
            let result = tokio::select! {
                biased;
                () = engine.cancelled() => return,
                result = look(&engine, &topics, detail, Why::Sweep) => result,
            };
            // A failure was told; the next sweep tries again.
            let _ = tell(&engine, result);
            next = engine.clock.now() + engine.sweep_pause();
        }
    }
}

fn tell(engine: &Engine, result: Result<()>) -> Result<()> {
    match &result {
        Ok(()) => engine.observer.healed(Stage::Sweep),
        Err(error) => engine.observer.error(Stage::Sweep, error),
    }
    result
}

/// Reads the heads, and after a new session the cursors' own rows, and tells the topics.
async fn look(engine: &Engine, topics: &[Arc<TopicHandle>], detail: HeadDetail, why: Why) -> Result<()> {
    for topics in topics.chunks(MOST) {
        let seen: Vec<(&Arc<TopicHandle>, Cursor)> =
            topics.iter().filter_map(|t| Some((t, t.with(|state| state.topic.tail())?))).collect();
        if seen.is_empty() {
            continue;
        }
        let anchors = anchors(engine, &seen, why).await?;
        let names: Vec<StreamName> = seen.iter().map(|(t, _)| t.stream.clone()).collect();
        let heads: Vec<Option<Head>> =
            engine.call("sweep", Step::Heads, engine.backend.store.heads(&names, detail)).await?;
        if heads.len() != names.len() {
            let message = format!("the store gave {} heads for {} streams", heads.len(), names.len());
            return Err(Error::new(ErrorKind::Backend, "sweep", message));
        }
        for (((topic, seen), head), anchor) in seen.iter().zip(&heads).zip(anchors) {
            let asked = why == Why::Replay || anchor.is_some();
            if asked && !topic.verified(engine, head.as_ref(), anchor, seen, why == Why::Replay) {
                // It moved meanwhile: what it stands at now is to be compared.
                if why == Why::Replay {
                    engine.sweep.replay(vec![(*topic).clone()]);
                }
                continue;
            }
            topic.swept(engine, head.as_ref(), seen, why);
        }
        confirm(engine, seen.iter().map(|(topic, _)| *topic)).await?;
    }
    Ok(())
}

/// Compares with the store what was handed out on the word of a writer that may announce before its commit.
async fn confirm(engine: &Engine, topics: impl Iterator<Item = &Arc<TopicHandle>>) -> Result<()> {
    let doubtful: Vec<(&Arc<TopicHandle>, Cursor)> = topics
        .flat_map(|topic| topic.with(|state| state.topic.doubtful()).into_iter().map(move |cursor| (topic, cursor)))
        .collect();
    for some in doubtful.chunks(MOST) {
        let cursors: Vec<Cursor> = some.iter().map(|(_, cursor)| *cursor).collect();
        let anchors = engine.call("sweep", Step::Anchors, engine.backend.store.anchors(&cursors)).await?;
        for ((topic, cursor), anchor) in some.iter().zip(anchors) {
            topic.compared(engine, cursor, anchor);
        }
    }
    Ok(())
}

/// The store's word on the rows that the tails were taken from: after a new session of all, while there is none of those
/// that it has not spoken of.
async fn anchors(engine: &Engine, seen: &[(&Arc<TopicHandle>, Cursor)], why: Why) -> Result<Vec<Option<Anchor>>> {
    let asked: Vec<usize> =
        (0..seen.len()).filter(|&at| why == Why::Replay || seen[at].0.with(|state| state.topic.unverified())).collect();
    let mut answers = vec![None; seen.len()];
    if asked.is_empty() {
        return Ok(answers);
    }
    let proven =
        |(topic, tail): &(&Arc<TopicHandle>, Cursor)| topic.with(|state| state.topic.proven()).unwrap_or(*tail);
    let cursors: Vec<Cursor> = asked.iter().map(|&at| proven(&seen[at])).collect();
    let anchors = engine.call("sweep", Step::Anchors, engine.backend.store.anchors(&cursors)).await?;
    asked.into_iter().zip(anchors).for_each(|(at, anchor)| answers[at] = Some(anchor));
    Ok(answers)
}
