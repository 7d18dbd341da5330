//! The transport of the in-memory backend: who listens to what, and what becomes of a notification on its way.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use firehose_core::{ChannelIdentifier, Clock, Error, ErrorKind, Notification, Result};

use crate::faults::WireRules;
use crate::inbox::{Inbox, Read, Unread};
use crate::random::Seed;

/// Carries a [`Database`](crate::Database)'s notifications to any number of sessions; clones are the same wire.
///
/// Left alone it loses nothing. What it should do wrong is said here; [`heal`](Self::heal) ends it. A notification that
/// is dropped, doubled or delayed is so for all sessions alike.
///
/// ```
/// use firehose_core::{ChannelIdentifier, ListenEvent};
/// use firehose_testkit::Testkit;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let testkit = Testkit::new(1);
/// let listener = testkit.backend().listener.ok_or("every backend of a testkit listens")?;
/// let mut session = listener.connect().await?;
/// let channel = ChannelIdentifier::new("news")?;
/// session.control.listen(&[channel.clone()]).await?;
///
/// testkit.wire().drop_next(1);
/// testkit.database().announce_raw(channel.clone(), "lost");
/// testkit.database().announce_raw(channel, "heard");
/// match session.events.next().await {
///     ListenEvent::Notification { payload, .. } => assert_eq!(&*payload, "heard"),
///     ListenEvent::Lost(error) => return Err(error.into()),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Wire {
    bus: Arc<Mutex<Bus>>,
    clock: Arc<dyn Clock>,
}

struct Bus {
    /// In the order of their opening, so that a run can be repeated exactly.
    sessions: BTreeMap<u64, Arc<Inbox>>,
    listening: HashMap<ChannelIdentifier, BTreeSet<u64>>,
    opened: u64,
    rules: WireRules,
    /// How much a session may leave unread.
    bound: usize,
    /// After how many events each of the next sessions is cut.
    cuts: VecDeque<u64>,
}

impl Wire {
    /// The longest payload, that of PostgreSQL's NOTIFY.
    pub const MAX_PAYLOAD_BYTES: usize = 7_999;

    /// How many notifications a session may leave unread before it is lost, unless [`set_bound`](Self::set_bound) says
    /// otherwise.
    pub const DEFAULT_BOUND: usize = 65_536;

    pub(crate) fn new(seed: u64, clock: Arc<dyn Clock>) -> Self {
        let bus = Bus {
            sessions: BTreeMap::new(),
            listening: HashMap::new(),
            opened: 0,
            rules: WireRules::new(Seed::new(seed)),
            bound: Self::DEFAULT_BOUND,
            cuts: VecDeque::new(),
        };
        Self { bus: Arc::new(Mutex::new(bus)), clock }
    }

    /// Loses the next `count` notifications.
    pub fn drop_next(&self, count: u64) {
        self.bus().rules.drop_next += count;
    }

    /// Loses every notification from now on.
    pub fn drop_all(&self) {
        self.bus().rules.drop_all = true;
    }

    /// Loses every notification on `channel` from now on.
    pub fn drop_channel(&self, channel: ChannelIdentifier) {
        self.bus().rules.drop_channels.insert(channel);
    }

    /// Loses notifications with `probability` from now on, from 0 to 1.
    pub fn drop_with(&self, probability: f64) {
        self.bus().rules.drop_with = probability;
    }

    /// Delivers notifications twice with `probability` from now on, from 0 to 1.
    pub fn duplicate_with(&self, probability: f64) {
        self.bus().rules.duplicate_with = probability;
    }

    /// From now on a session reads any one of the first `window` notifications that wait for it; 1 keeps the order.
    pub fn shuffle(&self, window: usize) {
        self.bus().rules.window = window.max(1);
    }

    /// Delivers notifications `by` later on the clock, from now on.
    pub fn delay(&self, by: Duration) {
        self.delay_between(by, by);
    }

    /// Delivers each notification later by a time drawn between the two, so that they overtake each other.
    pub fn delay_between(&self, least: Duration, most: Duration) {
        self.bus().rules.delay = (least, most.max(least));
    }

    /// Ends every fault of the wire. What is lost stays lost; what is delayed arrives when it was going to.
    pub fn heal(&self) {
        let mut bus = self.bus();
        bus.rules.heal();
        bus.cuts.clear();
    }

    /// Cuts every session: each is lost now, with all that it has not read.
    pub fn cut(&self) {
        self.cut_where(|_| true);
    }

    /// Cuts the next session to be opened after its `events`th notification. Called again, it is the session after that.
    pub fn cut_next_session_after(&self, events: u64) {
        self.bus().cuts.push_back(events);
    }

    /// Makes every open session half-open, as when packets vanish on the way: it hears nothing, its commands do not end,
    /// and nobody is told. Sessions opened later are well.
    pub fn freeze(&self) {
        self.freeze_where(|_| true);
    }

    /// Forgets what every session listens to, and tells nobody: as `UNLISTEN *` that someone else runs on it.
    pub fn forget_listens(&self) {
        self.bus().listening.clear();
    }

    /// Sets how many notifications a session may leave unread before it is lost.
    pub fn set_bound(&self, bound: usize) {
        self.bus().bound = bound;
    }

    /// How many sessions are open.
    pub fn session_count(&self) -> usize {
        self.bus().sessions.len()
    }

    /// The channels that some session listens to.
    pub fn channels(&self) -> Vec<ChannelIdentifier> {
        let mut channels: Vec<_> = self.bus().listening.keys().cloned().collect();
        channels.sort();
        channels
    }

    pub(crate) fn cut_where(&self, chosen: impl Fn(u32) -> bool) {
        let mut bus = self.bus();
        let numbers: Vec<u64> = bus.sessions.iter().filter(|(_, s)| chosen(s.process())).map(|(&n, _)| n).collect();
        for number in numbers {
            bus.leave(number, Unread::Forget, cut);
        }
    }

    pub(crate) fn freeze_where(&self, chosen: impl Fn(u32) -> bool) {
        self.bus().sessions.values().filter(|session| chosen(session.process())).for_each(|session| session.freeze());
    }

    /// Refuses a payload that is too long.
    pub(crate) fn check(notification: &Notification) -> Result<()> {
        let bytes = notification.payload.len();
        if bytes <= Self::MAX_PAYLOAD_BYTES {
            return Ok(());
        }
        let message = format!("payload of {bytes} bytes, at most {} are allowed", Self::MAX_PAYLOAD_BYTES);
        Err(Error::new(ErrorKind::TooLarge, "notify", message))
    }

    /// Puts a notification on its way to the sessions that listen now.
    pub(crate) fn send(&self, notification: &Notification) {
        let now = self.clock.now();
        let mut bus = self.bus();
        let arrivals = bus.rules.arrivals(notification, now);
        let listening: Vec<u64> = bus.listening.get(&notification.channel).into_iter().flatten().copied().collect();
        let bound = bus.bound;
        for number in listening {
            let Some(inbox) = bus.sessions.get(&number).cloned() else { continue };
            if !arrivals.iter().all(|&at| inbox.push(at, notification, bound)) {
                bus.leave(number, Unread::Forget, overflown);
            }
        }
    }

    /// Opens a session of `process`; gives its number.
    pub(crate) fn open(&self, process: u32) -> (u64, Arc<Inbox>) {
        let mut bus = self.bus();
        bus.opened += 1;
        let number = bus.opened;
        let inbox = Arc::new(Inbox::new(process, bus.cuts.pop_front()));
        bus.sessions.insert(number, inbox.clone());
        (number, inbox)
    }

    /// Ends a session in good order: what arrived can still be read.
    pub(crate) fn close(&self, number: u64) {
        self.bus().leave(number, Unread::Keep, closed);
    }

    /// Cuts one session.
    pub(crate) fn cut_one(&self, number: u64) {
        self.bus().leave(number, Unread::Forget, cut);
    }

    pub(crate) fn listen(&self, number: u64, channels: &[ChannelIdentifier]) {
        let mut bus = self.bus();
        if bus.sessions.contains_key(&number) {
            for channel in channels {
                bus.listening.entry(channel.clone()).or_default().insert(number);
            }
        }
    }

    pub(crate) fn unlisten(&self, number: u64, channels: &[ChannelIdentifier]) {
        let mut bus = self.bus();
        for channel in channels {
            if let Some(sessions) = bus.listening.get_mut(channel) {
                sessions.remove(&number);
                if sessions.is_empty() {
                    bus.listening.remove(channel);
                }
            }
        }
    }

    pub(crate) fn registered(&self, number: u64) -> Vec<ChannelIdentifier> {
        let bus = self.bus();
        let mine = bus.listening.iter().filter(|(_, sessions)| sessions.contains(&number));
        let mut channels: Vec<_> = mine.map(|(channel, _)| channel.clone()).collect();
        channels.sort();
        channels
    }

    /// What a session can read now.
    pub(crate) fn read(&self, inbox: &Inbox) -> Read {
        let now = self.clock.now();
        let rules = &mut self.bus().rules;
        inbox.read(now, rules.window, |waiting| rules.pick(waiting))
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Never held over an await; an inbox's lock may be taken under it, never the other way around.
    fn bus(&self) -> MutexGuard<'_, Bus> {
        self.bus.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bus {
    fn leave(&mut self, number: u64, unread: Unread, why: fn() -> Error) {
        if let Some(inbox) = self.sessions.remove(&number) {
            inbox.lose(unread, why());
            self.listening.retain(|_, sessions| {
                sessions.remove(&number);
                !sessions.is_empty()
            });
        }
    }
}

fn cut() -> Error {
    Error::new(ErrorKind::ConnectionLost, "listen", "the connection was cut")
}

fn closed() -> Error {
    Error::new(ErrorKind::ConnectionLost, "listen", "the session was closed")
}

fn overflown() -> Error {
    Error::new(ErrorKind::ConnectionLost, "listen", "the session did not keep up")
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bus = self.bus();
        f.debug_struct("Wire")
            .field("sessions", &bus.sessions.len())
            .field("channels", &bus.listening.len())
            .field("rules", &bus.rules)
            .finish_non_exhaustive()
    }
}
