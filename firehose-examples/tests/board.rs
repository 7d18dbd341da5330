//! The notice board: the contracts of a transport, clause by clause.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper fails its test")]

use std::fs;
use std::sync::Arc;

use firehose_core::{ChannelIdentifier, ListenEvent, Listener, Notification, Notifier};
use firehose_examples::Board;
use firehose_testkit::conformance::TransportFixture;
use tempfile::TempDir;

struct Fresh {
    folder: TempDir,
}

impl Fresh {
    fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    fn board(&self) -> Board {
        Board(self.folder.path().join("board"))
    }
}

#[async_trait::async_trait]
impl TransportFixture for Fresh {
    fn notifier(&self) -> Arc<dyn Notifier> {
        Arc::new(self.board())
    }

    fn listener(&self) -> Arc<dyn Listener> {
        Arc::new(self.board())
    }

    /// A board that is gone is the end of every session on it.
    async fn cut(&self) -> bool {
        fs::remove_file(self.board().0).is_ok()
    }
}

mod notifier {
    firehose_testkit::conformance::notifier!(super::Fresh::new());
}

mod listener {
    firehose_testkit::conformance::listener!(super::Fresh::new());
}

fn on(channel: &ChannelIdentifier, payload: &str) -> Notification {
    Notification::new(channel.clone(), payload)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_board_that_is_full_begins_anew_and_ends_the_sessions() {
    let fresh = Fresh::new();
    let (board, channel) = (fresh.board(), ChannelIdentifier::hashed("a"));
    let mut session = board.connect().await.unwrap();
    session.control.listen(std::slice::from_ref(&channel)).await.unwrap();
    let long = on(&channel, &"x".repeat(60_000));
    for _ in 0..4 {
        board.notify(&vec![long.clone(); 60]).await.unwrap();
    }
    assert!(fs::metadata(&board.0).unwrap().len() < 8 << 20, "it does not grow for ever");
    let mut heard = 0;
    let lost = loop {
        match session.events.next().await {
            ListenEvent::Notification { .. } => heard += 1,
            ListenEvent::Lost(error) => break error,
        }
    };
    assert_eq!(heard % 60, 0, "whole calls, then the end: {lost}");
    session.control.ping().await.unwrap_err();
    board.connect().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_was_cut_short_is_nothing_and_the_next_one_is_heard() {
    let fresh = Fresh::new();
    let (board, channel) = (fresh.board(), ChannelIdentifier::hashed("a"));
    let mut session = board.connect().await.unwrap();
    session.control.listen(std::slice::from_ref(&channel)).await.unwrap();
    let mut text = fs::read(&board.0).unwrap();
    text.extend(b"\n[\"torn");
    fs::write(&board.0, text).unwrap();
    board.notify(&[on(&channel, "whole")]).await.unwrap();
    let ListenEvent::Notification { payload, .. } = session.events.next().await else { panic!("lost") };
    assert_eq!(&*payload, "whole");
}
