//! Random faults, one seed a run: nothing is lost, doubled or out of order without being said, and in the end everyone
//! has everything. `FIREHOSE_SEED=n` runs one seed alone.

use std::collections::BTreeMap;

use firehose_testkit::{Operation, Testkit};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

const STREAMS: [&str; 4] = ["a", "b", "c", "d"];

/// A subscriber with what it was told, checked as it comes.
struct Witness {
    subscription: Subscription,
    at: Cursor,
}

impl Witness {
    fn hear(&mut self, seed: u64) {
        while let Some(delivery) = futures_util::FutureExt::now_or_never(self.subscription.next()) {
            let context =
                || format!("seed {seed}, stream {}, at {}: {delivery:?}", self.subscription.stream(), self.at);
            match delivery.as_ref().unwrap() {
                Delivery::Message(m) => {
                    assert!(self.at.epoch.is_none_or(|e| e == m.channel_id), "another epoch unsaid, {}", context());
                    assert_eq!(m.sequence, Sequence(self.at.sequence.0 + 1), "a hole or a double, {}", context());
                    self.at = m.cursor();
                }
                Delivery::Gap(g) => {
                    assert_eq!(g.from, Sequence(self.at.sequence.0 + 1), "a gap beside the hole, {}", context());
                    assert!(g.to >= g.from, "{}", context());
                    self.at = Cursor::at(self.at.epoch, g.to);
                }
                Delivery::Reset(_) => self.at = self.subscription.cursor(),
                other => panic!("{other:?}, {}", context()),
            }
        }
    }
}

async fn run(seed: u64) {
    let t = Testkit::new(seed);
    let mut dice = StdRng::seed_from_u64(seed);
    let config = || Config { subscriber_buffer: [1, 3, 20, 1_024][seed as usize % 4], ..Config::default() };
    let engines = [engine_with(&t, config()).await, engine_with(&t, config()).await];
    let mut witnesses: Vec<Witness> = Vec::new();
    let mut open = Vec::new();
    let mut publishing = tokio::task::JoinSet::new();
    for _ in 0..150 {
        let (stream, engine) = (STREAMS[dice.random_range(0..4)], &engines[dice.random_range(0..2)]);
        match dice.random_range(0..28) {
            0..=9 => {
                let (f, n) = (engine.clone(), dice.random_range(1..6));
                publishing.spawn(async move {
                    for _ in 0..n {
                        // What is said to have failed may be stored or not; both are right.
                        let _ = f.broadcast(stream, "x".repeat(n * 1_000)).await;
                    }
                });
            }
            10..=12 => {
                let start = if dice.random() { Start::Now } else { Start::Earliest };
                let f = engine.clone();
                let subscribing = tokio::spawn(async move { f.subscribe_from(stream, start).await });
                t.clock().advance(ms(200)).await;
                if subscribing.is_finished() {
                    if let Ok(subscription) = subscribing.await.unwrap() {
                        let at = subscription.start();
                        witnesses.push(Witness { subscription, at });
                    }
                } else {
                    subscribing.abort();
                }
            }
            13 if !witnesses.is_empty() => drop(witnesses.swap_remove(dice.random_range(0..witnesses.len()))),
            14 if !witnesses.is_empty() => {
                // Goes away, and goes on from its cursor.
                let old = witnesses.swap_remove(dice.random_range(0..witnesses.len()));
                let (cursor, name) = (old.subscription.cursor(), old.subscription.stream().clone());
                drop(old);
                let f = engine.clone();
                let subscribing = tokio::spawn(async move { f.subscribe_from(&name, Start::After(cursor)).await });
                t.clock().advance(ms(200)).await;
                if subscribing.is_finished() {
                    if let Ok(subscription) = subscribing.await.unwrap() {
                        let at = subscription.start();
                        witnesses
                            .push(Witness { subscription, at: if at.epoch == cursor.epoch { cursor } else { at } });
                    }
                } else {
                    subscribing.abort();
                }
            }
            15 => t.wire().cut(),
            16 => t.wire().drop_with(dice.random_range(0.0..0.6)),
            17 => t.wire().duplicate_with(dice.random_range(0.0..0.6)),
            18 => t.wire().shuffle(dice.random_range(1..40)),
            19 => t.wire().heal(),
            20 => {
                let head = t.database().messages(stream).last().map_or(0, |m| m.sequence.0);
                t.database().trim_to(stream, Sequence(dice.random_range(0..=head)));
            }
            21 => {
                let mut txn = t.database().begin();
                let appended = futures_util::FutureExt::now_or_never(txn.append(stream, "foreign"));
                if let Some(Ok(m)) = appended {
                    if dice.random() {
                        let channel = Naming::default().stream(&m.stream);
                        let bare = dice.random::<bool>();
                        t.database().announce_raw(channel, wire::encode(&m, if bare { 1 } else { 7_999 }));
                    }
                    open.push(txn);
                }
            }
            22 if !open.is_empty() => open.swap_remove(0).rollback(),
            23 if !open.is_empty() => drop(open.swap_remove(0).commit()),
            24 if dice.random_range(0..4) == 0 => {
                let (f, delete) = (engine.clone(), stream);
                publishing.spawn(async move { drop(f.delete_stream(delete).await) });
            }
            25 => {
                let operation =
                    [Operation::Heads, Operation::ReadAfter, Operation::Notify, Operation::Listen, Operation::Connect]
                        [dice.random_range(0..5)];
                t.faults().on(operation).fail(dice.random_range(1..4), ErrorKind::ConnectionLost);
            }
            26 => t.faults().on(Operation::Append).lose_answer(1),
            _ => t.clock().advance(ms(dice.random_range(1..1_500))).await,
        }
        t.clock().idle().await;
        if dice.random() {
            witnesses.iter_mut().for_each(|w| w.hear(seed));
        }
    }
    // Quiet: everything heals, nothing is left open, and soon everyone has everything.
    t.wire().heal();
    t.faults().heal();
    open.clear();
    t.clock().advance(Duration::from_secs(40)).await;
    while let Some(done) = publishing.join_next().await {
        done.unwrap();
    }
    for _ in 0..300 {
        t.clock().advance(ms(100)).await;
        witnesses.iter_mut().for_each(|w| w.hear(seed));
    }
    let mut heads = BTreeMap::new();
    for name in STREAMS {
        heads.insert(name, engines[0].head(name).await.unwrap());
    }
    for w in &witnesses {
        let name = w.subscription.stream().as_str();
        if let Some(head) = heads[name] {
            // Past the head: a message that was announced whole and rolled back, with nothing in its place yet.
            let caught_up = w.at.epoch.is_none_or(|e| e == head.epoch) && w.at.sequence >= head.sequence;
            // A life of the stream without a message is not told of.
            let unseen = head.sequence == Sequence::ZERO;
            assert!(caught_up || unseen, "seed {seed}: {name} stands at {}, head {head:?}, {:?}", w.at, w.subscription);
        }
    }
    drop(witnesses);
    for f in engines {
        assert!(f.shutdown(ms(1_000)).await.is_clean(), "seed {seed}");
    }
    t.clock().idle().await;
    let left = (t.wire().session_count(), t.wire().channels().len(), t.clock().pending_sleeps());
    assert_eq!(left, (0, 0, 0), "seed {seed} leaves sessions, channels, sleeps");
}

#[tokio::test(start_paused = true)]
async fn forty_seeds_of_faults_lose_nothing_unsaid() {
    let seeds: Vec<u64> = match std::env::var("FIREHOSE_SEED").ok().and_then(|s| s.parse().ok()) {
        Some(seed) => vec![seed],
        None => {
            let count = std::env::var("FIREHOSE_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(40);
            (1..=count).collect()
        }
    };
    for seed in seeds {
        run(seed).await;
    }
}
