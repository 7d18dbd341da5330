//! The contracts of `Notifier`, `Listener` and a session's halves, a test a clause, on every transport in memory.

use std::sync::Arc;

use firehose_core::{ErrorKind, ListenControl, Listener, Notification, Notifier, Session};

use crate::support::*;

/// The two halves of a transport.
struct Transport {
    notifier: Arc<dyn Notifier>,
    listener: Arc<dyn Listener>,
}

impl Transport {
    async fn session(&self) -> Session {
        self.listener.connect().await.unwrap()
    }

    /// A session that listens already.
    async fn listening(&self, channels: &[&str]) -> Session {
        let session = self.session().await;
        listen(&*session.control, channels).await;
        session
    }

    async fn notify(&self, notifications: &[(&str, &str)]) {
        let all: Vec<_> = notifications.iter().map(|(c, p)| Notification::new(channel(c), *p)).collect();
        self.notifier.notify(&all).await.unwrap();
    }
}

async fn listen(control: &dyn ListenControl, channels: &[&str]) {
    control.listen(&channels.iter().map(|c| channel(c)).collect::<Vec<_>>()).await.unwrap();
}

async fn notifier_01_who_listens_hears_it(transport: Transport) {
    let (mut one, mut other) = (transport.listening(&["a"]).await, transport.listening(&["a", "b"]).await);
    transport.notify(&[("a", "1"), ("b", "2")]).await;
    transport.notify(&[("a", "3")]).await;
    assert_eq!(heard_many(&mut *one.events, 2).await, ["1", "3"]);
    assert_eq!(heard_many(&mut *other.events, 3).await, ["1", "2", "3"]);
}

async fn notifier_02_equal_ones_all_arrive(transport: Transport) {
    let mut session = transport.listening(&["a"]).await;
    transport.notify(&[("a", "x"), ("a", "x"), ("a", "x"), ("a", "end")]).await;
    assert_eq!(heard_many(&mut *session.events, 4).await, ["x", "x", "x", "end"]);
}

async fn notifier_03_the_order_of_a_call_is_kept(transport: Transport) {
    let mut session = transport.listening(&["a"]).await;
    let payloads: Vec<String> = (0..500).map(|n| n.to_string()).collect();
    transport.notify(&payloads.iter().map(|p| ("a", p.as_str())).collect::<Vec<_>>()).await;
    assert_eq!(heard_many(&mut *session.events, 500).await, payloads);
}

async fn notifier_04_the_longest_payload_is_whole_and_a_longer_one_refused(transport: Transport) {
    let mut session = transport.listening(&["a"]).await;
    let longest = "é".repeat(transport.notifier.max_payload_bytes() / 2) + "x";
    assert_eq!(longest.len(), transport.notifier.max_payload_bytes());
    let long = longest.clone() + "x";
    let both = [Notification::new(channel("a"), "not sent"), Notification::new(channel("a"), long)];
    assert_eq!(transport.notifier.notify(&both).await.unwrap_err().kind(), ErrorKind::TooLarge);
    transport.notify(&[("a", &longest)]).await;
    assert_eq!(heard(&mut *session.events).await, longest);
}

async fn notifier_05_sending_again_sends_again(transport: Transport) {
    let mut session = transport.listening(&["a"]).await;
    transport.notify(&[("a", "x")]).await;
    transport.notify(&[("a", "x")]).await;
    assert_eq!(heard_many(&mut *session.events, 2).await, ["x", "x"]);
}

async fn notifier_06_it_depends_on_no_listener(transport: Transport) {
    transport.notify(&[("a", "nobody")]).await;
    let session = transport.listening(&["a"]).await;
    drop(session);
    transport.notify(&[("a", "nobody again")]).await;
    let mut session = transport.listening(&["a"]).await;
    transport.notify(&[("a", "somebody")]).await;
    assert_eq!(heard(&mut *session.events).await, "somebody");
}

async fn listener_01_a_session_of_its_own_each_time(transport: Transport) {
    let mut first = transport.listening(&["a"]).await;
    first.control.close().await;
    let mut second = transport.listening(&["a"]).await;
    transport.notify(&[("a", "1")]).await;
    assert_eq!(heard(&mut *second.events).await, "1");
    assert_eq!(lost(&mut *first.events).await, ErrorKind::ConnectionLost);
}

async fn listener_02_it_listens_on_nothing_at_first(transport: Transport) {
    let mut session = transport.session().await;
    assert_eq!(session.control.registered().await.unwrap(), Some(vec![]));
    transport.notify(&[("a", "unheard")]).await;
    listen(&*session.control, &["a"]).await;
    transport.notify(&[("a", "heard")]).await;
    assert_eq!(heard(&mut *session.events).await, "heard");
}

async fn control_01_after_listen_everything_is_heard(transport: Transport) {
    let mut session = transport.session().await;
    {
        // LISTEN while the events are awaited: it does not interrupt the wait.
        let mut next = std::pin::pin!(heard(&mut *session.events));
        tokio::select! {
            biased;
            payload = &mut next => panic!("heard {payload:?}"),
            () = listen(&*session.control, &["a", "b"]) => {}
        }
        transport.notify(&[("b", "1")]).await;
        assert_eq!(next.await, "1");
    }
    transport.notify(&[("a", "2")]).await;
    assert_eq!(heard(&mut *session.events).await, "2");
}

async fn control_02_listening_twice_changes_nothing(transport: Transport) {
    let mut session = transport.listening(&["a", "a"]).await;
    listen(&*session.control, &["a"]).await;
    session.control.unlisten(&[channel("never")]).await.unwrap();
    transport.notify(&[("a", "1"), ("a", "2")]).await;
    assert_eq!(heard_many(&mut *session.events, 2).await, ["1", "2"], "each once");
}

async fn control_03_after_unlisten_nothing_is_heard(transport: Transport) {
    let mut session = transport.listening(&["a", "b"]).await;
    transport.notify(&[("a", "before")]).await;
    session.control.unlisten(&[channel("a")]).await.unwrap();
    transport.notify(&[("a", "after"), ("b", "end")]).await;
    assert_eq!(heard_many(&mut *session.events, 2).await, ["before", "end"]);
}

async fn control_05_a_ping_is_answered_while_the_session_lives(transport: Transport) {
    let session = transport.session().await;
    session.control.ping().await.unwrap();
    session.control.close().await;
    assert_eq!(session.control.ping().await.unwrap_err().kind(), ErrorKind::ConnectionLost);
}

async fn control_06_registered_says_what_is_listened_to(transport: Transport) {
    let session = transport.listening(&["a", "b", "c"]).await;
    let _other = transport.listening(&["d"]).await;
    session.control.unlisten(&[channel("b")]).await.unwrap();
    let mut registered = session.control.registered().await.unwrap().unwrap();
    registered.sort();
    assert_eq!(registered, [channel("a"), channel("c")]);
}

async fn control_07_close_ends_the_events(transport: Transport) {
    let mut session = transport.listening(&["a"]).await;
    transport.notify(&[("a", "arrived")]).await;
    session.control.close().await;
    transport.notify(&[("a", "too late")]).await;
    assert_eq!(heard(&mut *session.events).await, "arrived");
    assert_eq!(lost(&mut *session.events).await, ErrorKind::ConnectionLost);
    assert_eq!(session.control.listen(&[channel("a")]).await.unwrap_err().kind(), ErrorKind::ConnectionLost);
}

async fn events_01_they_come_in_order_and_next_waits(transport: Transport) {
    let mut session = transport.listening(&["a", "b"]).await;
    let waiting = tokio::spawn(async move { heard_many(&mut *session.events, 3).await });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    transport.notify(&[("a", "1"), ("b", "2"), ("a", "3")]).await;
    assert_eq!(waiting.await.unwrap(), ["1", "2", "3"]);
}

async fn events_02_after_lost_there_is_nothing_more(transport: Transport) {
    let mut session = transport.listening(&["a"]).await;
    drop(session.control);
    transport.notify(&[("a", "x")]).await;
    for _ in 0..3 {
        assert_eq!(lost(&mut *session.events).await, ErrorKind::ConnectionLost);
    }
    let session = transport.listening(&["a"]).await;
    drop(session.events);
    assert_eq!(session.control.ping().await.unwrap_err().kind(), ErrorKind::ConnectionLost, "either half ends it");
}

async fn events_03_a_dropped_next_loses_nothing(transport: Transport) {
    let mut session = transport.listening(&["a"]).await;
    for n in 0..20 {
        let payload = n.to_string();
        tokio::select! {
            biased;
            event = session.events.next() => panic!("{event:?}"),
            () = std::future::ready(()) => {}
        }
        transport.notify(&[("a", &payload)]).await;
        assert_eq!(heard(&mut *session.events).await, payload);
    }
}

async fn events_04_who_does_not_keep_up_is_lost(transport: Transport) {
    let mut slow = transport.listening(&["a"]).await;
    for _ in 0..70 {
        transport.notify(&vec![("a", "x"); 1_000]).await;
    }
    let mut read = 0;
    while let firehose_core::ListenEvent::Notification { .. } = slow.events.next().await {
        read += 1;
    }
    assert_eq!(read, 0, "it does not go on with a hole");
    assert_eq!(slow.control.ping().await.unwrap_err().kind(), ErrorKind::ConnectionLost);
}

/// The one clause that needs a transport that fails.
#[tokio::test(start_paused = true)]
async fn control_04_after_an_error_the_session_goes_on() {
    let testkit = firehose_testkit::Testkit::new(1);
    let backend = testkit.backend();
    let transport = Transport { notifier: backend.notifier, listener: backend.listener.unwrap() };
    let mut session = transport.listening(&["a"]).await;
    for operation in [firehose_testkit::Operation::Listen, firehose_testkit::Operation::Unlisten] {
        testkit.faults().on(operation).fail(1, ErrorKind::Backend);
    }
    assert_eq!(session.control.listen(&[channel("b")]).await.unwrap_err().kind(), ErrorKind::Backend);
    assert_eq!(session.control.unlisten(&[channel("a")]).await.unwrap_err().kind(), ErrorKind::Backend);
    transport.notify(&[("b", "unheard"), ("a", "1")]).await;
    listen(&*session.control, &["b"]).await;
    transport.notify(&[("b", "2")]).await;
    assert_eq!(heard_many(&mut *session.events, 2).await, ["1", "2"]);
}

/// Each body once on every transport.
macro_rules! on_every_transport {
    ($($body:ident),* $(,)?) => {
        mod wire {
            $(#[tokio::test(start_paused = true)]
            async fn $body() {
                let backend = firehose_testkit::Testkit::new(1).backend();
                let listener = backend.listener.unwrap();
                super::$body(super::Transport { notifier: backend.notifier, listener }).await;
            })*
        }
        mod in_process {
            $(#[tokio::test(start_paused = true)]
            async fn $body() {
                let both = std::sync::Arc::new(firehose_core::InProcess::new());
                super::$body(super::Transport { notifier: both.clone(), listener: both }).await;
            })*
        }
    };
}

on_every_transport!(
    notifier_01_who_listens_hears_it,
    notifier_02_equal_ones_all_arrive,
    notifier_03_the_order_of_a_call_is_kept,
    notifier_04_the_longest_payload_is_whole_and_a_longer_one_refused,
    notifier_05_sending_again_sends_again,
    notifier_06_it_depends_on_no_listener,
    listener_01_a_session_of_its_own_each_time,
    listener_02_it_listens_on_nothing_at_first,
    control_01_after_listen_everything_is_heard,
    control_02_listening_twice_changes_nothing,
    control_03_after_unlisten_nothing_is_heard,
    control_05_a_ping_is_answered_while_the_session_lives,
    control_06_registered_says_what_is_listened_to,
    control_07_close_ends_the_events,
    events_01_they_come_in_order_and_next_waits,
    events_02_after_lost_there_is_nothing_more,
    events_03_a_dropped_next_loses_nothing,
    events_04_who_does_not_keep_up_is_lost,
);
