//! The sweep that asks only what changed: it finds what a sweep of all heads finds, as soon, and reads next to nothing.

use async_trait::async_trait;
use firehose_testkit::{MemoryStore, Operation, Phase, Testkit};

use super::*;

/// A sweep's worth, and the first one a little later than an engine's start.
const SWEEP: Duration = Duration::from_secs(1);

/// How many heads were asked for since the trace was cleared.
fn heads_read(t: &Testkit) -> usize {
    let of_heads = |entry: &&firehose_testkit::Traced| entry.is(Operation::Heads, Phase::Started);
    t.faults().trace().iter().filter(of_heads).map(|entry| entry.about.len()).sum()
}

fn calls(t: &Testkit, operation: Operation) -> usize {
    t.faults().trace().iter().filter(|entry| entry.is(operation, Phase::Started)).count()
}

/// An engine with `idle` streams that nothing happens on, after a sweep of all of them: the next `nine` are not of all.
/// Nothing is probed: where announcements are lost on purpose, a lost probe would make the sweeps faster.
async fn settled(t: &Testkit, idle: usize) -> (Firehose, Vec<Subscription>) {
    let f = engine_with(t, Config { probe_interval: Duration::from_secs(3_600), ..Config::default() }).await;
    let mut subscriptions = Vec::new();
    for n in 0..idle {
        subscriptions.push(f.subscribe(format!("idle {n}")).await.unwrap());
    }
    // The tenth is of all.
    t.clock().advance(10 * SWEEP + ms(100)).await;
    t.faults().clear_trace();
    (f, subscriptions)
}

#[tokio::test(start_paused = true)]
async fn an_idle_sweep_reads_no_head_and_the_tenth_reads_all() {
    let t = Testkit::new(1);
    let (f, _subscriptions) = settled(&t, 200).await;
    t.clock().advance(9 * SWEEP).await;
    assert_eq!((calls(&t, Operation::ChangedSince), heads_read(&t)), (9, 0));
    t.clock().advance(SWEEP).await;
    assert_eq!((calls(&t, Operation::ChangedSince), heads_read(&t)), (10, 200));
    // What came by its notification is no work either.
    t.faults().clear_trace();
    for n in 0..9 {
        f.broadcast("idle 7", n.to_string()).await.unwrap();
        t.clock().advance(SWEEP).await;
    }
    assert_eq!(heads_read(&t), 0);
}

#[tokio::test(start_paused = true)]
async fn c08_a_lost_notification_is_found_by_the_next_sweep_which_reads_one_head() {
    let t = Testkit::new(1);
    let (f, mut subscriptions) = settled(&t, 200).await;
    for n in 1..=9 {
        t.wire().drop_next(1);
        f.broadcast("idle 7", n.to_string()).await.unwrap();
        assert_eq!(said_within(&t, &mut subscriptions[7], SWEEP).await, numbered(n..=n));
        assert!(heads_read(&t) <= 2, "{} at sweep {n}", heads_read(&t));
        t.faults().clear_trace();
    }
    assert_eq!(f.metrics_snapshot().sweep_messages_found, 9);
}

/// Draws lower ids than the others, and commits after them; nothing is announced.
#[tokio::test(start_paused = true)]
async fn c26_c28_a_late_commit_below_others_is_found_by_the_sweep_after_it() {
    for open_for in 1..=25 {
        let t = Testkit::new(1);
        let (f, mut subscriptions) = settled(&t, 3).await;
        t.wire().drop_all();
        let mut late = t.database().begin();
        late.append("idle 0", "1").await.unwrap();
        for n in 1..=open_for {
            f.broadcast("idle 1", n.to_string()).await.unwrap();
            t.clock().advance(SWEEP).await;
        }
        assert_eq!(said(&t, &mut subscriptions[1]).await, numbered(1..=open_for), "nobody waits for it");
        late.commit().unwrap();
        assert_eq!(said_within(&t, &mut subscriptions[0], SWEEP).await, ["1:1"], "open for {open_for} sweeps");
    }
}

#[tokio::test(start_paused = true)]
async fn c29_an_unrelated_open_transaction_costs_a_bounded_look_and_delays_nobody() {
    let t = Testkit::new(1);
    let (f, mut subscriptions) = settled(&t, 200).await;
    t.wire().drop_all();
    let mut unrelated = t.database().begin();
    unrelated.append("theirs", "open for ever").await.unwrap();
    for n in 1..=30 {
        f.broadcast("idle 3", n.to_string()).await.unwrap();
        assert_eq!(said_within(&t, &mut subscriptions[3], SWEEP).await, numbered(n..=n));
    }
    assert!(heads_read(&t) <= 3 * 200 + 30 * 2, "{}", heads_read(&t));
    // So much is new since, that the store says that it cannot say; the heads are read then.
    for n in 31..=600 {
        f.broadcast("idle 3", n.to_string()).await.unwrap();
    }
    f.broadcast("idle 9", "1").await.unwrap();
    assert_eq!(said_within(&t, &mut subscriptions[9], SWEEP).await, numbered(1..=1));
    assert_said(&said_within(&t, &mut subscriptions[3], SWEEP).await, &numbered(31..=600), "all");
    unrelated.rollback();
    t.clock().advance(SWEEP).await;
    t.faults().clear_trace();
    assert!(t.clock().advance_until(|| heads_read(&t) == 200, 10 * SWEEP).await, "the tenth");
    t.faults().clear_trace();
    t.clock().advance(9 * SWEEP).await;
    assert_eq!(heads_read(&t), 0, "it is over, and forgotten");
}

#[tokio::test(start_paused = true)]
async fn what_was_rolled_back_is_waited_for_by_nobody() {
    let t = Testkit::new(1);
    let (f, mut subscriptions) = settled(&t, 3).await;
    t.wire().drop_all();
    for n in 1..=5 {
        let mut never = t.database().begin();
        never.append("idle 0", "never").await.unwrap();
        f.broadcast("idle 1", n.to_string()).await.unwrap();
        assert_eq!(said_within(&t, &mut subscriptions[1], SWEEP).await, numbered(n..=n));
        never.rollback();
    }
    f.broadcast("idle 0", "1").await.unwrap();
    assert_eq!(said_within(&t, &mut subscriptions[0], SWEEP).await, ["1:1"]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_was_made_anew_is_told_by_the_next_sweep() {
    let t = Testkit::new(1);
    let (f, mut subscriptions) = settled(&t, 3).await;
    broadcast_numbers(&f, "idle 0", 1..=5).await;
    assert_eq!(said(&t, &mut subscriptions[0]).await, numbered(1..=5));
    t.wire().drop_all();
    f.delete_stream("idle 0").await.unwrap();
    t.clock().advance(SWEEP).await;
    broadcast_numbers(&f, "idle 0", 1..=2).await;
    assert_eq!(said_within(&t, &mut subscriptions[0], SWEEP).await, ["reset Recreated", "1:1", "2:2"]);
}

#[tokio::test(start_paused = true)]
async fn a_database_that_went_back_is_told_by_the_next_sweep_whatever_its_highest_id() {
    for after in [0, 1, 10] {
        let t = Testkit::new(1);
        let (f, mut subscriptions) = settled(&t, 3).await;
        broadcast_numbers(&f, "idle 0", 1..=3).await;
        let dump = t.database().snapshot();
        broadcast_numbers(&f, "idle 0", 4..=6).await;
        assert_eq!(said(&t, &mut subscriptions[0]).await, numbered(1..=6));
        t.clock().advance(2 * SWEEP).await;
        t.wire().drop_all();
        t.database().restore(&dump);
        // Others push the ids past what was seen.
        let mut foreign = t.database().begin();
        for _ in 0..after {
            foreign.append("idle 1", "x").await.unwrap();
        }
        foreign.append("idle 0", "4, in another history").await.unwrap();
        foreign.commit().unwrap();
        t.clock().advance(SWEEP).await;
        assert_eq!(said(&t, &mut subscriptions[1]).await.len(), after, "after {after}");
        t.wire().cut();
        let told = said_within(&t, &mut subscriptions[0], 2 * SWEEP).await;
        assert_eq!(told, ["reset WentBack"], "after {after}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_subscribes_between_two_sweeps_is_covered_from_the_start() {
    let t = Testkit::new(1);
    let (f, _subscriptions) = settled(&t, 3).await;
    t.wire().drop_all();
    for n in 0..30 {
        // At every time of a sweep's interval, and with the head that it starts from read just before.
        t.clock().advance(ms(37 * n)).await;
        let stream = format!("new {n}");
        let mut open = t.database().begin();
        open.append(stream.as_str(), "1").await.unwrap();
        let mut s = f.subscribe(stream.as_str()).await.unwrap();
        if n % 2 == 0 {
            t.clock().advance(SWEEP).await;
        }
        open.commit().unwrap();
        assert_eq!(said_within(&t, &mut s, SWEEP).await, ["1:1"], "{n}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_was_read_while_the_start_was_not_fixed_is_not_taken_for_seen() {
    let t = Testkit::new(1);
    let (f, _subscriptions) = settled(&t, 3).await;
    t.wire().drop_all();
    // The head is read, and its answer takes its time: meanwhile a message comes, and sweeps go by.
    let hold = t.faults().on(Operation::Heads).hang_after();
    let subscribe = tokio::spawn({
        let f = f.clone();
        async move { f.subscribe("new").await.unwrap() }
    });
    t.clock().idle().await;
    assert_eq!(hold.waiting(), 1);
    f.broadcast("new", "1").await.unwrap();
    t.clock().advance(3 * SWEEP).await;
    hold.release();
    t.clock().idle().await;
    let mut s = subscribe.await.unwrap();
    assert_eq!(said_within(&t, &mut s, SWEEP).await, ["1:1"]);
}

#[tokio::test(start_paused = true)]
async fn what_changed_is_looked_at_until_it_is_handed_out() {
    let t = Testkit::new(1);
    let (f, mut subscriptions) = settled(&t, 3).await;
    t.wire().drop_all();
    for (n, operation) in [(1, Operation::ReadAfter), (2, Operation::Heads)] {
        f.broadcast("idle 0", n.to_string()).await.unwrap();
        t.faults().on(operation).fail(2, ErrorKind::ConnectionLost);
        t.clock().advance(2 * SWEEP + ms(100)).await;
        assert_eq!(said_within(&t, &mut subscriptions[0], SWEEP).await, numbered(n..=n), "{operation}");
    }
    // A read that hangs, with sweeps that go by meanwhile.
    f.broadcast("idle 0", "3").await.unwrap();
    let hold = t.faults().on(Operation::ReadAfter).hang();
    t.clock().advance(4 * SWEEP).await;
    hold.release();
    assert_eq!(said(&t, &mut subscriptions[0]).await, ["3:3"]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_at_it_is_asked_for_heads_in_the_same_sweep() {
    let t = Testkit::new(1);
    let (f, mut subscriptions) = settled(&t, 3).await;
    t.wire().drop_all();
    t.faults().on(Operation::ChangedSince).refuse(ErrorKind::Permission);
    for n in 1..=5 {
        f.broadcast("idle 0", n.to_string()).await.unwrap();
        assert_eq!(said_within(&t, &mut subscriptions[0], SWEEP).await, numbered(n..=n));
    }
    t.faults().heal();
    // What it missed meanwhile is not lost with the mark.
    let mut late = t.database().begin();
    late.append("idle 1", "1").await.unwrap();
    t.faults().on(Operation::ChangedSince).fail(1, ErrorKind::Backend);
    t.clock().advance(SWEEP).await;
    f.broadcast("idle 0", "6").await.unwrap();
    t.clock().advance(3 * SWEEP).await;
    late.commit().unwrap();
    assert_eq!(said_within(&t, &mut subscriptions[1], SWEEP).await, ["1:1"]);
}

#[tokio::test(start_paused = true)]
async fn after_a_lost_session_all_heads_are_read() {
    let t = Testkit::new(1);
    let (_f, _subscriptions) = settled(&t, 50).await;
    t.faults().on(Operation::Connect).fail(3, ErrorKind::ConnectionLost);
    t.wire().cut();
    t.clock().advance(SWEEP).await;
    assert_eq!(heads_read(&t), 50);
    // Back, and verified: then the shortcut is taken again.
    t.clock().advance(20 * SWEEP).await;
    t.faults().clear_trace();
    t.clock().advance(9 * SWEEP).await;
    assert!(heads_read(&t) <= 50, "{}: no more than the tenth", heads_read(&t));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_nobody_subscribed_with_asks_nothing() {
    let t = Testkit::new(1);
    let f = engine(&t).await;
    f.broadcast("s", "1").await.unwrap();
    drop(f.subscribe("s").await.unwrap());
    t.clock().idle().await;
    t.faults().clear_trace();
    t.clock().advance(30 * SWEEP).await;
    assert_eq!((calls(&t, Operation::ChangedSince), heads_read(&t)), (0, 0));
}

/// A store whose word on changes is made elsewhere.
#[derive(Debug)]
struct Other<T>(MemoryStore, T);

/// Takes the highest id that it saw for safe.
#[derive(Debug)]
struct Hasty;

/// Only reads heads.
#[derive(Debug)]
struct Plain;

#[async_trait]
trait Says: std::fmt::Debug + Send + Sync + 'static {
    async fn changed(&self, store: &MemoryStore, mark: SweepMark, most: usize) -> Result<(Changed, SweepMark)>;
}

#[async_trait]
impl Says for Hasty {
    async fn changed(&self, store: &MemoryStore, mark: SweepMark, most: usize) -> Result<(Changed, SweepMark)> {
        // What the store would say with a mark of its own counts only above the highest id of the last look.
        let (inner, seen) = mark.get::<(SweepMark, i64)>().cloned().unwrap_or_default();
        let (changed, inner) = store.changed_since(inner, most).await?;
        let Changed::Streams(mut streams) = changed else { return Ok((changed, SweepMark::new((inner, seen)))) };
        let highest = streams.iter().filter_map(|(_, head)| head.last_id).map(|id| id.0).max().unwrap_or(seen);
        streams.retain(|(_, head)| head.last_id.is_some_and(|id| id.0 > seen));
        Ok((Changed::Streams(streams), SweepMark::new((inner, highest.max(seen)))))
    }
}

#[async_trait]
impl Says for Plain {
    async fn changed(&self, _: &MemoryStore, _: SweepMark, _: usize) -> Result<(Changed, SweepMark)> {
        Err(Error::new(ErrorKind::NotSupported, "changed since", "only heads"))
    }
}

#[async_trait]
impl<T: Says> MessageStore for Other<T> {
    async fn append(&self, entries: &[NewMessage], blocked: Blocked) -> Vec<Result<Message>> {
        self.0.append(entries, blocked).await
    }
    async fn get_many(&self, ids: &[MessageId]) -> Result<Vec<std::sync::Arc<Message>>> {
        self.0.get_many(ids).await
    }
    async fn read_after(&self, requests: &[(StreamName, Position)], limit: PageLimit) -> Result<Vec<Page>> {
        self.0.read_after(requests, limit).await
    }
    async fn read_before(&self, stream: &StreamName, position: Position, limit: PageLimit) -> Result<Page> {
        self.0.read_before(stream, position, limit).await
    }
    async fn heads(&self, streams: &[StreamName], detail: HeadDetail) -> Result<Vec<Option<Head>>> {
        self.0.heads(streams, detail).await
    }
    async fn anchors(&self, cursors: &[Cursor]) -> Result<Vec<Anchor>> {
        self.0.anchors(cursors).await
    }
    async fn changed_since(&self, mark: SweepMark, most: usize) -> Result<(Changed, SweepMark)> {
        self.1.changed(&self.0, mark, most).await
    }
    async fn trim(&self, scope: Scope, retain: Retain, budget: u64) -> Result<Trimmed> {
        self.0.trim(scope, retain, budget).await
    }
    async fn delete_stream(&self, stream: &StreamName) -> Result<Option<Epoch>> {
        self.0.delete_stream(stream).await
    }
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
}

async fn engine_on(t: &Testkit, says: impl Says) -> Firehose {
    let process = t.process();
    let backend = Backend::new(Other(process.store(), says), process.notifier(), process.listener());
    Firehose::builder(backend).clock(t.clock()).seed(7).start().await.unwrap()
}

/// The mutant that the tests above have to catch: a late commit below what was seen is lost to its sweeps, until all heads
/// are read.
#[tokio::test(start_paused = true)]
async fn a_store_that_takes_the_highest_id_for_safe_loses_a_late_commit() {
    let t = Testkit::new(1);
    let f = engine_on(&t, Hasty).await;
    let mut held = f.subscribe("held").await.unwrap();
    let mut other = f.subscribe("other").await.unwrap();
    t.clock().advance(10 * SWEEP + ms(100)).await;
    t.wire().drop_all();
    let mut late = t.database().begin();
    late.append("held", "1").await.unwrap();
    f.broadcast("other", "1").await.unwrap();
    t.clock().advance(SWEEP).await;
    assert_eq!(said(&t, &mut other).await, ["1:1"]);
    late.commit().unwrap();
    assert_eq!(said_within(&t, &mut held, 7 * SWEEP).await, [] as [String; 0], "seven sweeps went by");
    assert_eq!(said_within(&t, &mut held, 2 * SWEEP).await, ["1:1"], "the tenth");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_only_reads_heads_is_swept_by_heads_and_asked_once() {
    let t = Testkit::new(1);
    let f = engine_on(&t, Plain).await;
    let mut s = f.subscribe("s").await.unwrap();
    t.wire().drop_all();
    for n in 1..=12 {
        f.broadcast("s", n.to_string()).await.unwrap();
        assert_eq!(said_within(&t, &mut s, SWEEP).await, numbered(n..=n));
    }
    assert!(heads_read(&t) >= 12);
    assert!(f.health().reason.is_none(), "that is no failure");
}
