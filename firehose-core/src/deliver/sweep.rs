//! The safety net: what the store has of all subscribed streams, looked at again and again, whatever notifications say.
//!
//! It runs in every state but `Stopped`, needs no session, and knows no backoff.
//!
//! Most sweeps ask the store only what changed. That covers a topic once a head that was read showed it level; a topic
//! that is not, or that nobody looked at yet, has its own head read with each sweep. Where the store cannot say, where
//! something failed, where the session was lost, and each tenth time in any case, all heads are read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use super::topic::Why;
use super::topic_handle::TopicHandle;
use crate::backend::{Anchor, Changed, Head, HeadDetail, SweepMark};
use crate::cursor::Cursor;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::observe::Stage;
use crate::stream::StreamName;

/// How many streams one read asks for.
const MOST: usize = 10_000;

/// Each so many sweeps all heads are read, and the ids of the newest messages compared.
const FULL_EVERY: u64 = 10;

/// How many new messages the store looks at for a stream that is subscribed, and at least: a head costs as much as some.
const LOOKED_AT: (usize, usize) = (2, 256);

/// Of so many topics that are not level the ids of the newest messages are compared each time.
const FEW: usize = 1_000;

type Topics = FxHashMap<StreamName, Arc<TopicHandle>>;

/// The streams to look at out of turn, and those that the store's word on changes does not cover.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// LISTEN on them was acknowledged anew.
    asked: Mutex<HashMap<StreamName, Arc<TopicHandle>>>,
    /// Not seen level by a head that was read since their start was fixed.
    unsettled: Mutex<Topics>,
    /// The session was lost: nothing counts as covered any more.
    void: AtomicBool,
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

    /// The start of this topic is fixed: from now on it must miss nothing.
    pub(crate) fn watch(&self, topic: Arc<TopicHandle>) {
        self.unsettled(|topics| drop(topics.insert(topic.stream.clone(), topic)));
    }

    /// The database may be another than before, or another history of the same.
    pub(crate) fn session_lost(&self) {
        self.void.store(true, Ordering::Release);
    }

    fn unsettled<T>(&self, work: impl FnOnce(&mut Topics) -> T) -> T {
        work(&mut self.unsettled.lock().unwrap_or_else(PoisonError::into_inner))
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
        let mut turns = Turns::default();
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
            let result = tokio::select! {
                biased;
                () = engine.cancelled() => return,
                result = turns.sweep(&engine) => result,
            };
            // A failure was told; the next sweep tries again.
            let _ = tell(&engine, result);
            next = engine.clock.now() + engine.sweep_pause();
        }
    }
}

/// Where the sweeps stand.
#[derive(Debug, Default)]
struct Turns {
    number: u64,
    mark: SweepMark,
    /// The store only reads heads.
    unsupported: bool,
}

impl Turns {
    async fn sweep(&mut self, engine: &Engine) -> Result<()> {
        let this = &engine.sweep;
        self.number += 1;
        let tenth = self.number.is_multiple_of(FULL_EVERY);
        let void = this.void.swap(false, Ordering::AcqRel);
        let streams = engine.hub.streams();
        if void || streams == 0 {
            self.mark = SweepMark::START;
        }
        let changed = if streams == 0 { Changed::Unknown } else { self.ask(engine, streams).await };
        // From here on a topic that starts waits for the next sweep.
        let mut topics = this.unsettled(std::mem::take);
        let everything = match changed {
            Changed::Streams(changed) if !tenth && !void => {
                for (stream, head) in changed {
                    if let Some(topic) = engine.hub.topic(&stream).filter(|topic| !is_level(topic, Some(&head))) {
                        topics.insert(stream, topic);
                    }
                }
                false
            }
            _ => true,
        };
        let (topics, detail) = if everything {
            (engine.hub.started(), if tenth { HeadDetail::Full } else { HeadDetail::Cheap })
        } else {
            let is_subscribed = |topic: &Arc<TopicHandle>| {
                engine.hub.topic(&topic.stream).is_some_and(|current| Arc::ptr_eq(&current, topic))
            };
            let topics: Vec<_> = topics.into_values().filter(is_subscribed).collect();
            let detail = if topics.len() <= FEW { HeadDetail::Full } else { HeadDetail::Cheap };
            (topics, detail)
        };
        let looked = look(engine, &topics, detail, Why::Sweep).await;
        match &looked {
            Ok(()) => {}
            // What was not looked at is covered by nothing.
            Err(_) => self.mark = SweepMark::START,
        }
        looked
    }

    /// What changed since the sweep before. A store that fails at it may still read heads.
    async fn ask(&mut self, engine: &Engine, streams: usize) -> Changed {
        if self.unsupported {
            return Changed::Unknown;
        }
        let most = streams.saturating_mul(LOOKED_AT.0).max(LOOKED_AT.1);
        let mark = std::mem::take(&mut self.mark);
        match engine.call("sweep", Step::Heads, engine.backend.store.changed_since(mark, most)).await {
            Ok((changed, mark)) => {
                self.mark = mark;
                changed
            }
            Err(error) if error.kind() == ErrorKind::NotSupported => {
                self.unsupported = true;
                Changed::Unknown
            }
            Err(error) => {
                engine.observer.error(Stage::Sweep, &error);
                Changed::Unknown
            }
        }
    }
}

/// Whether a topic has handed out all that `head` tells of, and nothing of it is open to doubt. One whose start is not
/// fixed is told of by [`Sweep::watch`].
fn is_level(topic: &TopicHandle, head: Option<&Head>) -> bool {
    topic.with(|state| {
        let Some(tail) = state.topic.tail() else { return true };
        if state.topic.unverified() || !state.topic.doubtful().is_empty() {
            return false;
        }
        let Some(head) = head else { return true };
        let same_newest =
            head.sequence < tail.sequence || head.last_id.is_none() || tail.id.is_none() || head.last_id == tail.id;
        head.sequence <= tail.sequence && tail.epoch.is_none_or(|epoch| epoch == head.epoch && same_newest)
    })
}

fn tell(engine: &Engine, result: Result<()>) -> Result<()> {
    match &result {
        Ok(()) => engine.observer.healed(Stage::Sweep),
        Err(error) => engine.observer.error(Stage::Sweep, error),
    }
    result
}

/// Reads the heads, and after a new session the cursors' own rows, and tells the topics. Those that are not level then are
/// looked at again with the next sweep.
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
        let open = seen.iter().zip(&heads).filter(|((topic, _), head)| !is_level(topic, head.as_ref()));
        let open: Vec<Arc<TopicHandle>> = open.map(|((topic, _), _)| (*topic).clone()).collect();
        engine.sweep.unsettled(|topics| topics.extend(open.into_iter().map(|topic| (topic.stream.clone(), topic))));
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
