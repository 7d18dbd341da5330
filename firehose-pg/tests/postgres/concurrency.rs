//! Many at once: no hole, no deadlock, and nobody waits for a stranger.

use std::time::{Duration, Instant};

use firehose_core::{Blocked, NewMessage, Outcome};

use crate::append::new;
use crate::harness::{both_shapes, within};

both_shapes! {
    async fn four_writers_over_fifty_streams_leave_no_hole(db) {
        const WRITERS: usize = 4;
        const BATCHES: usize = 25;
        const SIZE: usize = 100;
        let mut running = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let store = db.backend().await.store;
            running.spawn(async move {
                for batch in 0..BATCHES {
                    let entries: Vec<NewMessage> = (0..SIZE)
                        .map(|n| new(&format!("s{}", (n * 7 + batch * 13 + writer * 29) % 50), "x"))
                        .collect();
                    // Each batch in two steps, as the engine does: what is held at the moment waits.
                    let mut left = Vec::new();
                    for (entry, result) in entries.iter().zip(store.append(&entries, Blocked::Skip).await) {
                        match result {
                            Ok(message) => assert_eq!(message.stream, entry.stream),
                            Err(e) => {
                                assert_eq!(e.kind(), firehose_core::ErrorKind::StreamBlocked, "{e:?}");
                                left.push(entry.clone());
                            }
                        }
                    }
                    assert!(store.append(&left, Blocked::Wait).await.iter().all(Result::is_ok));
                }
            });
        }
        while let Some(done) = within(40, running.join_next()).await {
            done.unwrap();
        }
        let all = i64::try_from(WRITERS * BATCHES * SIZE).unwrap();
        assert_eq!(db.number("SELECT count(*) FROM firehose_messages").await, all);
        let holes = "SELECT count(*) FROM (
            SELECT count(*) n, min(m.sequence) first, max(m.sequence) last, ch.sequence head, ch.messages_count counted
            FROM firehose_messages m JOIN firehose_channels ch ON ch.id = m.channel_id GROUP BY ch.id) s
            WHERE first <> 1 OR last <> n OR head <> n OR counted <> n";
        assert_eq!(db.number(holes).await, 0);
        let wrong = "SELECT count(*) FROM (SELECT id, lag(id) OVER (PARTITION BY channel_id ORDER BY sequence) AS before
                     FROM firehose_messages) m WHERE before >= id";
        assert_eq!(db.number(wrong).await, 0, "id and sequence rise together");
    }

    #[allow(clippy::disallowed_methods, reason = "it is the time that is looked at")]
    async fn c58_a_held_stream_delays_nobody_else(db) {
        let store = db.backend().await.store;
        let streams: Vec<String> = ('A'..='Z').map(String::from).collect();
        let all: Vec<NewMessage> = streams.iter().map(|s| new(s, "first")).collect();
        assert!(store.append(&all, Blocked::Skip).await.iter().all(Result::is_ok));
        let holder = db.client().await;
        holder.batch_execute("BEGIN; SELECT firehose_append('A', 'held')").await.unwrap();
        // Those who wait for A keep no place from the others: more of them than there are connections.
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..12 {
            let store = store.clone();
            waiting.spawn(async move { store.append(&[new("A", "waits")], Blocked::Wait).await.remove(0) });
        }
        let mut slowest = Duration::ZERO;
        for _ in 0..40 {
            let began = Instant::now();
            let results = store.append(&all, Blocked::Skip).await;
            slowest = slowest.max(began.elapsed());
            assert!(results[0].is_err());
            assert!(results[1..].iter().all(Result::is_ok));
        }
        assert!(slowest < Duration::from_secs(6), "{slowest:?}");
        holder.batch_execute("COMMIT").await.unwrap();
        let mut sequences = Vec::new();
        while let Some(done) = within(20, waiting.join_next()).await {
            sequences.push(done.unwrap().unwrap().sequence.0);
        }
        sequences.sort_unstable();
        assert_eq!(sequences, (3..15).collect::<Vec<_>>());
    }

    async fn streams_created_and_deleted_under_appends(db) {
        let store = db.backend().await.store;
        let publish = async {
            for n in 0..100 {
                let mut entries: Vec<NewMessage> = (0..4).map(|s| new(&format!("s{s}"), &n.to_string())).collect();
                // A stream that is deleted again and again under the append is given up, and said not to be stored: its
                // entry is repeated, as the engine does.
                while !entries.is_empty() {
                    let results = store.append(&entries, Blocked::Wait).await;
                    entries = entries.into_iter().zip(results).filter_map(|(entry, result)| {
                        let error = result.err()?;
                        assert!(error.is_retryable() && error.outcome() == Outcome::NotDone, "{error:?}");
                        Some(entry)
                    }).collect();
                }
            }
        };
        let delete = async {
            for n in 0..100 {
                store.delete_stream(&crate::append::name(&format!("s{}", n % 4))).await.unwrap();
            }
        };
        within(30, async { tokio::join!(publish, delete) }).await;
        let holes = "SELECT count(*) FROM (SELECT count(*) n, max(sequence) last FROM firehose_messages GROUP BY channel_id) s WHERE last <> n";
        assert_eq!(db.number(holes).await, 0);
    }
}
