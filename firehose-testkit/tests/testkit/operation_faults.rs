//! Calls that fail, hang and take time, and the trace of them.

use std::time::Duration;

use firehose_core::{
    Blocked, Cursor, Error, ErrorKind, HeadDetail, MonoTime, Notification, Outcome, PageLimit, Position, Retain, Scope,
    Step,
};
use firehose_testkit::{Operation, Phase, Testkit};

use crate::support::*;

/// Calls every operation once, and gives what each came to.
async fn call_all(testkit: &Testkit) -> Vec<(Operation, Result<(), ErrorKind>)> {
    let backend = testkit.backend();
    let (store, listener) = (backend.store, backend.listener.unwrap());
    let kind = |e: Error| e.kind();
    let now = Position::Cursor(Cursor::BEGINNING);
    let limit = PageLimit { rows: 1, bytes: 1 };
    // Connecting is one of them, so that the commands are tried on a session from before the fault.
    let before = testkit.process();
    let session = firehose_core::Listener::connect(&before.listener()).await;
    let mut results = vec![
        (Operation::Append, store.append(&[entry("a", "x")], Blocked::Skip).await.remove(0).map(drop).map_err(kind)),
        (Operation::GetMany, store.get_many(&[]).await.map(drop).map_err(kind)),
        (Operation::ReadAfter, store.read_after(&[(name("a"), now)], limit).await.map(drop).map_err(kind)),
        (Operation::ReadBefore, store.read_before(&name("a"), now, limit).await.map(drop).map_err(kind)),
        (Operation::Heads, store.heads(&[name("a")], HeadDetail::Cheap).await.map(drop).map_err(kind)),
        (Operation::Anchors, store.anchors(&[]).await.map(drop).map_err(kind)),
        (Operation::Trim, store.trim(Scope::All, Retain::default(), 1).await.map(drop).map_err(kind)),
        (Operation::DeleteStream, store.delete_stream(&name("b")).await.map(drop).map_err(kind)),
        (Operation::Settings, store.settings().await.map(drop).map_err(kind)),
        (Operation::Recover, store.recover().await.map_err(kind)),
        (Operation::Notify, backend.notifier.notify(&[]).await.map_err(kind)),
    ];
    match session {
        Err(error) => results.push((Operation::Connect, Err(error.kind()))),
        Ok(session) => {
            results.push((Operation::Connect, listener.connect().await.map(drop).map_err(kind)));
            let control = session.control;
            results.push((Operation::Listen, control.listen(&[channel("c")]).await.map_err(kind)));
            results.push((Operation::Unlisten, control.unlisten(&[channel("c")]).await.map_err(kind)));
            results.push((Operation::Registered, control.registered().await.map(drop).map_err(kind)));
            results.push((Operation::Ping, control.ping().await.map_err(kind)));
        }
    }
    results
}

#[tokio::test(start_paused = true)]
async fn every_operation_fails_alone_and_is_healed() {
    for &failing in Operation::ALL.iter().filter(|&&o| o != Operation::Close) {
        let testkit = Testkit::new(1);
        testkit.faults().on(failing).refuse(ErrorKind::ConnectionLost);
        for (operation, result) in call_all(&testkit).await {
            let expected = if operation == failing { Err(ErrorKind::ConnectionLost) } else { Ok(()) };
            assert_eq!(result, expected, "{operation} while {failing} fails");
        }
        testkit.faults().heal();
        assert!(call_all(&testkit).await.iter().all(|(_, result)| result.is_ok()), "{failing} is healed");
    }
}

#[tokio::test(start_paused = true)]
async fn failures_are_used_up_in_the_order_they_were_asked_for() {
    let testkit = Testkit::new(1);
    let store = store(&testkit);
    let faults = testkit.faults();
    faults.on(Operation::Append).fail(1, ErrorKind::Timeout(Step::Append));
    faults
        .on(Operation::Append)
        .fail_with(1, Error::new(ErrorKind::Backend, "append", "disk full").with_retryable(true));
    let mut errors = Vec::new();
    for _ in 0..3 {
        let results = store.append(&[entry("a", "1"), entry("b", "2")], Blocked::Skip).await;
        assert_eq!(kinds(&results)[0], kinds(&results)[1], "one an entry");
        errors.push(results.into_iter().next().unwrap().map_err(|e| (e.kind(), e.is_retryable(), e.to_string())));
    }
    let injected = "append: a fault that the test asked for".to_owned();
    assert_eq!(errors[0], Err((ErrorKind::Timeout(Step::Append), false, injected)));
    assert_eq!(errors[1], Err((ErrorKind::Backend, true, "append: disk full".to_owned())));
    assert_eq!(errors[2].as_ref().unwrap().sequence.0, 1, "nothing was stored before");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_an_unknown_outcome_of_work_that_was_done() {
    let testkit = Testkit::new(1);
    let store = store(&testkit);
    testkit.faults().on(Operation::Append).lose_answer(1);
    testkit.faults().on(Operation::Append).fail_after(1, ErrorKind::ConnectionLost);
    for kind in [ErrorKind::OutcomeUnknown, ErrorKind::ConnectionLost] {
        let error = store.append(&[keyed("a", "x", "k")], Blocked::Skip).await.remove(0).unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (kind, Outcome::Unknown));
    }
    let stored = store.append(&[keyed("a", "x", "k")], Blocked::Skip).await.remove(0).unwrap();
    assert_eq!(testkit.database().messages("a"), [stored], "once, however often it was tried");
}

#[tokio::test(start_paused = true)]
async fn a_hang_lasts_until_it_is_released() {
    let testkit = Testkit::new(1);
    let hold = testkit.faults().on(Operation::Append).hang();
    let call = tokio::spawn({
        let store = store(&testkit);
        async move { append(&*store, "a", &["x"]).await }
    });
    testkit.clock().advance(Duration::from_secs(3_600)).await;
    assert_eq!((call.is_finished(), hold.waiting(), testkit.database().stream_count()), (false, 1, 0));
    hold.release();
    assert_eq!(call.await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hang_after_the_work_holds_the_answer_back() {
    let testkit = Testkit::new(1);
    let session = testkit.backend().listener.unwrap().connect().await.unwrap();
    let hold = testkit.faults().on(Operation::Listen).hang_after();
    let listening = tokio::spawn(async move {
        session.control.listen(&[channel("c")]).await.unwrap();
        session
    });
    testkit.clock().idle().await;
    assert_eq!(hold.waiting(), 1);
    assert_eq!(testkit.wire().channels(), [channel("c")], "in effect, and not acknowledged");
    assert!(!listening.is_finished());
    testkit.faults().heal();
    let session = listening.await.unwrap();
    assert_eq!(session.control.registered().await.unwrap(), Some(vec![channel("c")]));
    drop(hold);
}

#[tokio::test(start_paused = true)]
async fn a_pause_between_connected_and_listening() {
    let testkit = Testkit::new(1);
    let hold = testkit.faults().on(Operation::Listen).hang();
    let mut session = testkit.backend().listener.unwrap().connect().await.unwrap();
    let listening = tokio::spawn(async move {
        session.control.listen(&[channel("c")]).await.unwrap();
        heard(&mut *session.events).await
    });
    testkit.clock().idle().await;
    testkit.database().announce_raw(channel("c"), "in the pause");
    hold.release();
    testkit.clock().idle().await;
    testkit.database().announce_raw(channel("c"), "after it");
    assert_eq!(listening.await.unwrap(), "after it");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_it_hangs_is_not_counted() {
    let testkit = Testkit::new(1);
    let hold = testkit.faults().on(Operation::Heads).hang();
    let call = tokio::spawn({
        let store = store(&testkit);
        async move { store.heads(&[], HeadDetail::Cheap).await.map(drop) }
    });
    testkit.clock().idle().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(hold.waiting(), 0);
    let phases: Vec<_> = testkit.faults().trace().iter().map(|t| t.phase).collect();
    assert_eq!(phases, [Phase::Started, Phase::Dropped]);
}

#[tokio::test(start_paused = true)]
async fn a_delay_passes_on_the_clock() {
    let testkit = Testkit::new(1);
    testkit.faults().on(Operation::Append).delay(Duration::from_secs(2));
    let call = tokio::spawn({
        let store = store(&testkit);
        async move { append(&*store, "a", &["x"]).await }
    });
    testkit.clock().advance(Duration::from_millis(1_999)).await;
    assert!(!call.is_finished());
    testkit.clock().advance(Duration::from_millis(1)).await;
    assert!(call.is_finished());
    testkit.faults().on(Operation::Append).delay(Duration::ZERO);
    append(&*store(&testkit), "a", &["y"]).await;
}

#[tokio::test(start_paused = true)]
async fn messages_are_not_found_a_few_times() {
    let testkit = Testkit::new(1);
    let store = store(&testkit);
    let message = append(&*store, "a", &["x"]).await.remove(0);
    testkit.faults().hide_messages(3);
    assert_eq!(store.get_many(&[message.id]).await.unwrap(), []);
    assert_eq!(after(&*store, "a", Cursor::BEGINNING, ALL).await.messages, []);
    let head = store.heads(&[name("a")], HeadDetail::Cheap).await.unwrap().remove(0).unwrap();
    assert_eq!(head.sequence, message.sequence, "heads are not hidden");
    let now = Position::Cursor(Cursor::at(None, firehose_core::Sequence(i64::MAX)));
    assert_eq!(store.read_before(&name("a"), now, ALL).await.unwrap().messages, []);
    assert_eq!(*store.get_many(&[message.id]).await.unwrap()[0], message);
}

#[tokio::test(start_paused = true)]
async fn a_panic_can_be_had() {
    let testkit = Testkit::new(1);
    testkit.faults().on(Operation::Notify).panic(1);
    let notifier = testkit.backend().notifier;
    let one = [Notification::new(channel("c"), "x")];
    let call = tokio::spawn({
        let (notifier, one) = (notifier.clone(), one.clone());
        async move { notifier.notify(&one).await }
    });
    assert!(call.await.unwrap_err().is_panic());
    notifier.notify(&one).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_trace_tells_what_came_before_what() {
    let testkit = Testkit::new(1);
    let process = testkit.process();
    let backend = process.backend();
    let session = backend.listener.unwrap().connect().await.unwrap();
    testkit.clock().advance(Duration::from_millis(1_500)).await;
    session.control.listen(&[channel("c")]).await.unwrap();
    process.faults().on(Operation::ReadAfter).fail(1, ErrorKind::Backend);
    let read = [(name("a"), Position::Cursor(Cursor::BEGINNING))];
    assert!(backend.store.read_after(&read, ALL).await.is_err());

    let trace = testkit.faults().trace();
    let listened = trace.iter().position(|t| t.is(Operation::Listen, Phase::Done)).unwrap();
    let read = trace.iter().position(|t| t.is(Operation::ReadAfter, Phase::Started)).unwrap();
    assert!(listened < read);
    assert_eq!((trace[listened].at, trace[listened].process), (MonoTime::new(Duration::from_millis(1_500)), 1));
    let text: Vec<_> = trace.iter().map(ToString::to_string).collect();
    assert_eq!(
        text,
        [
            "0ns #1 connect started",
            "0ns #1 connect done",
            "1.5s #1 listen started [c]",
            "1.5s #1 listen done [c]",
            "1.5s #1 read_after started [a]",
            "1.5s #1 read_after failed: Backend [a]",
        ]
    );
    testkit.faults().clear_trace();
    assert_eq!(process.faults().trace(), []);
}
