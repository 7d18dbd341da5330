//! What the clauses' tests say when they see something else than they should.

use std::fmt::{Debug, Display};

use super::clause::{Stop, Verdict};

/// Violated where the two differ. `what` says what was done and what is looked at.
pub(crate) fn equal<T: PartialEq<U> + Debug, U: Debug>(what: impl Display, saw: T, expected: U) -> Verdict {
    if saw == expected { Ok(()) } else { violated(format!("{what}: saw {saw:?}, expected {expected:?}")) }
}

/// Violated where `holds` is not so.
pub(crate) fn that(holds: bool, how: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { violated(how()) }
}

/// The clause is violated.
pub(crate) fn violated<T>(how: impl Into<String>) -> Verdict<T> {
    Err(Stop::Violated(how.into()))
}

/// What the fixture should have given, where it can.
pub(crate) fn needed<T>(given: Option<T>, what: &'static str) -> Verdict<T> {
    given.ok_or_else(|| Stop::Lacking(format!("the fixture has no {what}")))
}

/// The clause is about backends that can do `what`.
pub(crate) fn capable(can: bool, what: &'static str) -> Verdict {
    if can { Ok(()) } else { Err(Stop::Lacking(format!("the backend is not {what}, by its capabilities"))) }
}
