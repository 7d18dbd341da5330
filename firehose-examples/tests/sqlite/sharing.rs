//! Two stores on one file, as two processes have.

use std::collections::BTreeSet;

use firehose_core::{Backend, Blocked, Config, Firehose, HeadDetail, InProcess, MessageStore, Start};

use crate::harness::{Folder, all, entry, name, sequences};

#[tokio::test(flavor = "multi_thread")]
async fn writers_of_several_processes_leave_no_hole_and_no_double() {
    let folder = Folder::new();
    let mut writers = Vec::new();
    for writer in 0..3 {
        let store = folder.store().await;
        writers.push(tokio::spawn(async move {
            for n in 0..40 {
                let batch = [entry("a", format!("{writer} {n}")), entry("b", format!("{writer} {n}"))];
                for result in store.append(&batch, Blocked::Wait).await {
                    result.unwrap();
                }
            }
        }));
    }
    let reader = folder.store().await;
    let mut seen = 0;
    while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
        let sequences = sequences(&reader, "a").await;
        assert!(sequences.len() >= seen && sequences.first().is_none_or(|first| *first == 1));
        seen = sequences.len();
    }
    for writer in writers {
        writer.await.unwrap();
    }
    for stream in ["a", "b"] {
        let messages = all(&reader, stream).await;
        assert_eq!(messages.len(), 120);
        assert!(messages.is_sorted_by(|a, b| a.id < b.id), "ids rise with the sequence");
        let texts: BTreeSet<&str> = messages.iter().map(|message| &*message.data).collect();
        assert_eq!(texts.len(), 120);
    }
}

/// Clause 11, with another process as the writer: an append to two streams shows in both heads or in neither.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_another_process_is_in_one_snapshot() {
    let folder = Folder::new();
    let (here, there) = (folder.store().await, folder.store().await);
    let writer = tokio::spawn(async move {
        for _ in 0..60 {
            for result in there.append(&[entry("a", "x"), entry("b", "x")], Blocked::Wait).await {
                result.unwrap();
            }
        }
    });
    let mut seen = 0;
    while !writer.is_finished() {
        let heads = here.heads(&[name("a"), name("b")], HeadDetail::Full).await.unwrap();
        let sequences: Vec<i64> = heads.iter().map(|head| head.map_or(0, |head| head.sequence.0)).collect();
        assert!(sequences[0] == sequences[1] && sequences[0] >= seen, "{sequences:?} after {seen}");
        seen = sequences[0];
    }
    writer.await.unwrap();
    assert_eq!(sequences(&here, "b").await.len(), 60);
}

/// Nothing is announced from one to the other: the sweep finds it.
#[tokio::test(flavor = "multi_thread")]
async fn what_another_process_stored_arrives_with_the_sweep() {
    let folder = Folder::new();
    let mut engines = Vec::new();
    for _ in 0..2 {
        let (store, transport) = (folder.store().await, InProcess::new());
        let config = Config { sweep_interval: std::time::Duration::from_millis(100), ..Config::default() };
        let backend = Backend::new(store, transport.clone(), transport);
        engines.push(Firehose::builder(backend).config(config).start().await.unwrap());
    }
    let mut orders = engines[0].subscribe_from("orders", Start::Earliest).await.unwrap();
    for n in 1..=3 {
        engines[1].broadcast("orders", n.to_string()).await.unwrap();
        engines[0].broadcast("orders", n.to_string()).await.unwrap();
    }
    for expected in 1..=6 {
        let delivery = orders.next().await.unwrap();
        assert_eq!(delivery.message().unwrap().sequence.0, expected);
    }
    for engine in engines {
        engine.shutdown(std::time::Duration::from_secs(5)).await;
    }
}
