//! Backends that are broken on purpose, one fault each, and the one test of the suite that catches it.
//!
//! A fault that two tests catch shows that they test the same; one that none catches, that a clause is not tested.

mod clock;
mod store;
mod transport;

use std::collections::BTreeSet;

use firehose_testkit::conformance::{Clause, Outcome};

/// Tries every clause on a fixture of its own: exactly `meant` must be violated, and say all of `words`.
async fn catches<F: ?Sized>(clauses: &[Clause<F>], make: impl Fn() -> Box<F>, meant: &str, words: &[&str]) {
    let mut caught = Vec::new();
    for clause in clauses {
        if let Outcome::Violated(violation) = clause.check(&*make()).await {
            caught.push((clause.name(), violation.to_string()));
        }
    }
    let names: Vec<_> = caught.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, [meant], "{caught:#?}");
    let clause = clauses.iter().find(|clause| clause.name() == meant).unwrap();
    let begin = format!("clause {} of {} ({}): ", clause.number(), clause.contract(), clause.title());
    let message = &caught[0].1;
    assert!(message.starts_with(&begin), "{message}");
    for words in words {
        assert!(message[begin.len()..].contains(words), "{words:?} is not in {message:?}");
    }
}

/// Tries every clause on a fixture of its own: all must be kept, and none skipped.
async fn keeps_all<F: ?Sized>(clauses: &[Clause<F>], make: impl Fn() -> Box<F>) {
    for clause in clauses {
        let outcome = clause.check(&*make()).await;
        assert_eq!(outcome, Outcome::Kept, "{}", clause.name());
    }
}

/// Every clause must have a fault.
fn all_are_meant<F: ?Sized>(clauses: &[Clause<F>], meant: &[&str]) {
    let names: BTreeSet<_> = clauses.iter().map(Clause::name).collect();
    assert_eq!(names, meant.iter().copied().collect(), "each test of the suite catches something");
}

/// A test a fault, and one that every clause has a fault.
macro_rules! faults {
    ($clauses:ident, $make:expr; $($name:ident $fault:ident => $meant:literal $words:expr;)+) => {
        $(#[tokio::test(start_paused = true)]
        async fn $name() {
            let make = $make;
            $crate::broken::catches($clauses(), || make(Fault::$fault), $meant, &$words).await;
        })+

        #[tokio::test(start_paused = true)]
        async fn without_a_fault_every_clause_is_kept() {
            let make = $make;
            $crate::broken::keeps_all($clauses(), || make(Fault::None)).await;
        }

        #[test]
        fn every_clause_has_a_fault_that_it_catches() {
            $crate::broken::all_are_meant($clauses(), &[$($meant),+]);
        }
    };
}
use faults;
