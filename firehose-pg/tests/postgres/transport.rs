//! Each clause of `Notifier`, `Listener`, `ListenControl` and `ListenEvents`.

use firehose_core::{
    Backend, ChannelIdentifier, Config, ErrorKind, ListenEvent, Naming, Notification, Session, StreamName,
};

use crate::harness::{Shape, TestDatabase, eventually, run, within};

pub(crate) fn channel(name: &str) -> ChannelIdentifier {
    ChannelIdentifier::new(name).unwrap()
}

pub(crate) async fn session(backend: &Backend) -> Session {
    backend.listener.as_ref().unwrap().connect().await.unwrap()
}

/// The next notification, as (channel, payload).
pub(crate) async fn heard(session: &mut Session) -> (String, String) {
    match within(10, session.events.next()).await {
        ListenEvent::Notification { channel, payload } => (channel.as_str().to_owned(), payload.as_ref().to_owned()),
        ListenEvent::Lost(e) => panic!("lost: {e}"),
    }
}

pub(crate) fn notification(name: &str, payload: &str) -> Notification {
    Notification::new(channel(name), payload)
}

/// The next thing heard is what is sent now: nothing else was on its way.
async fn nothing_else(backend: &Backend, session: &mut Session) {
    session.control.listen(&[channel("sentinel")]).await.unwrap();
    backend.notifier.notify(&[notification("sentinel", "")]).await.unwrap();
    assert_eq!(heard(session).await.0, "sentinel");
}

async fn backends(db: &TestDatabase) -> [Backend; 2] {
    let through_the_store = Config { notify_pool_size: 0, ..db.config() };
    [db.backend().await, firehose_pg::connect(&through_the_store).await.unwrap()]
}

#[tokio::test]
async fn notifications_arrive_all_of_them_in_their_order() {
    run(Shape::Fresh, |db| async move {
        for backend in backends(&db).await {
            let (mut one, mut two) = (session(&backend).await, session(&backend).await);
            one.control.listen(&[channel("a"), channel("b")]).await.unwrap();
            two.control.listen(&[channel("a")]).await.unwrap();
            // c36: equal ones too
            let sent = [("a", "x"), ("b", "x"), ("a", "x"), ("a", "y"), ("a", "x"), ("c", "unheard"), ("a", "")];
            backend.notifier.notify(&sent.map(|(c, p)| notification(c, p))).await.unwrap();
            backend.notifier.notify(&[]).await.unwrap();
            let (mut to_one, mut to_two) = (Vec::new(), Vec::new());
            for _ in 0..6 {
                to_one.push(heard(&mut one).await);
            }
            for _ in 0..5 {
                to_two.push(heard(&mut two).await.1);
            }
            assert_eq!(to_two, ["x", "x", "y", "x", ""]);
            let on_a: Vec<_> = to_one.iter().filter(|(c, _)| c == "a").map(|(_, p)| p.as_str()).collect();
            assert_eq!(on_a, to_two);
            assert_eq!(to_one.iter().filter(|(c, _)| c == "b").count(), 1);
            nothing_else(&backend, &mut one).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_payload_is_sent_whole_up_to_its_limit_and_refused_with_its_call_beyond() {
    run(Shape::Fresh, |db| async move {
        for backend in backends(&db).await {
            let mut session = session(&backend).await;
            session.control.listen(&[channel("a")]).await.unwrap();
            let most = backend.notifier.max_payload_bytes();
            assert_eq!(most, 7_999);
            // c40: bytes count, not characters
            for payload in ["x".repeat(most), "é".repeat(most / 2), "\"\\\n'; --".repeat(1_000)[..most].to_owned()] {
                backend.notifier.notify(&[notification("a", &payload)]).await.unwrap();
                assert_eq!(heard(&mut session).await.1, payload);
            }
            let long = [notification("a", "short"), notification("a", &"é".repeat(most / 2 + 1))];
            let e = backend.notifier.notify(&long).await.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::TooLarge);
            // c43: the connection stays usable
            let nul = backend.notifier.notify(&[notification("a", "x\0y")]).await.unwrap_err();
            assert_eq!(nul.kind(), ErrorKind::InvalidData);
            nothing_else(&backend, &mut session).await;
        }
    })
    .await;
}

#[tokio::test]
async fn equal_pushes_in_great_number_all_arrive() {
    run(Shape::Fresh, |db| async move {
        let backend = db.backend().await;
        let mut session = session(&backend).await;
        session.control.listen(&[channel("jobs")]).await.unwrap();
        backend.notifier.notify(&vec![notification("jobs", "x"); 500]).await.unwrap();
        for _ in 0..500 {
            assert_eq!(heard(&mut session).await.1, "x");
        }
        nothing_else(&backend, &mut session).await;
    })
    .await;
}

#[tokio::test]
async fn a_notifier_needs_no_store_and_no_listener() {
    run(Shape::Fresh, |db| async move {
        let backend = db.backend().await;
        let mut session = session(&backend).await;
        session.control.listen(&[channel("a")]).await.unwrap();
        drop(backend.store);
        drop(backend.listener);
        backend.notifier.notify(&[notification("a", "x")]).await.unwrap();
        assert_eq!(heard(&mut session).await.1, "x");
        // Killed under it, it opens another connection: an error at most once.
        let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE '%pg_notify(channel%' AND pid <> pg_backend_pid()";
        assert_eq!(db.number(kill).await, 1);
        if let Err(e) = backend.notifier.notify(&[notification("a", "y")]).await {
            assert!(matches!(e.kind(), ErrorKind::ConnectionLost | ErrorKind::ServerShutdown), "{e:?}");
            backend.notifier.notify(&[notification("a", "y")]).await.unwrap();
        }
        assert_eq!(heard(&mut session).await.1, "y");
    })
    .await;
}

#[tokio::test]
async fn listen_acknowledged_means_that_every_later_commit_is_heard() {
    run(Shape::Fresh, |db| async move {
        let backend = db.backend().await;
        let early = db.client().await;
        early.batch_execute("BEGIN; SELECT pg_notify('a', 'sent before, committed after')").await.unwrap();
        let mut session = session(&backend).await;
        assert_eq!(session.control.registered().await.unwrap(), Some(Vec::new()), "a new session listens on nothing");
        session.control.listen(&[channel("a")]).await.unwrap();
        early.batch_execute("COMMIT").await.unwrap();
        assert_eq!(heard(&mut session).await.1, "sent before, committed after");

        session.control.listen(&[channel("a"), channel("b")]).await.unwrap();
        session.control.unlisten(&[channel("never")]).await.unwrap();
        session.control.listen(&[]).await.unwrap();
        let mut registered = session.control.registered().await.unwrap().unwrap();
        registered.sort();
        assert_eq!(registered, [channel("a"), channel("b")]);
        session.control.unlisten(&[channel("a")]).await.unwrap();
        backend.notifier.notify(&[notification("a", "unheard"), notification("b", "heard")]).await.unwrap();
        assert_eq!(heard(&mut session).await, ("b".to_owned(), "heard".to_owned()));
        session.control.ping().await.unwrap();
        nothing_else(&backend, &mut session).await;
    })
    .await;
}

#[tokio::test]
async fn commands_run_while_events_are_awaited_and_nothing_is_lost() {
    run(Shape::Fresh, |db| async move {
        let backend = db.backend().await;
        let Session { control, mut events } = session(&backend).await;
        control.listen(&[channel("a")]).await.unwrap();
        let hear = async {
            for n in 0..2_000 {
                // Given up and taken again: a dropped wait loses no event.
                let event = loop {
                    tokio::select! {
                        biased;
                        event = events.next() => break event,
                        () = tokio::task::yield_now() => {}
                    }
                };
                let ListenEvent::Notification { payload, .. } = event else { panic!("{event:?}") };
                assert_eq!(&*payload, n.to_string());
            }
        };
        let send = async {
            for n in 0..2_000 {
                backend.notifier.notify(&[notification("a", &n.to_string())]).await.unwrap();
            }
        };
        let command = async {
            for n in 0..200 {
                let channels = [channel(&format!("c{n}")), channel(&format!("d{n}"))];
                control.listen(&channels).await.unwrap();
                control.unlisten(&channels).await.unwrap();
                control.ping().await.unwrap();
            }
        };
        within(30, async { tokio::join!(hear, send, command) }).await;
    })
    .await;
}

#[tokio::test]
async fn many_channels_are_listened_to_at_once() {
    run(Shape::Fresh, |db| async move {
        let backend = db.backend().await;
        let mut session = session(&backend).await;
        let channels: Vec<ChannelIdentifier> =
            (0..2_500).map(|n| Naming::default().stream(&StreamName::new(format!("s{n}")).unwrap())).collect();
        session.control.listen(&channels).await.unwrap();
        assert_eq!(session.control.registered().await.unwrap().unwrap().len(), 2_500);
        backend.notifier.notify(&[Notification::new(channels[2_499].clone(), "x")]).await.unwrap();
        assert_eq!(heard(&mut session).await.0, channels[2_499].as_str());
        // c48: and given up again, on the same connection
        session.control.unlisten(&channels).await.unwrap();
        assert_eq!(session.control.registered().await.unwrap().unwrap(), []);
    })
    .await;
}

fn sessions_of(application: &str) -> String {
    format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{application}' AND datname = current_database()"
    )
}

#[tokio::test]
async fn dropping_either_half_closes_the_connection_at_once() {
    run(Shape::Fresh, |db| async move {
        let config = Config { application_name: "halves".to_owned(), ..db.config() };
        let backend = firehose_pg::connect(&config).await.unwrap();
        let own = db.number(&sessions_of("halves")).await;
        for half in 0..3 {
            let Session { control, mut events } = session(&backend).await;
            control.listen(&[channel("a")]).await.unwrap();
            assert_eq!(db.number(&sessions_of("halves")).await, own + 1);
            match half {
                0 => {
                    drop(control);
                    assert!(matches!(events.next().await, ListenEvent::Lost(_)));
                    assert!(matches!(events.next().await, ListenEvent::Lost(_)), "again and again");
                }
                1 => {
                    drop(events);
                    assert_eq!(control.ping().await.unwrap_err().kind(), ErrorKind::ConnectionLost);
                }
                _ => {
                    within(10, control.close()).await;
                    let ListenEvent::Lost(e) = within(10, events.next()).await else { panic!("not lost") };
                    assert_eq!(e.kind(), ErrorKind::ConnectionLost);
                    assert!(control.listen(&[channel("b")]).await.is_err());
                }
            }
            let gone = || async { (db.number(&sessions_of("halves")).await == own).then_some(()) };
            eventually("the session's end", gone).await;
        }
    })
    .await;
}

#[tokio::test]
async fn c15_c16_a_killed_session_is_lost_and_the_next_one_is_another() {
    run(Shape::Fresh, |db| async move {
        let backend = db.backend().await;
        let mut session = session(&backend).await;
        session.control.listen(&[channel("victim")]).await.unwrap();
        backend.notifier.notify(&[notification("victim", "last words")]).await.unwrap();
        let pid = || db.number("SELECT max(pid)::bigint FROM pg_stat_activity WHERE query LIKE 'LISTEN%victim%'");
        let first = pid().await;
        db.execute(&format!("SELECT pg_terminate_backend({first})")).await;
        assert_eq!(heard(&mut session).await.1, "last words", "what arrived before the end is heard");
        let ListenEvent::Lost(e) = within(10, session.events.next()).await else { panic!("not lost") };
        assert!(matches!(e.kind(), ErrorKind::ServerShutdown | ErrorKind::ConnectionLost), "{e:?}");
        assert!(e.is_retryable());
        assert!(session.control.listen(&[channel("x")]).await.is_err());

        let mut next = self::session(&backend).await;
        next.control.listen(&[channel("victim")]).await.unwrap();
        assert_ne!(pid().await, first);
        backend.notifier.notify(&[notification("victim", "again")]).await.unwrap();
        assert_eq!(heard(&mut next).await.1, "again");
    })
    .await;
}

#[tokio::test]
async fn c38_a_session_that_is_not_read_is_drained_and_lost_in_the_end() {
    run(Shape::Fresh, |db| async move {
        let backend = db.backend().await;
        let mut session = session(&backend).await;
        session.control.listen(&[channel("a")]).await.unwrap();
        let payload = "x".repeat(7_000);
        let flood = "SELECT count(pg_notify('a', $1 || n::text)) FROM generate_series(1, 5000) n";
        let client = db.client().await;
        for _ in 0..2 {
            client.query_one(flood, &[&payload]).await.unwrap();
        }
        // Nobody reads, and yet the server gets rid of everything: the session answers.
        eventually("the session's end", || async {
            let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'ClientWrite'";
            (session.control.ping().await.is_err() && db.number(waiting).await == 0).then_some(())
        })
        .await;
        let mut read = 0;
        let lost = loop {
            match within(10, session.events.next()).await {
                ListenEvent::Notification { .. } => read += 1,
                ListenEvent::Lost(e) => break e,
            }
        };
        assert!((5_000..10_000).contains(&read), "{read} of 10,000 fit");
        assert_eq!(lost.to_string(), "listen: the session did not keep up");
    })
    .await;
}
