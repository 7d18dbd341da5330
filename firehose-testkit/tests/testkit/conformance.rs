//! The conformance suite on everything in memory.

use firehose_core::{InProcess, SystemClock};
use firehose_testkit::{ManualClock, Testkit};

mod memory {
    firehose_testkit::conformance::message_store!(super::Testkit::new(1));
    firehose_testkit::conformance::notifier!(super::Testkit::new(1));
    firehose_testkit::conformance::listener!(super::Testkit::new(1));
}

mod in_process {
    firehose_testkit::conformance::notifier!(super::InProcess::new());
    firehose_testkit::conformance::listener!(super::InProcess::new());
}

mod system_clock {
    firehose_testkit::conformance::clock!(super::SystemClock::new());
}

mod manual_clock {
    firehose_testkit::conformance::clock!(super::ManualClock::new(), runtime = super::paused());
}

/// A runtime whose own time stands still, as the manual clock needs it.
fn paused() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}
