//! The suite against the traits' documentation: no number without a test, no test without a number.

use std::collections::{BTreeMap, BTreeSet};

use firehose_testkit::conformance::{Clause, clock_clauses, listener_clauses, notifier_clauses, store_clauses};

const SOURCES: [&str; 4] = [
    include_str!("../../../firehose-core/src/backend/store.rs"),
    include_str!("../../../firehose-core/src/backend/notifier.rs"),
    include_str!("../../../firehose-core/src/backend/listener.rs"),
    include_str!("../../../firehose-core/src/backend/clock.rs"),
];

/// The numbers of each trait's `# Contract`, in the order in which they stand.
fn documented() -> BTreeMap<&'static str, Vec<u32>> {
    let mut contracts = BTreeMap::new();
    let mut numbers = None;
    for line in SOURCES.iter().flat_map(|source| source.lines()) {
        if line == "/// # Contract" {
            numbers = Some(Vec::new());
        } else if let Some(found) = &mut numbers {
            let number = line.strip_prefix("/// ").and_then(|line| line.split_once(". "));
            found.extend(number.and_then(|(number, _)| number.parse::<u32>().ok()));
        }
        if let Some(name) = line.strip_prefix("pub trait ")
            && let Some(found) = numbers.take()
        {
            let end = name.find(|c: char| !c.is_alphanumeric()).unwrap();
            contracts.insert(&name[..end], found);
        }
    }
    contracts
}

/// What the suite tests: name, number, contract.
fn tested() -> Vec<(&'static str, u32, &'static str)> {
    fn of<F: ?Sized>(clauses: &[Clause<F>]) -> impl Iterator<Item = (&'static str, u32, &'static str)> {
        clauses.iter().map(|clause| (clause.name(), clause.number(), clause.contract()))
    }
    of(store_clauses()).chain(of(notifier_clauses())).chain(of(listener_clauses())).chain(of(clock_clauses())).collect()
}

#[test]
fn every_number_of_the_documentation_has_a_test_and_every_test_a_number() {
    let documented = documented();
    assert_eq!(
        documented.keys().copied().collect::<Vec<_>>(),
        ["Clock", "ListenControl", "ListenEvents", "Listener", "MessageStore", "Notifier"]
    );
    for (contract, numbers) in documented {
        assert_eq!(
            numbers,
            (1..=numbers.len() as u32).collect::<Vec<_>>(),
            "{contract} is numbered from 1, without a gap"
        );
        let own = tested().into_iter().filter(|(_, _, of)| *of == contract);
        let tested: BTreeSet<u32> = own.map(|(_, number, _)| number).collect();
        assert_eq!(tested, numbers.into_iter().collect(), "{contract}");
    }
}

#[test]
fn a_name_tells_its_contract_and_number_and_is_unique() {
    let tested = tested();
    for (name, number, contract) in &tested {
        let word = match *contract {
            "MessageStore" => "store",
            "ListenControl" => "control",
            "ListenEvents" => "events",
            other => &other.to_lowercase(),
        };
        assert!(name.starts_with(&format!("{word}_{number:02}_")), "{name}");
    }
    let names: BTreeSet<_> = tested.iter().map(|(name, ..)| name).collect();
    assert_eq!(names.len(), tested.len());
}
