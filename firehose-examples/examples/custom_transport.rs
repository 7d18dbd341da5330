//! A transport of one's own: two processes, as good as, share a file of SQLite and hear each other by a notice board.
//!
//! `cargo run --example custom_transport`

use std::fs;
use std::time::Duration;

use firehose_core::{Backend, Clock, Config, Firehose, Subscription, SystemClock};
use firehose_examples::{Board, SqliteStore};

/// The next message's data.
async fn heard(subscription: &mut Subscription) -> Option<String> {
    Some(subscription.next().await?.message()?.data.to_string())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (folder, clock) = (tempfile::tempdir()?, SystemClock::new());
    let (file, board) = (folder.path().join("shop.db"), folder.path().join("shop.board"));
    // The sweep, which finds what nobody announced, is put off: what arrives came by the board.
    let config = Config { sweep_interval: Duration::from_secs(3_600), ..Config::default() };
    let mut processes = Vec::new();
    for _ in 0..2 {
        let (store, transport) = (SqliteStore::open(&file).await?, Board(board.clone()));
        let backend = Backend::new(store, transport.clone(), transport);
        processes.push(Firehose::builder(backend).config(config.clone()).start().await?);
    }
    let [till, kitchen] = &processes[..] else { return Ok(()) };
    let mut orders = kitchen.subscribe("orders").await?;

    println!("The till and the kitchen share {}.", file.display());
    for dish in ["soup", "dumplings", "plum cake"] {
        let begun = clock.now();
        till.broadcast("orders", dish).await?;
        let heard = heard(&mut orders).await;
        println!("  the kitchen hears {heard:?} after {:.1?}", clock.now().since(begun));
    }

    println!("Somebody takes the board away, and the till goes on:");
    fs::remove_file(&board)?;
    for dish in ["tea", "coffee"] {
        till.broadcast("orders", dish).await?;
    }
    for _ in 0..2 {
        println!("  the kitchen hears {:?}", heard(&mut orders).await);
    }
    println!("The board was only a hint: the file is the truth, and the session made anew read what it had missed.");
    for process in processes {
        process.shutdown(Duration::from_secs(5)).await;
    }
    Ok(())
}
