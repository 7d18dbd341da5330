//! Configuration: plain data, read from a file and the environment, checked as a whole.

mod check;
mod durations;
mod keys;
mod load;
mod secret;
mod threshold;

pub use keys::Config;
pub use load::Loaded;
pub use secret::Secret;
pub use threshold::CleanupThreshold;
