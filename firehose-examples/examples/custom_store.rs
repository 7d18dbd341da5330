//! A store of one's own: messages in one file of SQLite, durable without a server. What it prints it has just done.
//!
//! `cargo run --example custom_store`

use std::path::Path;
use std::time::Duration;

use firehose_core::{Backend, Clock, Cursor, Firehose, InProcess, NewMessage, Result, Start, SystemClock};
use firehose_examples::SqliteStore;

const ORDERS: usize = 1_000;

/// An engine as a service has it, on the file at `path`.
async fn service(path: &Path) -> Result<(Firehose, SqliteStore)> {
    let (store, transport) = (SqliteStore::open(path).await?, InProcess::new());
    let backend = Backend::new(store.clone(), transport.clone(), transport);
    Ok((Firehose::builder(backend).start().await?, store))
}

/// Reads to the end of the stream, and gives how many came and where it stands.
async fn read_on(firehose: &Firehose, from: Cursor) -> Result<(usize, Cursor)> {
    let head = firehose.head("orders").await?.map_or(Cursor::BEGINNING, |head| head.cursor());
    let (mut cursor, mut count) = (from, 0);
    let mut orders = firehose.subscribe_from("orders", Start::After(from)).await?;
    while cursor.sequence < head.sequence {
        match orders.next().await {
            Some(delivery) => {
                let Some(message) = delivery.message() else { break };
                assert_eq!(message.sequence, cursor.sequence.next(), "in order, once and whole");
                (cursor, count) = (message.cursor(), count + 1);
            }
            None => break,
        }
    }
    Ok((count, cursor))
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (folder, clock) = (tempfile::tempdir()?, SystemClock::new());
    let path = folder.path().join("orders.db");

    println!("A service starts on {}.", path.display());
    let (firehose, store) = service(&path).await?;
    let begun = clock.now();
    let orders: Vec<NewMessage> =
        (1..=ORDERS).map(|n| NewMessage::new("orders", format!("order {n}"))).collect::<Result<_>>()?;
    for stored in firehose.broadcast_many(orders).await {
        stored?;
    }
    println!("  {ORDERS} orders are on the disk after {:.1?}.", clock.now().since(begun));
    let begun = clock.now();
    for _ in 0..20 {
        firehose.broadcast("orders", "one by one").await?;
    }
    println!("  One by one, each takes {:.1?}: that is the flush.", clock.now().since(begun) / 20);
    let (count, seen) = read_on(&firehose, Cursor::BEGINNING).await?;
    println!("  A subscriber read {count} and notes where it stands: {seen}");

    println!("A payment is repeated, because its answer got lost. Its key says that it is the same one:");
    let payment = NewMessage::new("orders", "paid")?.key("payment-7")?;
    let (first, again) =
        (firehose.broadcast_message(payment.clone()).await?, firehose.broadcast_message(payment).await?);
    println!("  stored as {} of the stream, and again as {}.", first.sequence, again.sequence);
    firehose.shutdown(Duration::from_secs(5)).await;
    store.close().await;

    println!("The service has stopped. What is left is one file of {} kB.", path.metadata()?.len() / 1_000);
    let (firehose, _store) = service(&path).await?;
    firehose.broadcast("orders", "after the start").await?;
    let (count, cursor) = read_on(&firehose, seen).await?;
    println!("It starts again, and the subscriber goes on: {count} came, up to {}.", cursor.sequence);
    firehose.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
