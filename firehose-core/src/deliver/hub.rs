//! Who listens to what, in this process: streams, raw channels, and the channels that carry them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use tokio::sync::{Notify, watch};

use super::delivery::CloseReason;
use super::feed::FeedLimits;
use super::topic::TopicLimits;
use super::topic_handle::TopicHandle;
use crate::backend::MonoTime;
use crate::config::Config;
use crate::engine::Engine;
use crate::error::{Error, Result, Step};
use crate::listen::{Command, Registry};
use crate::naming::Naming;
use crate::observe::StreamDiagnosis;
use crate::raw::RawInbox;
use crate::stream::{ChannelIdentifier, StreamName};
use crate::wire;

/// Whether a channel is listened to, for who waits until it is.
#[derive(Debug, Clone)]
pub(crate) enum Listening {
    NotYet,
    Yes,
    /// There is no use in it: nothing would be heard. Streams live by the sweep meanwhile.
    Deaf,
    Refused(Arc<Error>),
}

/// The one map of everything subscribed.
#[derive(Debug)]
pub(crate) struct Hub {
    naming: Naming,
    topic_limits: TopicLimits,
    feed_limits: FeedLimits,
    state: Mutex<State>,
    /// Told when the registry has a command for the supervisor.
    pub(crate) changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    topics: FxHashMap<StreamName, Subscribed>,
    channels: FxHashMap<ChannelIdentifier, Channel>,
    registry: Registry,
    /// Nothing would be heard: a pooler stands between.
    deaf: bool,
    closed: Option<CloseReason>,
}

#[derive(Debug)]
struct Subscribed {
    topic: Arc<TopicHandle>,
    channel: ChannelIdentifier,
    leases: usize,
}

#[derive(Debug)]
struct Channel {
    listening: watch::Sender<Listening>,
    streams: Vec<StreamName>,
    raw: Vec<Arc<RawInbox>>,
}

impl Hub {
    pub(crate) fn new(naming: Naming, config: &Config) -> Self {
        Self {
            naming,
            topic_limits: TopicLimits {
                grace: config.gap_grace,
                pause: config.sweep_interval,
                held: config.subscriber_buffer,
                held_bytes: config.subscriber_buffer_bytes,
                replay: config.replay_on_reconnect,
            },
            feed_limits: FeedLimits { items: config.subscriber_buffer, bytes: config.subscriber_buffer_bytes },
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The channel on which a stream is announced.
    pub(crate) fn channel_of(&self, stream: &StreamName) -> ChannelIdentifier {
        self.naming.stream(stream)
    }

    /// The topic of `stream`, held until the lease is dropped, and listened to from now on.
    pub(crate) fn lease(engine: &Arc<Engine>, stream: &StreamName) -> Result<TopicLease> {
        let hub = &engine.hub;
        let mut guard = hub.state();
        let state = &mut *guard;
        if state.closed.is_some() {
            return Err(Error::shut_down("subscribe"));
        }
        if !state.topics.contains_key(stream) {
            let topic = Arc::new(TopicHandle::new(stream.clone(), hub.topic_limits, hub.feed_limits));
            let channel = hub.naming.stream(stream);
            state.channel(&channel).streams.push(stream.clone());
            state.registry.want(&channel);
            state.topics.insert(stream.clone(), Subscribed { topic, channel, leases: 0 });
        }
        let Some(subscribed) = state.topics.get_mut(stream) else { return Err(Error::shut_down("subscribe")) };
        subscribed.leases += 1;
        let (topic, channel) = (subscribed.topic.clone(), subscribed.channel.clone());
        let listening = state.channel(&channel).listening.subscribe();
        drop(guard);
        hub.changed.notify_one();
        Ok(TopicLease { engine: engine.clone(), topic, listening })
    }

    fn release(&self, stream: &StreamName) {
        let mut guard = self.state();
        let state = &mut *guard;
        let Some(subscribed) = state.topics.get_mut(stream) else { return };
        subscribed.leases -= 1;
        if subscribed.leases > 0 {
            return;
        }
        let channel = subscribed.channel.clone();
        state.topics.remove(stream);
        if let Some(entry) = state.channels.get_mut(&channel) {
            entry.streams.retain(|s| s != stream);
        }
        state.give_up(&channel);
        drop(guard);
        self.changed.notify_one();
    }

    /// Hears a raw channel until [`Self::release_raw`].
    pub(crate) fn lease_raw(
        &self,
        channel: &ChannelIdentifier,
        inbox: Arc<RawInbox>,
    ) -> Result<watch::Receiver<Listening>> {
        let mut state = self.state();
        if state.closed.is_some() {
            return Err(Error::shut_down("listen"));
        }
        let entry = state.channel(channel);
        entry.raw.push(inbox);
        let listening = entry.listening.subscribe();
        state.registry.want(channel);
        drop(state);
        self.changed.notify_one();
        Ok(listening)
    }

    pub(crate) fn release_raw(&self, channel: &ChannelIdentifier, inbox: &Arc<RawInbox>) {
        let mut state = self.state();
        let Some(entry) = state.channels.get_mut(channel) else { return };
        entry.raw.retain(|other| !Arc::ptr_eq(other, inbox));
        state.give_up(channel);
        drop(state);
        self.changed.notify_one();
    }

    /// A notification arrived: to the stream it announces, and to who listens to the channel as it is.
    pub(crate) fn heard(&self, engine: &Engine, channel: &ChannelIdentifier, payload: &Arc<str>) {
        let (topic, ignored) = {
            let state = self.state();
            let Some(entry) = state.channels.get(channel) else { return };
            entry.raw.iter().for_each(|inbox| inbox.push(payload));
            if entry.streams.is_empty() {
                return;
            }
            match wire::decode(payload) {
                None => (None, true),
                Some(announcement) => match state.topics.get(&announcement.stream) {
                    Some(subscribed) if subscribed.channel == *channel => {
                        (Some((subscribed.topic.clone(), announcement)), false)
                    }
                    // A stream on a shared channel that nobody here wants, or a lie about the stream.
                    _ => (None, self.naming.stream(&announcement.stream) != *channel),
                },
            }
        };
        if ignored {
            engine.observer.counters.payloads_ignored.add(1);
        }
        if let Some((topic, announcement)) = topic {
            topic.announced(engine, announcement);
        }
    }

    pub(crate) fn next_command(&self, most: usize) -> Option<Command> {
        self.state().registry.next_command(most)
    }

    /// LISTEN was acknowledged. Gives the topics that these channels carry.
    pub(crate) fn listened(&self, channels: &[ChannelIdentifier]) -> Vec<Arc<TopicHandle>> {
        let mut guard = self.state();
        let state = &mut *guard;
        state.registry.listened(channels);
        let mut topics = Vec::new();
        for channel in channels {
            let Some(entry) = state.channels.get(channel) else { continue };
            entry.listening.send_replace(Listening::Yes);
            topics.extend(entry.streams.iter().filter_map(|s| Some(state.topics.get(s)?.topic.clone())));
        }
        topics
    }

    pub(crate) fn unlistened(&self, channels: &[ChannelIdentifier]) {
        self.state().registry.unlistened(channels);
    }

    pub(crate) fn unlisten_failed(&self, channels: &[ChannelIdentifier]) {
        let mut state = self.state();
        state.registry.stuck(channels);
        // The registration stays, so who came meanwhile is heard.
        for channel in channels {
            if let Some(entry) = state.channels.get(channel) {
                entry.listening.send_replace(Listening::Yes);
            }
        }
    }

    /// LISTEN was refused; who waits for the channel at fault is told.
    pub(crate) fn refused(&self, channels: &[ChannelIdentifier], error: &Error) {
        let mut state = self.state();
        if let Some(channel) = state.registry.refused(channels)
            && let Some(entry) = state.channels.get(&channel)
        {
            entry.listening.send_replace(Listening::Refused(Arc::new(error.replicate())));
        }
    }

    /// Whether there is no use in listening.
    pub(crate) fn set_deaf(&self, deaf: bool) {
        let mut state = self.state();
        if std::mem::replace(&mut state.deaf, deaf) == deaf || state.closed.is_some() {
            return;
        }
        for channel in state.channels.values() {
            channel.listening.send_if_modified(|listening| {
                let change = match (deaf, &*listening) {
                    (true, Listening::NotYet) => Listening::Deaf,
                    (false, Listening::Deaf) => Listening::NotYet,
                    _ => return false,
                };
                *listening = change;
                true
            });
        }
    }

    pub(crate) fn has_refused(&self) -> bool {
        self.state().registry.has_refused()
    }

    pub(crate) fn retry_refused(&self) {
        self.state().registry.retry_refused();
    }

    pub(crate) fn session_lost(&self) {
        let mut state = self.state();
        state.registry.session_lost();
        state.deaf = false;
        if state.closed.is_none() {
            state.channels.values().for_each(|c| drop(c.listening.send_replace(Listening::NotYet)));
        }
        let topics: Vec<_> = state.topics.values().map(|s| s.topic.clone()).collect();
        drop(state);
        topics.iter().for_each(|topic| topic.with(|state| state.topic.session_lost()));
    }

    /// The topics whose start is fixed, with where they are.
    pub(crate) fn started(&self) -> Vec<Arc<TopicHandle>> {
        self.state().topics.values().map(|s| s.topic.clone()).collect()
    }

    /// How many channels should be listened to.
    pub(crate) fn channels(&self) -> usize {
        self.state().registry.wanted()
    }

    /// How many subscriptions read from the store.
    pub(crate) fn behind(&self) -> usize {
        self.started().iter().map(|t| t.with(|s| s.feed.behind())).sum()
    }

    pub(crate) fn diagnose(&self) -> Vec<StreamDiagnosis> {
        let look = |topic: Arc<TopicHandle>| {
            topic.with(|state| StreamDiagnosis {
                stream: topic.stream.clone(),
                subscribers: state.feed.readers(),
                behind: state.feed.behind(),
                tail: state.topic.tail().map(|t| t.sequence),
                known: state.topic.known(),
                held: state.topic.held(),
                kept: state.feed.len(),
                kept_bytes: state.feed.bytes(),
            })
        };
        self.started().into_iter().map(look).collect()
    }

    /// Every subscription ends, and none can begin.
    pub(crate) fn close(&self, reason: CloseReason) {
        let (topics, raw) = {
            let mut state = self.state();
            state.closed.get_or_insert(reason);
            let topics: Vec<_> = state.topics.values().map(|s| s.topic.clone()).collect();
            let raw: Vec<_> = state.channels.values().flat_map(|c| c.raw.iter().cloned()).collect();
            let gone = Arc::new(Error::shut_down("subscribe"));
            state.channels.values().for_each(|c| drop(c.listening.send_replace(Listening::Refused(gone.clone()))));
            (topics, raw)
        };
        topics.iter().for_each(|topic| topic.close(reason));
        raw.iter().for_each(|inbox| inbox.close());
    }
}

impl State {
    fn channel(&mut self, channel: &ChannelIdentifier) -> &mut Channel {
        self.channels.entry(channel.clone()).or_insert_with(|| Channel {
            listening: watch::Sender::new(if self.registry.is_listening(channel) {
                Listening::Yes
            } else if self.deaf {
                Listening::Deaf
            } else {
                Listening::NotYet
            }),
            streams: Vec::new(),
            raw: Vec::new(),
        })
    }

    fn give_up(&mut self, channel: &ChannelIdentifier) {
        self.registry.release(channel);
        if self.channels.get(channel).is_some_and(|c| c.streams.is_empty() && c.raw.is_empty()) {
            self.channels.remove(channel);
        }
    }
}

impl Hub {
    /// Waits until the channel is listened to; `false` where it cannot be, and would not be heard.
    pub(crate) async fn wait_listening(
        engine: &Engine,
        listening: &mut watch::Receiver<Listening>,
        deadline: MonoTime,
        operation: &'static str,
    ) -> Result<bool> {
        let settled = listening.wait_for(|l| !matches!(l, Listening::NotYet));
        let settled = tokio::select! {
            biased;
            settled = settled => settled.map(|l| l.clone()),
            () = engine.clock.sleep_until(deadline) => {
                return Err(Error::timeout(operation, Step::Listen, engine.config.subscribe_timeout));
            }
        };
        match settled {
            Ok(Listening::Yes) => Ok(true),
            Ok(Listening::Deaf) => Ok(false),
            Ok(Listening::Refused(error)) => Err(error.replicate()),
            Ok(Listening::NotYet) | Err(_) => Err(Error::shut_down(operation)),
        }
    }
}

/// A share in a topic: while one is held, its stream is listened to.
#[derive(Debug)]
pub(crate) struct TopicLease {
    pub(crate) engine: Arc<Engine>,
    pub(crate) topic: Arc<TopicHandle>,
    pub(crate) listening: watch::Receiver<Listening>,
}

impl Drop for TopicLease {
    fn drop(&mut self) {
        self.engine.hub.release(&self.topic.stream);
    }
}
