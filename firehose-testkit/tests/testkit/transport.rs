//! What the transports in memory promise beyond the contracts, which the conformance suite holds.

use std::sync::Arc;

use firehose_core::{ErrorKind, InProcess, ListenEvent, Listener, Notification, Notifier};
use firehose_testkit::Testkit;

use crate::support::*;

/// The contract lets a session have a queue without end; these have none.
async fn who_does_not_keep_up_is_lost(notifier: &dyn Notifier, listener: &dyn Listener) {
    let mut slow = listener.connect().await.unwrap();
    slow.control.listen(&[channel("a")]).await.unwrap();
    let many = vec![Notification::new(channel("a"), "x"); 1_000];
    for _ in 0..70 {
        notifier.notify(&many).await.unwrap();
    }
    let ListenEvent::Lost(error) = slow.events.next().await else { panic!("it goes on with a hole") };
    assert_eq!(error.to_string(), "listen: the session did not keep up");
    assert_eq!(slow.control.ping().await.unwrap_err().kind(), ErrorKind::ConnectionLost);
}

#[tokio::test(start_paused = true)]
async fn on_the_wire_who_does_not_keep_up_is_lost() {
    let backend = Testkit::new(1).backend();
    who_does_not_keep_up_is_lost(&*backend.notifier, &*backend.listener.unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn in_process_who_does_not_keep_up_is_lost() {
    let both = Arc::new(InProcess::new());
    who_does_not_keep_up_is_lost(&*both, &*both).await;
}
