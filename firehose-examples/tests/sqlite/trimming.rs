//! Trims: a prefix, within the budget, and beside publishers.

use std::time::Duration;

use firehose_core::{Blocked, HeadDetail, MessageStore, Retain, Scope, Trimmed};
use firehose_examples::SqliteOptions;
use sea_orm::ConnectionTrait;

use crate::harness::{Days, Folder, append, entry, name, sequence, sequences};

fn keep(messages: u64) -> Retain {
    Retain { messages: Some(messages), ..Retain::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trim_of_everything_goes_through_many_streams_in_rounds() {
    let folder = Folder::new();
    let store = folder.store().await;
    let names: Vec<String> = (0..150).map(|n| format!("stream {n}")).collect();
    for _ in 0..5 {
        let batch: Vec<_> = names.iter().map(|stream| entry(stream, "x")).collect();
        store.append(&batch, Blocked::Skip).await.into_iter().for_each(|result| drop(result.unwrap()));
    }
    let trimmed = store.trim(Scope::All, keep(2), 100).await.unwrap();
    assert_eq!(trimmed, Trimmed { messages: 100, more: true });
    let trimmed = store.trim(Scope::All, keep(2), 10_000).await.unwrap();
    assert_eq!(trimmed, Trimmed { messages: 350, more: false });
    for stream in &names {
        assert_eq!(sequences(&store, stream).await, [4, 5]);
    }
    assert_eq!(store.trim(Scope::All, keep(0), 300).await.unwrap(), Trimmed { messages: 300, more: false });
    let heads = store.heads(&[name("stream 7")], HeadDetail::Full).await.unwrap();
    let head = heads[0].unwrap();
    assert_eq!((head.sequence, head.last_id, head.oldest), (sequence(5), None, None));
    assert_eq!(append(&store, "stream 7", "x").await.unwrap().sequence, sequence(6));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_trim_is_cut_into_transactions() {
    let folder = Folder::new();
    let store = folder.store().await;
    let batch = vec![entry("a", "x"); 7_000];
    store.append(&batch, Blocked::Skip).await.into_iter().for_each(|result| drop(result.unwrap()));
    let trimmed = store.trim(Scope::Stream(name("a")), keep(10), 6_500).await.unwrap();
    assert_eq!(trimmed, Trimmed { messages: 6_500, more: true });
    let trimmed = store.trim(Scope::Stream(name("a")), keep(10), u64::MAX).await.unwrap();
    assert_eq!(trimmed, Trimmed { messages: 490, more: false });
    assert_eq!(sequences(&store, "a").await.len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trim_waits_for_no_other_process() {
    let folder = Folder::new();
    let store = folder.store().await;
    append(&store, "a", "x").await.unwrap();
    let stranger = folder.stranger().await;
    stranger.execute_unprepared("BEGIN IMMEDIATE").await.unwrap();
    for scope in [Scope::All, Scope::Stream(name("a"))] {
        let trimmed = store.trim(scope, keep(0), 10).await.unwrap();
        assert_eq!(trimmed, Trimmed { messages: 0, more: true });
    }
    stranger.execute_unprepared("ROLLBACK").await.unwrap();
    assert_eq!(store.trim(Scope::All, keep(0), 10).await.unwrap().messages, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn age_is_told_by_the_clock_that_was_given() {
    const DAY: Duration = Duration::from_secs(86_400);
    let folder = Folder::new();
    let days = Days::default();
    let store = folder.store_with(SqliteOptions::default().with_clock(days.clone())).await;
    for _ in 0..4 {
        append(&store, "a", "x").await.unwrap();
        days.pass(DAY);
    }
    let retain = Retain { max_age: Some(DAY * 5 / 2), ..Retain::default() };
    assert_eq!(store.trim(Scope::All, retain, 10).await.unwrap(), Trimmed { messages: 2, more: false });
    let retain = Retain { min_age: DAY * 3 / 2, ..keep(0) };
    assert_eq!(store.trim(Scope::All, retain, 10).await.unwrap(), Trimmed { messages: 1, more: false });
    assert_eq!(sequences(&store, "a").await, [4]);
}
