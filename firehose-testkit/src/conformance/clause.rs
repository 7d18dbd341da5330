//! What a clause of a contract is, and what came of trying it.

use std::fmt;
use std::pin::Pin;

use super::deadline::{self, DEADLINE};

/// The future of a clause's test.
pub(crate) type Trying<'a> = Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>;

/// What a clause's test comes to.
pub(crate) type Verdict<T = ()> = Result<T, Stop>;

/// Why a clause's test did not go on.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The contract is broken: how, and what was seen.
    Violated(String),
    /// What the test needs is not there.
    Lacking(String),
}

/// An error where the contract has none.
impl From<firehose_core::Error> for Stop {
    fn from(error: firehose_core::Error) -> Self {
        Self::Violated(format!("an error where there should be none: {error}"))
    }
}

/// One test of a contract, as a value; `F` is the fixture that it runs on.
///
/// The macros make a `#[test]` of each. As values they can be run one by one, which is how this crate's own tests show
/// that each of them catches what it is there for.
pub struct Clause<F: ?Sized + 'static> {
    pub(crate) contract: &'static str,
    pub(crate) number: u32,
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) run: for<'a> fn(&'a F) -> Trying<'a>,
}

impl<F: ?Sized> Clause<F> {
    /// The trait that it is of.
    pub fn contract(&self) -> &'static str {
        self.contract
    }

    /// Its number in the trait's documentation. Several tests may share one.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The name of the test that a macro makes of it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What it says.
    pub fn title(&self) -> &'static str {
        self.title
    }

    /// Tries it on a fixture that is fresh. One that hangs is violated after [`Clause::DEADLINE`].
    pub async fn check(&self, fixture: &F) -> Outcome {
        match deadline::within((self.run)(fixture)).await {
            Some(Ok(())) => Outcome::Kept,
            Some(Err(Stop::Lacking(what))) => Outcome::Skipped(what),
            Some(Err(Stop::Violated(how))) => Outcome::Violated(self.violation(how)),
            None => Outcome::Violated(self.violation(format!("it hangs: nothing more within {DEADLINE:?}"))),
        }
    }

    /// How long one test may take.
    pub const DEADLINE: std::time::Duration = DEADLINE;

    pub(crate) fn violation(&self, how: impl Into<String>) -> Violation {
        Violation { contract: self.contract, number: self.number, title: self.title, how: how.into() }
    }
}

impl<F: ?Sized> fmt::Debug for Clause<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clause").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What came of trying a [`Clause`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "it may be a violation"]
pub enum Outcome {
    /// The backend keeps it.
    Kept,
    /// The fixture, or the backend, lacks something that the test needs: what.
    Skipped(String),
    /// The backend breaks it.
    Violated(Violation),
}

/// How a backend breaks a clause. Its `Display` says which clause, how, and what was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    contract: &'static str,
    number: u32,
    title: &'static str,
    how: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "clause {} of {} ({}): {}", self.number, self.contract, self.title, self.how)
    }
}

impl std::error::Error for Violation {}

/// Makes the table of a contract's clauses from its list.
macro_rules! clause_table {
    ([$fixture:ty] $($contract:ident $number:literal $name:ident $title:literal $body:path;)+) => {
        &[$($crate::conformance::clause::Clause {
            contract: stringify!($contract),
            number: $number,
            name: stringify!($name),
            title: $title,
            run: |fixture: &$fixture| Box::pin($body(fixture)),
        }),+]
    };
}
pub(crate) use clause_table;
