//! A clause as a test: a thread and a runtime of its own, a deadline, and words for what came of it.

use std::io::Write as _;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::clause::{Clause, Outcome};
use super::deadline::{DEADLINE, within};

/// How long making a fixture may take: it may start a server.
const MAKING: Duration = Duration::from_secs(300);

/// What a test needs from every kind of fixture.
#[doc(hidden)]
#[allow(async_fn_in_trait, reason = "nobody but the fixtures' traits implements it")]
pub trait Finish {
    /// Puts away what the test used.
    async fn finish(&self);
}

/// The runtime that the macros run a test on where they are given none: several threads, everything enabled.
///
/// # Panics
/// Where the system gives no thread.
#[allow(clippy::expect_used, reason = "a test that cannot begin fails")]
pub fn threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// The body of a test that a macro makes: tries the clause that is called `name` on the fixture that `make` gives.
///
/// # Panics
/// Where the clause is violated.
#[doc(hidden)]
#[allow(clippy::panic, reason = "this is how a test fails")]
pub fn run<F, M>(clauses: &'static [Clause<F>], (module, name): (&str, &str), runtime: fn() -> Runtime, make: fn() -> M)
where
    F: ?Sized + Finish + 'static,
    M: Future<Output = Box<F>> + 'static,
{
    let Some(clause) = clauses.iter().find(|clause| clause.name == name) else {
        panic!("no clause is called {name}");
    };
    let (made, begun) = mpsc::channel();
    let (done, ended) = mpsc::channel();
    let body = move || {
        let runtime = runtime();
        let outcome = runtime.block_on(async {
            let fixture = make().await;
            let _ = made.send(());
            let outcome = clause.check(&*fixture).await;
            // What a test leaves behind is no reason to fail it.
            let _ = within(fixture.finish()).await;
            outcome
        });
        let _ = done.send(outcome);
        runtime.shutdown_background();
    };
    let thread = match std::thread::Builder::new().name(name.to_owned()).spawn(body) {
        Ok(thread) => thread,
        Err(error) => panic!("{name}: no thread for it: {error}"),
    };
    let outcome = match begun.recv_timeout(MAKING) {
        // One deadline for the clause, one for what comes after it, and the rest for a busy machine.
        Ok(()) => ended.recv_timeout(DEADLINE * 3),
        Err(why) => Err(why),
    };
    match outcome {
        Ok(Outcome::Kept) => {}
        // Not by `eprintln!`, which is not shown for a test that passes.
        Ok(Outcome::Skipped(what)) => drop(writeln!(std::io::stderr(), "skipped {module}::{name}: {what}")),
        Ok(Outcome::Violated(violation)) => panic!("{violation}"),
        Err(RecvTimeoutError::Timeout) => {
            panic!("{}", clause.violation("it blocks its thread, and does not come back"))
        }
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => panic!("{}", clause.violation(format!("a panic: {}", words(&*panic)))),
            Ok(()) => panic!("{}", clause.violation("it ended without a word")),
        },
    }
}

fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

/// Makes the tests of a contract from its list.
#[doc(hidden)]
#[macro_export]
macro_rules! __firehose_clause_tests {
    ([$clauses:ident $fixture_trait:ident [$fixture:expr] [$runtime:expr]]
        $($contract:ident $number:literal $name:ident $title:literal $body:path;)+) => {$(
        #[test]
        #[doc = $title]
        fn $name() {
            $crate::conformance::run(
                $crate::conformance::$clauses(),
                (module_path!(), stringify!($name)),
                || $runtime,
                || async {
                    let fixture: Box<dyn $crate::conformance::$fixture_trait> = Box::new($fixture);
                    fixture
                },
            );
        }
    )+};
}
