//! Whether a position still means what it meant when it was taken. Pure.

use super::delivery::{Gap, GapReason, Item, ResetReason};
use crate::backend::{Anchor, Head};
use crate::cursor::Cursor;
use crate::message::{MessageId, Sequence};
use crate::stream::StreamName;

/// What became of the history that a cursor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It goes on.
    Same,
    /// The stream was deleted and created again.
    Recreated,
    /// The database went back in time.
    WentBack,
}

/// Compares `cursor` with the head of its stream and, where one was asked for, with its own row.
pub(crate) fn judge(cursor: &Cursor, head: Option<&Head>, anchor: Option<Anchor>) -> Verdict {
    let Some(head) = head else { return Verdict::Same };
    match cursor.epoch {
        Some(epoch) if epoch != head.epoch => return Verdict::Recreated,
        None if cursor.sequence == Sequence::ZERO => return Verdict::Same,
        _ => {}
    }
    if cursor.sequence > head.sequence {
        return Verdict::WentBack;
    }
    match anchor {
        None | Some(Anchor::Same) => Verdict::Same,
        Some(Anchor::Other) => Verdict::WentBack,
        // The epoch went between the two reads: the next read finds the new one.
        Some(Anchor::Gone) => Verdict::Same,
        Some(Anchor::Trimmed { oldest }) => match (oldest, cursor.id) {
            (Some((sequence, id)), Some(own)) if sequence > cursor.sequence && id < own => Verdict::WentBack,
            _ => Verdict::Same,
        },
    }
}

/// Where a subscription's first read begins, and what it is told before.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) cursor: Cursor,
    pub(crate) first: Option<Item>,
}

impl Plan {
    fn quiet(cursor: Cursor) -> Self {
        Self { cursor, first: None }
    }
}

/// [`Start::Now`](crate::Start::Now).
pub(crate) fn now(head: Option<&Head>) -> Plan {
    Plan::quiet(head.map_or(Cursor::BEGINNING, Head::cursor))
}

/// [`Start::Earliest`](crate::Start::Earliest).
pub(crate) fn earliest(head: Option<&Head>) -> Plan {
    match head.and_then(|head| Some((head.epoch, head.oldest?))) {
        Some((epoch, (oldest, _))) => Plan::quiet(Cursor::at(Some(epoch), oldest.previous())),
        None => now(head),
    }
}

/// [`Start::After`](crate::Start::After).
pub(crate) fn after(stream: &StreamName, cursor: Cursor, head: Option<&Head>, anchor: Option<Anchor>) -> Plan {
    let Some(head) = head else {
        // No stream: one that was deleted keeps its cursor, so that its next life is told as one.
        return Plan::quiet(if cursor.epoch.is_some() { cursor } else { Cursor::BEGINNING });
    };
    let (reason, after) = match judge(&cursor, Some(head), anchor) {
        Verdict::Same => return Plan::quiet(Cursor { epoch: cursor.epoch.or(Some(head.epoch)), ..cursor }),
        Verdict::Recreated => (ResetReason::Recreated, earliest(Some(head)).cursor),
        Verdict::WentBack => (ResetReason::WentBack, head.cursor()),
    };
    let mut cursor = cursor;
    let reset = Item::reset(stream, &mut cursor, reason, head.epoch, head.sequence, after);
    Plan { cursor, first: Some(reset) }
}

/// [`Start::AfterId`](crate::Start::AfterId): `next` is the first message of the stream with a higher id.
pub(crate) fn after_id(stream: &StreamName, id: MessageId, head: Option<&Head>, next: Option<Sequence>) -> Plan {
    let Some(head) = head else { return now(None) };
    let mut plan = match next {
        Some(next) => Plan::quiet(Cursor::at(Some(head.epoch), next.previous())),
        None => now(Some(head)),
    };
    let gone = match head.oldest {
        Some((oldest, oldest_id)) => (oldest_id > id).then(|| oldest.previous()),
        // Nothing is retained, and nobody knows whether the id came before what was.
        None => Some(head.sequence),
    };
    if let Some(to) = gone.filter(|to| *to > Sequence::ZERO) {
        let from = Sequence(1);
        let gap = Gap { stream: stream.clone(), from, to, exact: false, reason: GapReason::Trimmed };
        plan.first = Some(Item::Gap(gap, plan.cursor));
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Epoch;

    fn head(epoch: i64, sequence: i64, oldest: Option<(i64, i64)>) -> Head {
        let last = oldest.map(|_| MessageId(sequence * 10));
        Head::new(Epoch(epoch), Sequence(sequence))
            .with_retained(last, oldest.map(|(s, i)| (Sequence(s), MessageId(i))))
    }

    fn cursor(epoch: i64, sequence: i64, id: i64) -> Cursor {
        Cursor { id: Some(MessageId(id)), ..Cursor::at(Some(Epoch(epoch)), Sequence(sequence)) }
    }

    fn trimmed(oldest: Option<(i64, i64)>) -> Option<Anchor> {
        Some(Anchor::Trimmed { oldest: oldest.map(|(s, i)| (Sequence(s), MessageId(i))) })
    }

    #[test]
    fn the_verdict_follows_the_store_alone() {
        let h = head(1, 9, Some((1, 10)));
        assert_eq!(judge(&cursor(1, 5, 50), Some(&h), Some(Anchor::Same)), Verdict::Same);
        assert_eq!(judge(&cursor(1, 5, 51), Some(&h), Some(Anchor::Other)), Verdict::WentBack);
        assert_eq!(judge(&cursor(1, 10, 100), Some(&h), None), Verdict::WentBack);
        assert_eq!(judge(&cursor(2, 5, 50), Some(&h), Some(Anchor::Gone)), Verdict::Recreated);
        assert_eq!(judge(&cursor(2, 5, 50), None, Some(Anchor::Gone)), Verdict::Same, "no stream, nothing to say yet");
    }

    #[test]
    fn a_trimmed_row_is_a_reset_exactly_if_the_oldest_has_a_higher_sequence_and_a_lower_id() {
        let h = head(1, 9, Some((7, 70)));
        assert_eq!(judge(&cursor(1, 5, 50), Some(&h), trimmed(Some((7, 70)))), Verdict::Same);
        assert_eq!(judge(&cursor(1, 5, 500), Some(&h), trimmed(Some((7, 70)))), Verdict::WentBack);
        assert_eq!(judge(&cursor(1, 5, 500), Some(&h), trimmed(None)), Verdict::Same, "trimmed to nothing");
    }

    #[test]
    fn starts() {
        let s = StreamName::new("s").unwrap();
        let h = head(1, 9, Some((7, 70)));
        assert_eq!(now(Some(&h)).cursor, cursor(1, 9, 90));
        assert_eq!(now(None).cursor, Cursor::BEGINNING);
        assert_eq!(earliest(Some(&h)).cursor, Cursor::at(Some(Epoch(1)), Sequence(6)));
        let back = after(&s, cursor(1, 12, 120), Some(&h), None);
        assert_eq!(back.cursor, cursor(1, 9, 90), "goes on after the head");
        assert!(
            matches!(back.first, Some(Item::Reset(r, _)) if r.reason == ResetReason::WentBack && r.head == Sequence(9))
        );
        let again = after(&s, cursor(4, 2, 20), Some(&h), None);
        assert_eq!(again.cursor.sequence, Sequence(6), "goes on with the first retained");
        assert!(
            matches!(again.first, Some(Item::Reset(r, _)) if r.reason == ResetReason::Recreated && r.epoch == Epoch(1))
        );
    }

    #[test]
    fn an_id_is_never_a_reset_and_its_gap_is_inexact() {
        let s = StreamName::new("s").unwrap();
        let empty = Head::new(Epoch(1), Sequence(6));
        let plan = after_id(&s, MessageId(20), Some(&empty), None);
        assert!(
            matches!(plan.first, Some(Item::Gap(ref g, _)) if !g.exact && g.to == Sequence(6)),
            "trimmed to nothing"
        );
        let h = head(1, 9, Some((7, 70)));
        let plan = after_id(&s, MessageId(20), Some(&h), Some(Sequence(7)));
        assert!(
            matches!(plan.first, Some(Item::Gap(ref g, _)) if !g.exact && g.from == Sequence(1) && g.to == Sequence(6))
        );
        assert_eq!(plan.cursor.sequence, Sequence(6));
        assert_eq!(after_id(&s, MessageId(75), Some(&h), Some(Sequence(8))).first, None);
        assert_eq!(
            after_id(&s, MessageId(i64::MAX), Some(&h), None).cursor,
            cursor(1, 9, 90),
            "an absurd id starts now"
        );
    }
}
