//! Clause 16 of `MessageStore`, and the sweep that stands on it: transactions in every order of numbers, ids and ends.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use firehose_core::{
    Blocked, Changed, Config, Firehose, HeadDetail, MessageId, MessageStore, Retain, Scope, Subscription, SweepMark,
};
use tokio_postgres::Client;

use crate::append::{name, new};
use crate::engine::next;
use crate::harness::{TestDatabase, both_shapes, eventually, within};

/// Asks on from `mark`; `None` where the store cannot say.
async fn ask(store: &dyn MessageStore, mark: &mut SweepMark, most: usize) -> Option<BTreeSet<String>> {
    let (changed, next) = within(10, store.changed_since(mark.clone(), most)).await.unwrap();
    *mark = next;
    match changed {
        Changed::Streams(streams) => Some(streams.into_iter().map(|(stream, _)| stream.to_string()).collect()),
        _ => None,
    }
}

/// A mark from which the store can say. Other tests of the same server have transactions open meanwhile.
async fn begun(store: &dyn MessageStore) -> SweepMark {
    let mark = tokio::sync::Mutex::new(SweepMark::START);
    eventually("a mark", || async { ask(store, &mut *mark.lock().await, 1_000).await.map(drop) }).await;
    mark.into_inner()
}

fn names(streams: &[&str]) -> Option<BTreeSet<String>> {
    Some(streams.iter().map(|stream| (*stream).to_owned()).collect())
}

async fn stored(db: &TestDatabase, stream: &str) {
    db.execute(&format!("SELECT firehose_append('{stream}', 'x')")).await;
}

async fn begin(db: &TestDatabase, work: &str) -> Client {
    let client = db.client().await;
    client.batch_execute(&format!("BEGIN; {work}")).await.unwrap();
    client
}

/// Takes a stream's row, and so a transaction number, and draws no id yet.
const LOCK: &str = "SELECT FROM firehose_channels WHERE name = '{}' FOR NO KEY UPDATE";

both_shapes! {
    async fn clause_16_names_what_changed_and_its_heads(db) {
        let store = db.backend().await.store;
        stored(&db, "a").await;
        let mut mark = begun(&*store).await;
        let first = mark.clone();
        for stream in ["b", "a", "b"] {
            stored(&db, stream).await;
        }
        let (Changed::Streams(mut streams), _) = store.changed_since(mark.clone(), 1_000).await.unwrap() else { panic!() };
        streams.sort_by(|(one, _), (other, _)| one.as_str().cmp(other.as_str()));
        let heads = store.heads(&[name("a"), name("b")], HeadDetail::Full).await.unwrap();
        for ((stream, told), head) in streams.iter().zip(heads) {
            let head = head.unwrap();
            let expected = (head.epoch, head.sequence, head.last_id);
            assert_eq!((told.epoch, told.sequence, told.last_id), expected, "{stream}");
        }
        assert_eq!(ask(&*store, &mut mark, 1_000).await, names(&["a", "b"]));
        assert_eq!(ask(&*store, &mut first.clone(), 3).await, names(&["a", "b"]));
        assert_eq!(ask(&*store, &mut first.clone(), 2).await, None, "three are new, and two may be looked at");
        assert_eq!(ask(&*db.backend().await.store, &mut first.clone(), 1_000).await, names(&["a", "b"]), "another process");
        // Trimmed to nothing, the highest id falls.
        let all = Retain { messages: Some(0), ..Retain::default() };
        assert_eq!(store.trim(Scope::All, all, 100).await.unwrap().messages, 4);
        assert_eq!(ask(&*store, &mut mark, 1_000).await, None);
        stored(&db, "a").await;
        let mut mark = begun(&*store).await;
        stored(&db, "b").await;
        assert_eq!(ask(&*store, &mut mark, 1_000).await, names(&["b"]));
    }

    /// Whoever has the lower transaction number, the lower id, and whatever the late one is made of.
    async fn c26_a_late_commit_is_named_after_any_number_of_looks(db) {
        let store = db.backend().await.store;
        for stream in ["late", "early"] {
            stored(&db, stream).await;
        }
        let late = [
            ("plain", "SELECT firehose_append('late', 'x')", "COMMIT"),
            ("in a savepoint", "SAVEPOINT one; SAVEPOINT two; SELECT firehose_append('late', 'x'); RELEASE one", "COMMIT"),
            ("rolled back to a savepoint", "SELECT firehose_append('late', 'x'); SAVEPOINT one; SELECT firehose_append('late', 'y'); ROLLBACK TO one", "COMMIT"),
            ("prepared", "SELECT firehose_append('late', 'x'); PREPARE TRANSACTION '{name}'", "COMMIT PREPARED '{name}'"),
        ];
        for (what, work, end) in late {
            for late_has_the_higher_number in [false, true] {
                for looks in 0..3 {
                    let mut mark = begun(&*store).await;
                    // The early one may have its number first, and draws its id last in any case.
                    let lock = LOCK.replace("{}", "early");
                    let early = begin(&db, if late_has_the_higher_number { &lock } else { "" }).await;
                    let open = begin(&db, &work.replace("{name}", &db.name)).await;
                    early.batch_execute("SELECT firehose_append('early', 'x'); COMMIT").await.unwrap();
                    for look in 0..looks {
                        let changed = ask(&*store, &mut mark, 1_000).await;
                        if look == 0 {
                            assert_eq!(changed, names(&["early"]), "{what}");
                        }
                    }
                    open.batch_execute(&end.replace("{name}", &db.name)).await.unwrap();
                    let changed = ask(&*store, &mut mark, 1_000).await.unwrap();
                    assert!(changed.contains("late"), "{what}, higher {late_has_the_higher_number}, {looks} looks: {changed:?}");
                }
            }
        }
    }

    async fn c29_an_open_transaction_keeps_nothing_from_being_named(db) {
        let store = db.backend().await.store;
        stored(&db, "a").await;
        let mut mark = begun(&*store).await;
        let unrelated = begin(&db, "CREATE TABLE theirs (id int)").await;
        for n in 0..20 {
            let stream = format!("s{n}");
            stored(&db, &stream).await;
            let changed = ask(&*store, &mut mark, 1_000).await.unwrap();
            assert!(changed.contains(&stream), "{changed:?}");
        }
        let never = begin(&db, "SELECT firehose_append('never', 'x')").await;
        stored(&db, "a").await;
        never.batch_execute("ROLLBACK").await.unwrap();
        unrelated.batch_execute("COMMIT").await.unwrap();
        stored(&db, "b").await;
        let changed = ask(&*store, &mut mark, 1_000).await.unwrap();
        assert!(changed.contains("a") && changed.contains("b") && !changed.contains("never"), "{changed:?}");
        // Nobody is open any more, so what was named is not named for ever.
        let (mark, store) = (tokio::sync::Mutex::new(mark), &store);
        let quiet = || async { (ask(&**store, &mut *mark.lock().await, 1_000).await == names(&[])).then_some(()) };
        eventually("nothing is new", quiet).await;
    }

    async fn another_history_is_known_as_such(db) {
        let store = db.backend().await.store;
        let entries: Vec<_> = (0..5).map(|n| new("a", &n.to_string())).collect();
        assert!(store.append(&entries, Blocked::Wait).await.iter().all(Result::is_ok));
        for what in [
            // Restored, and gone on beyond what was seen.
            "TRUNCATE firehose_messages; SELECT firehose_append('a', 'x') FROM generate_series(1, 20)",
            // Written anew: the same rows, as it happens.
            "VACUUM FULL firehose_messages",
            // Gone back by hand, which only the highest id tells.
            "DELETE FROM firehose_messages WHERE id > (SELECT min(id) FROM firehose_messages)",
        ] {
            let mut mark = begun(&*store).await;
            for part in what.split("; ") {
                db.execute(part).await;
            }
            assert_eq!(ask(&*store, &mut mark, 1_000).await, None, "{what}");
        }
        let mut mark = begun(&*store).await;
        stored(&db, "a").await;
        assert_eq!(ask(&*store, &mut mark, 1_000).await, names(&["a"]), "and it goes on");
    }

    #[allow(clippy::disallowed_methods, reason = "it is the time that is looked at")]
    async fn c26_c28_the_engine_finds_late_commits_by_sweeps_that_read_no_heads(db) {
        // All heads are read each fifth second: of what is found five times in a row within four, each at once after the one before, most was not by those.
        let config = Config { sweep_interval: Duration::from_millis(500), ..db.config() };
        let backend = firehose_pg::connect(&config).await.unwrap();
        let firehose = Firehose::builder(backend).config(config).start().await.unwrap();
        let mut held = firehose.subscribe("held").await.unwrap();
        let mut others = firehose.subscribe("others").await.unwrap();
        for n in 1..=5 {
            let open = begin(&db, "SELECT firehose_append('held', 'late')").await;
            let began = Instant::now();
            stored(&db, "others").await;
            found(&mut others, n, began).await;
            let began = Instant::now();
            open.batch_execute("COMMIT").await.unwrap();
            found(&mut held, n, began).await;
        }
        assert_eq!(firehose.metrics_snapshot().sweep_messages_found, 10);
        firehose.shutdown(Duration::from_secs(5)).await;
    }
}

/// The next message, which nobody announced, within four seconds of its commit.
async fn found(subscription: &mut Subscription, sequence: i64, committed: Instant) {
    assert_eq!(next(subscription).await.0, sequence);
    assert!(committed.elapsed() < Duration::from_secs(4), "{:?}", committed.elapsed());
}

/// What the id alone would say: the check that the tests above have something to catch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_commit_has_a_lower_id_than_what_was_seen() {
    crate::harness::run(crate::harness::Shape::Fresh, |db| async move {
        let store = db.backend().await.store;
        stored(&db, "a").await;
        let open = begin(&db, "SELECT firehose_append('late', 'x')").await;
        stored(&db, "a").await;
        let head = async |stream: &str| store.heads(&[name(stream)], HeadDetail::Full).await.unwrap()[0];
        let seen: MessageId = head("a").await.unwrap().last_id.unwrap();
        assert_eq!(head("late").await, None);
        open.batch_execute("COMMIT").await.unwrap();
        assert!(head("late").await.unwrap().last_id.unwrap() < seen);
    })
    .await;
}
