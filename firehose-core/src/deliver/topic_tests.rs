//! The rules of [`Topic`], one at a time.

use proptest::prelude::*;

use super::*;
use crate::deliver::delivery::Reset;
use crate::message::{Epoch, MessageId};

const GRACE: Duration = Duration::from_millis(10);

fn name() -> StreamName {
    StreamName::new("s").unwrap()
}

fn at(ms: u64) -> MonoTime {
    MonoTime::new(Duration::from_millis(ms))
}

fn head(epoch: i64, sequence: i64) -> Head {
    Head::new(Epoch(epoch), Sequence(sequence)).with_retained(Some(MessageId(100 + sequence)), None)
}

fn topic(head: Option<Head>) -> Topic {
    let limits = TopicLimits { grace: GRACE, pause: Duration::from_secs(1), held: 100, held_bytes: 1000, replay: true };
    let mut topic = Topic::new(name(), limits);
    topic.start(head.as_ref(), at(0));
    topic
}

fn message(epoch: i64, sequence: i64, id: i64) -> Arc<Message> {
    Arc::new(Message::new(MessageId(id), Epoch(epoch), Sequence(sequence), name(), "x".into()))
}

/// An announcement of the message with id 100 + sequence.
fn told(sequence: i64) -> Announcement {
    told_as(1, sequence, 100 + sequence)
}

fn told_as(epoch: i64, sequence: i64, id: i64) -> Announcement {
    Announcement {
        id: MessageId(id),
        epoch: Epoch(epoch),
        sequence: Sequence(sequence),
        stream: name(),
        data: Some("x".into()),
        at: None,
    }
}

fn page(messages: Vec<Arc<Message>>) -> Page {
    Page { messages, more: false }
}

fn rows(sequences: impl IntoIterator<Item = i64>) -> Page {
    page(sequences.into_iter().map(|s| message(1, s, 100 + s)).collect())
}

fn said(topic: &mut Topic) -> Vec<String> {
    let tell = |item: Item| match item {
        Item::Message(m) => m.sequence.to_string(),
        Item::Gap(gap, _) => format!("gap {}-{}", gap.from, gap.to),
        Item::Reset(Reset { reason, head, .. }, _) => format!("{reason:?} {head}"),
    };
    topic.take_items().map(tell).collect()
}

#[test]
fn the_next_is_handed_out_at_once_and_without_a_read() {
    let mut t = topic(Some(head(1, 5)));
    assert_eq!(t.announced(told(6), at(0)), None);
    assert_eq!(said(&mut t), ["6"]);
}

#[test]
fn a_duplicate_is_dropped_and_counted() {
    let mut t = topic(Some(head(1, 5)));
    t.announced(told(6), at(0));
    assert_eq!(t.announced(told(6), at(0)), None);
    assert_eq!(t.announced(told(5), at(0)), None, "the one that the start was fixed at");
    assert_eq!(t.announced(told(2), at(0)), None, "from before the start");
    assert_eq!((said(&mut t), t.take_tally().duplicates), (vec!["6".to_owned()], 3));
}

#[test]
fn what_comes_early_is_held_until_its_turn() {
    let mut t = topic(Some(head(1, 0)));
    assert_eq!(t.announced(told(3), at(0)), Some(at(10)), "a hole waits for its own notification");
    assert_eq!(t.announced(told(2), at(1)), None, "one read for all holes");
    t.announced(told(1), at(2));
    assert_eq!(said(&mut t), ["1", "2", "3"]);
    assert!(t.begin_read(at(10)).is_none(), "nothing is missing any more");
}

#[test]
fn a_hole_that_stays_is_read_once() {
    let mut t = topic(Some(head(1, 0)));
    t.announced(told(3), at(0));
    assert!(t.begin_read(at(9)).is_none(), "not before the grace is over");
    let read = t.begin_read(at(10)).unwrap();
    assert_eq!(read.from.sequence, Sequence(0));
    assert!(t.begin_read(at(11)).is_none(), "one read in flight");
    assert_eq!(t.page(&read, &rows([1, 2, 3]), at(12)), None);
    assert_eq!(said(&mut t), ["1", "2", "3"]);
}

#[test]
fn an_announcement_without_data_is_read_at_once() {
    let mut t = topic(Some(head(1, 5)));
    assert_eq!(t.announced(Announcement { data: None, ..told(6) }, at(3)), Some(at(3)));
    let read = t.begin_read(at(3)).unwrap();
    t.page(&read, &rows([6]), at(4));
    assert_eq!(said(&mut t), ["6"]);
}

#[test]
fn what_is_not_visible_yet_is_looked_for_again_and_is_no_gap() {
    let mut t = topic(Some(head(1, 5)));
    t.announced(told(8), at(0));
    let mut now = at(10);
    for look in 0..3 {
        let read = t.begin_read(now).unwrap();
        now = t.page(&read, &rows([]), now).unwrap_or_else(|| panic!("look {look}"));
    }
    let read = t.begin_read(now).unwrap();
    t.page(&read, &rows([6, 7, 8]), now);
    assert_eq!(said(&mut t), ["6", "7", "8"]);
}

#[test]
fn what_never_becomes_visible_is_forgotten() {
    let mut t = topic(Some(head(1, 5)));
    let mut due = t.announced(told(8), at(0));
    let mut reads = 0;
    while let Some(now) = due {
        let read = t.begin_read(now).unwrap();
        due = t.page(&read, &rows([]), now);
        reads += 1;
    }
    assert_eq!((reads, t.held(), said(&mut t)), (LOOKS + 1, 0, vec![]));
    t.announced(told(6), at(9_000));
    t.announced(told(7), at(9_000));
    assert_eq!(said(&mut t), ["6", "7"], "the one that was rolled back does not follow");
}

#[test]
fn the_sweep_finds_what_nobody_announced_and_counts_it() {
    let mut t = topic(Some(head(1, 5)));
    let seen = t.tail().unwrap();
    assert_eq!(t.swept(Some(&head(1, 7)), &seen, at(50), Why::Sweep), Some(at(50)));
    let read = t.begin_read(at(50)).unwrap();
    t.page(&read, &rows([6, 7]), at(51));
    assert_eq!((said(&mut t), t.take_tally().found), (vec!["6".to_owned(), "7".to_owned()], 2));
    assert_eq!(t.swept(Some(&head(1, 7)), &t.tail().unwrap(), at(60), Why::Sweep), None);
}

#[test]
fn a_head_that_passed_what_is_not_there_makes_a_gap() {
    let mut t = topic(Some(head(1, 5)));
    let seen = t.tail().unwrap();
    t.swept(Some(&head(1, 9)), &seen, at(0), Why::Sweep);
    let read = t.begin_read(at(0)).unwrap();
    t.page(&read, &rows([8, 9]), at(1));
    assert_eq!(said(&mut t), ["gap 6-7", "8", "9"]);
    let seen = t.tail().unwrap();
    t.swept(Some(&head(1, 12)), &seen, at(2), Why::Sweep);
    let read = t.begin_read(at(2)).unwrap();
    t.page(&read, &rows([]), at(3));
    assert_eq!(said(&mut t), ["gap 10-12"], "trimmed to nothing");
}

#[test]
fn an_epoch_is_believed_from_the_store_only() {
    let mut t = topic(Some(head(1, 5)));
    assert_eq!(t.announced(told_as(2, 1, 900), at(0)), Some(at(10)));
    assert_eq!(said(&mut t), Vec::<String>::new());
    let read = t.begin_read(at(10)).unwrap();
    t.page(&read, &rows([]), at(11));
    assert_eq!(said(&mut t), Vec::<String>::new(), "the store knows of no other epoch");
    t.announced(told_as(2, 1, 900), at(20));
    let read = t.begin_read(at(30)).unwrap();
    t.page(&read, &page(vec![message(2, 1, 900)]), at(31));
    assert_eq!(said(&mut t), ["Recreated 1", "1"]);
    t.announced(told_as(2, 2, 901), at(32));
    assert_eq!(said(&mut t), ["2"]);
}

#[test]
fn a_stream_that_never_existed_is_read_at_its_first_announcement_and_is_no_reset() {
    let mut t = topic(None);
    assert_eq!(t.announced(told_as(7, 1, 900), at(0)), Some(at(0)));
    let read = t.begin_read(at(0)).unwrap();
    t.page(&read, &page(vec![message(7, 1, 900)]), at(1));
    t.announced(told_as(7, 2, 901), at(2));
    assert_eq!(said(&mut t), ["1", "2"]);
}

#[test]
fn c59_a_message_that_took_the_place_of_one_rolled_back_follows_a_reset() {
    let mut t = topic(Some(head(1, 100)));
    t.announced(told_as(1, 101, 203), at(0));
    assert_eq!(said(&mut t), ["101"], "announced, and rolled back");
    assert_eq!(t.announced(told_as(1, 101, 204), at(5)), Some(at(5)));
    let read = t.begin_read(at(5)).unwrap();
    assert_eq!(read.from.sequence, Sequence(100), "from before it");
    t.page(&read, &page(vec![message(1, 101, 204)]), at(6));
    assert_eq!(said(&mut t), ["Replaced 101", "101"]);
    t.announced(told_as(1, 102, 205), at(7));
    t.announced(told_as(1, 101, 203), at(8));
    assert_eq!(said(&mut t), ["102"]);
}

#[test]
fn a_phantom_announced_after_the_real_one_changes_nothing() {
    let mut t = topic(Some(head(1, 100)));
    t.announced(told(101), at(0));
    t.announced(told_as(1, 101, 999), at(1));
    let read = t.begin_read(at(1)).unwrap();
    t.page(&read, &rows([101]), at(2));
    assert_eq!(said(&mut t), ["101"]);
}

#[test]
fn a_phantom_at_the_head_is_found_by_a_full_sweep() {
    let mut t = topic(Some(head(1, 100)));
    t.announced(told_as(1, 101, 777), at(0));
    let seen = t.tail().unwrap();
    assert_eq!(t.swept(Some(&head(1, 101)), &seen, at(5), Why::Sweep), Some(at(5)));
    let read = t.begin_read(at(5)).unwrap();
    t.page(&read, &rows([101]), at(6));
    assert_eq!(said(&mut t), ["101", "Replaced 101", "101"]);
}

#[test]
fn what_is_heard_between_listen_and_head_is_kept() {
    let limits = TopicLimits { grace: GRACE, pause: Duration::from_secs(1), held: 100, held_bytes: 1000, replay: true };
    let mut t = Topic::new(name(), limits);
    for s in [5, 6, 7] {
        t.announced(told(s), at(0));
    }
    assert_eq!(t.start(Some(&head(1, 5)), at(1)), None);
    assert_eq!(said(&mut t), ["6", "7"]);
}

#[test]
fn a_database_that_went_back_is_a_reset_to_its_head() {
    let mut t = topic(Some(head(1, 100)));
    t.announced(told(101), at(0));
    let seen = t.tail().unwrap();
    let pending = t.swept(Some(&head(1, 120)), &seen, at(1), Why::Sweep).and_then(|now| t.begin_read(now)).unwrap();
    assert!(t.verified(Some(&head(1, 80)), Some(Anchor::Trimmed { oldest: None }), &seen, true));
    assert_eq!(said(&mut t), ["101", "WentBack 80"]);
    t.page(&pending, &rows([]), at(2));
    assert_eq!(said(&mut t), Vec::<String>::new(), "a read from before the reset means nothing after it");
    t.announced(told(81), at(3));
    assert_eq!(said(&mut t), ["81"]);
}

#[test]
fn a_page_with_more_is_followed_by_the_next() {
    let mut t = topic(Some(head(1, 0)));
    let seen = t.tail().unwrap();
    t.swept(Some(&head(1, 4)), &seen, at(0), Why::Replay);
    let read = t.begin_read(at(0)).unwrap();
    let due = t.page(&read, &Page { more: true, ..rows([1, 2]) }, at(1));
    assert_eq!(due, Some(at(1)));
    let read = t.begin_read(at(1)).unwrap();
    assert_eq!(t.page(&read, &rows([3, 4]), at(2)), None);
    assert_eq!((said(&mut t).len(), t.take_tally().replayed), (4, 4));
}

#[test]
fn a_read_that_failed_is_repeated_and_what_came_due_meanwhile_is_not_forgotten() {
    let mut t = topic(Some(head(1, 5)));
    t.announced(Announcement { data: None, ..told(6) }, at(0));
    let read = t.begin_read(at(0)).unwrap();
    assert_eq!(t.announced(Announcement { data: None, ..told(6) }, at(1)), None, "a read is in flight");
    assert_eq!(t.read_failed(&read, at(2)), Some(at(1)));
    let read = t.begin_read(at(2)).unwrap();
    t.page(&read, &rows([6]), at(3));
    assert_eq!(said(&mut t), ["6"]);
}

#[test]
fn what_is_held_is_bounded_and_the_rest_is_read() {
    let mut t = topic(Some(head(1, 0)));
    for s in 2..500 {
        t.announced(told(s), at(0));
    }
    assert_eq!(t.held(), 100);
    let read = t.begin_read(at(10)).unwrap();
    t.page(&read, &rows(1..500), at(11));
    assert_eq!(said(&mut t).len(), 499);
}

proptest! {
    /// G2 and G3: whatever is lost, doubled or shuffled, what comes out is 1, 2, 3, … and in the end all of it.
    #[test]
    fn any_order_any_loss_any_double(
        count in 1_i64..40,
        notes in proptest::collection::vec((1_i64..40, proptest::bool::ANY), 0..120),
        page_size in 1_usize..7,
    ) {
        let mut t = topic(Some(head(1, 0)));
        let (mut now, mut out) = (0, Vec::new());
        let store = |from: Sequence, visible: i64| {
            let all: Vec<i64> = (from.0 + 1..=visible).collect();
            Page { more: all.len() > page_size, ..rows(all.into_iter().take(page_size)) }
        };
        for (sequence, whole) in notes {
            if sequence > count { continue; }
            let mut note = told(sequence);
            if !whole { note.data = None; }
            now += 3;
            t.announced(note, at(now));
            if let Some(read) = t.begin_read(at(now)) {
                now += 1;
                t.page(&read, &store(read.from.sequence, count), at(now));
            }
            out.extend(said(&mut t));
        }
        let seen = t.tail().unwrap();
        t.swept(Some(&head(1, count)), &seen, at(now), Why::Sweep);
        for _ in 0..200 {
            now += 50;
            if let Some(read) = t.begin_read(at(now)) {
                t.page(&read, &store(read.from.sequence, count), at(now));
            }
        }
        out.extend(said(&mut t));
        let expected: Vec<String> = (1..=count).map(|s| s.to_string()).collect();
        prop_assert_eq!(out, expected);
    }
}

#[test]
fn after_a_lost_session_nothing_is_handed_out_before_the_store_said_that_the_history_goes_on() {
    let mut t = topic(Some(head(1, 10)));
    t.announced(told(11), at(0));
    let pending = t.announced(told(13), at(0)).and_then(|due| t.begin_read(due)).unwrap();
    t.session_lost();
    t.announced(told_as(1, 12, 900), at(20));
    t.page(&pending, &rows([12, 13]), at(21));
    assert_eq!(said(&mut t), ["11"], "neither a hint nor a read from before");
    assert!(t.begin_read(at(2_000)).is_none());
    let seen = t.tail().unwrap();
    assert!(t.verified(Some(&head(1, 12)), Some(Anchor::Other), &seen, true));
    assert_eq!(said(&mut t), ["WentBack 12"]);
}

#[test]
fn what_the_gem_announced_is_compared_with_the_store_and_replaced_where_it_never_was() {
    let mut t = topic(Some(head(1, 5)));
    t.announced(told_as(1, 6, 999), at(0));
    t.announced(told(7), at(1));
    assert_eq!(said(&mut t), ["6", "7"]);
    assert_eq!(t.doubtful(), [], "the store's head has not come so far");
    let tail = t.tail().unwrap();
    t.swept(Some(&head(1, 7)), &tail, at(1_000), Why::Sweep);
    let doubtful = t.doubtful();
    assert_eq!(doubtful.iter().map(|c| (c.sequence.0, c.id.unwrap().0)).collect::<Vec<_>>(), [(6, 999), (7, 107)]);
    assert!(t.compared(&doubtful[0], Anchor::Other, at(1_000)).is_some());
    assert_eq!(t.compared(&doubtful[1], Anchor::Same, at(1_000)), None);
    let read = t.begin_read(at(1_000)).unwrap();
    assert_eq!(read.from.sequence, Sequence(5));
    t.page(&read, &rows([6, 7]), at(1_001));
    assert_eq!(said(&mut t), ["Replaced 7", "6", "7"]);
    assert_eq!(t.doubtful(), []);
}

#[test]
fn a_phantom_at_the_end_is_no_proof_that_the_database_went_back() {
    let mut t = topic(Some(head(1, 5)));
    t.announced(told_as(1, 6, 999), at(0));
    assert_eq!(said(&mut t), ["6"]);
    t.session_lost();
    let (tail, proven) = (t.tail().unwrap(), t.proven().unwrap());
    assert_eq!((proven.sequence, proven.id), (Sequence(5), Some(MessageId(105))));
    assert!(t.verified(Some(&head(1, 5)), Some(Anchor::Same), &tail, true));
    assert_eq!(said(&mut t), Vec::<String>::new());
    t.announced(told(6), at(1));
    let read = t.begin_read(at(1)).unwrap();
    t.page(&read, &rows([6]), at(2));
    assert_eq!(said(&mut t), ["Replaced 6", "6"]);
}

#[test]
fn without_replay_an_outage_is_a_gap() {
    let limits = TopicLimits { grace: GRACE, pause: GRACE, held: 100, held_bytes: 1000, replay: false };
    let mut t = Topic::new(name(), limits);
    t.start(Some(&head(1, 5)), at(0));
    t.session_lost();
    let tail = t.tail().unwrap();
    t.announced(told(9), at(1));
    assert!(t.verified(Some(&head(1, 8)), Some(Anchor::Same), &tail, true));
    assert_eq!(t.swept(Some(&head(1, 8)), &tail, at(1), Why::Replay), None);
    assert_eq!(said(&mut t), ["gap 6-8", "9"]);
}
