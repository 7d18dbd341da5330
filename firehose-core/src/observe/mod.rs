//! What an engine tells of itself.

mod diagnostics;
mod events;
mod health;
mod metrics;

pub use diagnostics::{Diagnostics, StreamDiagnosis};
pub(crate) use events::Observer;
pub use events::{ErrorReport, Event, Stage};
pub use health::{Degradation, Health, State, StopReason};
pub(crate) use metrics::Gauges;
pub use metrics::MetricsSnapshot;
