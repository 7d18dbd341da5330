//! The store of `docs/backends.md`: it is what stands there, and it keeps the contract.
#![allow(dead_code, unreachable_pub, reason = "the example is a program of its own")]

use std::sync::Arc;
use std::time::Duration;

use firehose_core::{Clock, MessageStore};
use firehose_testkit::ManualClock;
use firehose_testkit::conformance::StoreFixture;

#[path = "../examples/minimal_store.rs"]
mod minimal_store;
use minimal_store::Shelf;

#[test]
fn the_guide_shows_both_programs_to_the_letter() {
    let guide = include_str!("../../docs/backends.md");
    for (file, text) in [
        ("examples/minimal_store.rs", include_str!("../examples/minimal_store.rs")),
        ("src/board.rs", include_str!("../src/board.rs")),
    ] {
        let code = text.split_once("\n\n").map_or("", |(_, code)| code).trim_end();
        assert!(guide.contains(&format!("```rust\n{code}\n```")), "copy {file}, without its first lines, to the guide");
    }
}

struct Fresh(Shelf, ManualClock);

impl Fresh {
    fn new() -> Self {
        let clock = ManualClock::new();
        Self(Shelf::new(clock.clone()), clock)
    }
}

#[async_trait::async_trait]
impl StoreFixture for Fresh {
    fn store(&self) -> Arc<dyn MessageStore> {
        Arc::new(self.0.clone())
    }

    async fn grow_older(&self, by: Duration) -> bool {
        self.1.set_wall(self.1.wall() + by);
        true
    }
}

firehose_testkit::conformance::message_store!(Fresh::new());
