//! One subscribed stream as tasks and subscriptions share it: its topic and its feed under one lock.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use super::delivery::{CloseReason, Item};
use super::feed::{Feed, FeedLimits};
use super::topic::{Read, Topic, TopicLimits};
use crate::backend::{Anchor, Head, MonoTime, Page};
use crate::cursor::Cursor;
use crate::engine::Engine;
use crate::observe::Event;
use crate::stream::StreamName;
use crate::wire::Announcement;

use super::topic::Why;

/// A topic and the ring of what it handed out.
#[derive(Debug)]
pub(crate) struct TopicHandle {
    pub(crate) stream: StreamName,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) topic: Topic,
    pub(crate) feed: Feed,
}

impl TopicHandle {
    pub(crate) fn new(stream: StreamName, topic: TopicLimits, feed: FeedLimits) -> Self {
        let state = State { topic: Topic::new(stream.clone(), topic), feed: Feed::new(stream.clone(), feed) };
        Self { stream, state: Mutex::new(state) }
    }

    /// Looks, without handing anything out.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets the topic act, hands out what came of it, and has the store read when the topic says so.
    fn act(self: &Arc<Self>, engine: &Engine, act: impl FnOnce(&mut Topic) -> Option<MonoTime>) {
        let mut wake: Vec<Waker> = Vec::new();
        let (due, tally) = self.with(|state| {
            let due = act(&mut state.topic);
            for item in state.topic.take_items() {
                state.feed.push(item, &mut wake);
            }
            (due.filter(|due| state.topic.queue(*due)), state.topic.take_tally())
        });
        wake.into_iter().for_each(Waker::wake);
        if let Some(due) = due {
            engine.catch_up.topic(self.clone(), due);
        }
        let counters = &engine.observer.counters;
        counters.duplicates_dropped.add(tally.duplicates);
        counters.out_of_order_held.add(tally.held);
        counters.sweep_messages_found.add(tally.found);
        counters.replay_messages_delivered.add(tally.replayed);
        if tally.replayed > 0 {
            engine.observer.event(&Event::Replayed { stream: self.stream.clone(), messages: tally.replayed });
        }
    }

    pub(crate) fn start(self: &Arc<Self>, engine: &Engine, head: Option<&Head>) {
        let now = engine.clock.now();
        let first = self.with(|state| {
            let first = state.topic.tail().is_none();
            if first {
                state.feed.begin(head.map_or(Cursor::BEGINNING, Head::cursor));
            }
            first
        });
        self.act(engine, |topic| topic.start(head, now));
        if first {
            engine.sweep.watch(self.clone());
        }
    }

    pub(crate) fn announced(self: &Arc<Self>, engine: &Engine, announcement: Announcement) {
        let now = engine.clock.now();
        self.act(engine, |topic| topic.announced(announcement, now));
    }

    pub(crate) fn swept(self: &Arc<Self>, engine: &Engine, head: Option<&Head>, seen: &Cursor, why: Why) {
        let now = engine.clock.now();
        self.act(engine, |topic| topic.swept(head, seen, now, why));
    }

    /// The store's word on messages that may never have been committed.
    pub(crate) fn compared(self: &Arc<Self>, engine: &Engine, doubtful: &Cursor, anchor: Anchor) {
        let now = engine.clock.now();
        self.act(engine, |topic| topic.compared(doubtful, anchor, now));
    }

    /// Gives `false` where the question has to be asked again.
    pub(crate) fn verified(
        self: &Arc<Self>,
        engine: &Engine,
        head: Option<&Head>,
        anchor: Option<Anchor>,
        seen: &Cursor,
        listening: bool,
    ) -> bool {
        let mut done = true;
        self.act(engine, |topic| {
            done = topic.verified(head, anchor, seen, listening);
            None
        });
        done
    }

    pub(crate) fn page(self: &Arc<Self>, engine: &Engine, read: &Read, page: &Page) {
        let now = engine.clock.now();
        self.act(engine, |topic| topic.page(read, page, now));
    }

    pub(crate) fn read_failed(self: &Arc<Self>, engine: &Engine, read: &Read) {
        let now = engine.clock.now();
        self.act(engine, |topic| topic.read_failed(read, now));
    }

    pub(crate) fn close(&self, reason: CloseReason) {
        let mut wake = Vec::new();
        self.with(|state| state.feed.close(reason, &mut wake));
        wake.into_iter().for_each(Waker::wake);
    }
}

/// Tells what a subscription was told that is no message.
pub(crate) fn tell(engine: &Engine, item: &Item) {
    match item {
        Item::Message(_) => {}
        Item::Gap(gap, _) => {
            engine.observer.counters.gaps_reported.add(1);
            engine.observer.event(&Event::Gap(gap.clone()));
        }
        Item::Reset(reset, _) => {
            engine.observer.counters.resets_reported.add(1);
            engine.observer.event(&Event::Reset(reset.clone()));
        }
    }
}
