//! What becomes of a notification on its way.

use std::collections::HashSet;
use std::time::Duration;

use firehose_core::{ChannelIdentifier, MonoTime, Notification};
use rand::RngExt;
use rand::rngs::StdRng;

use crate::random::Seed;

/// The faults of a wire. Each draws from a source of its own.
#[derive(Debug)]
pub(crate) struct WireRules {
    pub(crate) drop_next: u64,
    pub(crate) drop_all: bool,
    pub(crate) drop_channels: HashSet<ChannelIdentifier>,
    pub(crate) drop_with: f64,
    pub(crate) duplicate_with: f64,
    /// The least and the most that a notification is delayed by.
    pub(crate) delay: (Duration, Duration),
    /// How many waiting notifications the next one is drawn from.
    pub(crate) window: usize,
    sources: Sources,
}

#[derive(Debug)]
struct Sources {
    drop: StdRng,
    duplicate: StdRng,
    delay: StdRng,
    shuffle: StdRng,
}

impl WireRules {
    /// No faults.
    pub(crate) fn new(seed: Seed) -> Self {
        let sources = Sources {
            drop: seed.source("wire: drop"),
            duplicate: seed.source("wire: duplicate"),
            delay: seed.source("wire: delay"),
            shuffle: seed.source("wire: shuffle"),
        };
        Self {
            drop_next: 0,
            drop_all: false,
            drop_channels: HashSet::new(),
            drop_with: 0.0,
            duplicate_with: 0.0,
            delay: (Duration::ZERO, Duration::ZERO),
            window: 1,
            sources,
        }
    }

    /// Ends every fault; the sources go on where they are.
    pub(crate) fn heal(&mut self) {
        self.drop_next = 0;
        self.drop_all = false;
        self.drop_channels.clear();
        self.drop_with = 0.0;
        self.duplicate_with = 0.0;
        self.delay = (Duration::ZERO, Duration::ZERO);
        self.window = 1;
    }

    /// When the notification arrives: not at all, once or twice.
    pub(crate) fn arrivals(&mut self, notification: &Notification, now: MonoTime) -> Vec<MonoTime> {
        if self.drops(notification) {
            return Vec::new();
        }
        let copies = if happens(self.duplicate_with, &mut self.sources.duplicate) { 2 } else { 1 };
        (0..copies).map(|_| now + self.drawn_delay()).collect()
    }

    /// Which of the first `waiting` notifications is read next.
    pub(crate) fn pick(&mut self, waiting: usize) -> usize {
        if waiting <= 1 { 0 } else { self.sources.shuffle.random_range(0..waiting) }
    }

    fn drops(&mut self, notification: &Notification) -> bool {
        if self.drop_next > 0 {
            self.drop_next -= 1;
            return true;
        }
        self.drop_all
            || self.drop_channels.contains(&notification.channel)
            || happens(self.drop_with, &mut self.sources.drop)
    }

    fn drawn_delay(&mut self) -> Duration {
        let (least, most) = self.delay;
        if least == most { least } else { self.sources.delay.random_range(least..=most) }
    }
}

/// Draws only where something can happen, so that a fault that is off shifts nothing.
fn happens(probability: f64, source: &mut StdRng) -> bool {
    probability > 0.0 && source.random_bool(probability.min(1.0))
}
