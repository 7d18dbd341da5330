//! Whether a notification takes the whole way: sent as all are, heard as all are. Pure.
//!
//! A connection that answers proves little: behind a transaction pooler LISTEN succeeds, and nothing is ever heard.

use std::time::Duration;

use crate::backend::MonoTime;
use crate::observe::Degradation;

/// How long a probe may take. As long are the LISTENs of the streams held back at first.
const PATIENCE: Duration = Duration::from_secs(1);

/// The pause between two probes of which none was heard yet, within that time.
const REPEAT: Duration = Duration::from_millis(250);

/// What the driver does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// LISTEN on the probe's channel.
    Listen,
    /// Send a notification to it.
    Notify,
    /// Ask what the other end believes the session listens to.
    Registered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Something was asked, and its answer is awaited.
    Asking(Ask),
    /// To be asked at its time.
    Next(Ask, MonoTime),
}

/// The probe of one session.
#[derive(Debug)]
pub(crate) struct Probe {
    interval: Duration,
    phase: Phase,
    /// When this round gives up.
    until: MonoTime,
    /// Whether it was heard in this session.
    proven: bool,
    /// Whether a notification could be sent in this round.
    sent: bool,
    verdict: Option<Degradation>,
}

impl Probe {
    pub(crate) fn new(interval: Duration, now: MonoTime) -> Self {
        let phase = Phase::Next(Ask::Listen, now);
        Self { interval, phase, until: now + PATIENCE, proven: false, sent: false, verdict: None }
    }

    /// Why messages are not heard as they should be.
    pub(crate) fn verdict(&self) -> Option<Degradation> {
        self.verdict
    }

    /// Whether the streams are not to be listened to: not yet, or there is no use in it.
    pub(crate) fn holds_back(&self) -> bool {
        match self.verdict {
            None => !self.proven,
            Some(verdict) => verdict == Degradation::TransactionPooler,
        }
    }

    /// What to do now; its answer is told by one of the methods below.
    pub(crate) fn next(&mut self, now: MonoTime) -> Option<Ask> {
        match self.phase {
            Phase::Next(ask, at) if at <= now => {
                self.phase = Phase::Asking(ask);
                Some(ask)
            }
            _ => None,
        }
    }

    /// When to look again.
    pub(crate) fn wake(&self) -> Option<MonoTime> {
        match self.phase {
            Phase::Next(_, at) => Some(at),
            Phase::Asking(_) => None,
        }
    }

    /// LISTEN was acknowledged, or refused.
    pub(crate) fn listened(&mut self, well: bool, now: MonoTime) {
        if well {
            self.begin(now);
        } else {
            self.conclude(Degradation::Unheard, Ask::Listen, now);
        }
    }

    /// The notification was sent, or could not be.
    pub(crate) fn sent(&mut self, well: bool, now: MonoTime) {
        if self.phase != Phase::Asking(Ask::Notify) {
            return;
        }
        self.sent |= well;
        self.phase = if now < self.until {
            Phase::Next(Ask::Notify, (now + REPEAT).min(self.until))
        } else {
            Phase::Next(Ask::Registered, now)
        };
    }

    /// It was heard.
    pub(crate) fn heard(&mut self, now: MonoTime) {
        self.proven = true;
        self.verdict = None;
        self.phase = Phase::Next(Ask::Notify, now + self.interval);
        self.sent = false;
        self.until = now + self.interval + PATIENCE;
    }

    /// Whether the other end believes the session listens; `None` where it cannot say.
    pub(crate) fn registered(&mut self, listening: Option<bool>, now: MonoTime) {
        if self.phase != Phase::Asking(Ask::Registered) {
            return;
        }
        let verdict = match (self.sent, listening) {
            (false, _) => Degradation::NotifyFailed,
            (true, Some(false)) if self.proven => Degradation::RegistrationLost,
            (true, Some(_)) if !self.proven => Degradation::TransactionPooler,
            _ => Degradation::Unheard,
        };
        self.conclude(verdict, Ask::Notify, now);
    }

    fn conclude(&mut self, verdict: Degradation, again: Ask, now: MonoTime) {
        self.verdict = Some(verdict);
        let at = now + PATIENCE.min(self.interval);
        self.phase = Phase::Next(again, at);
        self.sent = false;
        self.until = at + PATIENCE;
    }

    fn begin(&mut self, now: MonoTime) {
        self.phase = Phase::Next(Ask::Notify, now);
        self.sent = false;
        self.until = now + PATIENCE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> MonoTime {
        MonoTime::new(Duration::from_millis(ms))
    }

    fn probe() -> Probe {
        let mut p = Probe::new(Duration::from_secs(30), at(0));
        assert_eq!(p.next(at(0)), Some(Ask::Listen));
        p.listened(true, at(1));
        p
    }

    /// Sends without being heard, until it asks; gives when.
    fn unheard(p: &mut Probe, from: u64, well: bool) -> u64 {
        for ms in from.. {
            match p.next(at(ms)) {
                Some(Ask::Notify) => p.sent(well, at(ms)),
                Some(Ask::Registered) => return ms,
                _ => {}
            }
        }
        unreachable!()
    }

    #[test]
    fn it_is_heard_and_streams_may_be_listened_to() {
        let mut p = probe();
        assert!(p.holds_back());
        assert_eq!(p.next(at(1)), Some(Ask::Notify));
        p.heard(at(2));
        p.sent(true, at(3));
        assert_eq!((p.holds_back(), p.verdict(), p.wake()), (false, None, Some(at(30_002))));
    }

    #[test]
    fn c20_one_that_was_never_heard_is_named_a_pooler_after_a_second() {
        let mut p = probe();
        let ms = unheard(&mut p, 1, true);
        assert!((1_000..=1_300).contains(&ms), "{ms}");
        p.registered(Some(true), at(ms));
        assert_eq!((p.verdict(), p.holds_back()), (Some(Degradation::TransactionPooler), true));
        p.heard(at(ms + 500));
        assert_eq!((p.verdict(), p.holds_back()), (None, false), "back by itself");
    }

    #[test]
    fn what_is_not_heard_any_more_has_other_causes() {
        for (well, registered, verdict) in [
            (true, Some(false), Degradation::RegistrationLost),
            (true, Some(true), Degradation::Unheard),
            (true, None, Degradation::Unheard),
            (false, Some(true), Degradation::NotifyFailed),
        ] {
            let mut p = probe();
            p.heard(at(2));
            let ms = unheard(&mut p, 30_002, well);
            p.registered(registered, at(ms));
            assert_eq!(p.verdict(), Some(verdict));
            assert!(!p.holds_back());
        }
    }

    #[test]
    fn an_old_answer_changes_nothing() {
        let mut p = probe();
        let ms = unheard(&mut p, 1, true);
        p.heard(at(ms));
        p.registered(Some(false), at(ms + 1));
        assert_eq!(p.verdict(), None);
    }
}
