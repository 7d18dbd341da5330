//! From an announcement to a subscriber: whole, in order, once.

mod catch_up;
mod delivery;
mod feed;
mod handler;
mod heads;
mod held;
mod hub;
mod options;
mod recent;
mod replay;
mod resume;
mod set;
mod subscription;
mod sweep;
mod topic;
mod topic_handle;

pub(crate) use catch_up::CatchUp;
pub use delivery::{CloseReason, Delivery, Gap, GapReason, Reset, ResetReason};
pub use handler::HandlerGuard;
pub(crate) use handler::handle;
pub(crate) use heads::HeadReads;
pub(crate) use hub::Hub;
pub use options::{Lag, SubscribeOptions};
pub use set::Subscriptions;
pub use subscription::Subscription;
pub(crate) use sweep::Sweep;
