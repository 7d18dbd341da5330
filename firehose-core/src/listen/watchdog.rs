//! Whether the session lives: a question goes out in time, and an answer has to come back. Pure.

use std::time::Duration;

use crate::backend::MonoTime;

/// How a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pulse {
    /// It showed life lately.
    Fine,
    /// A ping has not come back in its time.
    Silent,
    /// It has been silent for so long that it is given up.
    Dead,
}

/// When to ping, and what the silence means.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// A ping goes out so often, and has as long to come back.
    every: Duration,
    dead_after: Duration,
    last_life: MonoTime,
    asked: Option<MonoTime>,
    next: MonoTime,
}

impl Watchdog {
    /// A session that began `now`. It is given up so early that there is time for a new one before `deadline`.
    pub(crate) fn new(interval: Duration, deadline: Duration, now: MonoTime) -> Self {
        let every = interval / 2;
        let dead_after = deadline.saturating_sub(every).max(every);
        Self { every, dead_after, last_life: now, asked: None, next: now + every }
    }

    /// The other end said something.
    pub(crate) fn life(&mut self, now: MonoTime) {
        self.last_life = now;
    }

    /// Whether a ping is to go out now; it counts as sent.
    pub(crate) fn ask(&mut self, now: MonoTime) -> bool {
        let due = self.asked.is_none() && now >= self.next;
        if due {
            self.asked = Some(now);
        }
        due
    }

    /// The ping came back, or failed.
    pub(crate) fn answered(&mut self, well: bool, now: MonoTime) {
        self.asked = None;
        self.next = now;
        if well {
            self.last_life = now;
            self.next = now + self.every;
        }
    }

    pub(crate) fn pulse(&self, now: MonoTime) -> Pulse {
        if now.since(self.last_life) >= self.dead_after {
            return Pulse::Dead;
        }
        // Pings that fail one after the other leave no time between them in which all seems well.
        if now.since(self.last_life) >= self.every * 2 {
            return Pulse::Silent;
        }
        Pulse::Fine
    }

    /// When to look again.
    pub(crate) fn wake(&self, now: MonoTime) -> MonoTime {
        let limit = match self.pulse(now) {
            Pulse::Fine => self.last_life + self.every * 2,
            Pulse::Silent | Pulse::Dead => self.last_life + self.dead_after,
        };
        if self.asked.is_none() { limit.min(self.next) } else { limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> MonoTime {
        MonoTime::new(Duration::from_secs(seconds))
    }

    fn watchdog() -> Watchdog {
        Watchdog::new(Duration::from_secs(10), Duration::from_secs(60), at(0))
    }

    #[test]
    fn a_ping_each_half_interval_while_it_is_answered() {
        let mut w = watchdog();
        assert_eq!((w.ask(at(4)), w.wake(at(4))), (false, at(5)));
        assert!(w.ask(at(5)));
        assert!(!w.ask(at(6)), "one at a time");
        w.answered(true, at(6));
        assert_eq!((w.pulse(at(6)), w.wake(at(6))), (Pulse::Fine, at(11)));
    }

    #[test]
    fn c10_silence_shows_within_one_interval_and_ends_in_time_for_a_new_session() {
        let mut w = watchdog();
        assert!(w.ask(at(5)));
        assert_eq!((w.pulse(at(9)), w.wake(at(9))), (Pulse::Fine, at(10)));
        assert_eq!((w.pulse(at(10)), w.wake(at(10))), (Pulse::Silent, at(55)));
        assert_eq!(w.pulse(at(54)), Pulse::Silent);
        assert_eq!(w.pulse(at(55)), Pulse::Dead);
    }

    #[test]
    fn any_word_of_the_other_end_is_life_and_a_failed_ping_is_not() {
        let mut w = watchdog();
        assert!(w.ask(at(5)));
        w.life(at(9));
        assert_eq!(w.pulse(at(18)), Pulse::Fine);
        w.answered(false, at(15));
        assert!(w.ask(at(15)), "asked again at once");
        assert_eq!(w.pulse(at(19)), Pulse::Silent);
        w.answered(true, at(20));
        assert_eq!(w.pulse(at(20)), Pulse::Fine);
    }

    #[test]
    fn a_deadline_as_short_as_the_interval_leaves_half_of_it() {
        let w = Watchdog::new(Duration::from_secs(10), Duration::from_secs(10), at(0));
        assert_eq!((w.pulse(at(4)), w.pulse(at(5))), (Pulse::Fine, Pulse::Dead));
    }
}
