//! Text on the wire, apart from all I/O: what a client asks for, and what it is sent.
//!
//! An event is named after its stream. These names are the protocol's own, and a stream that is called so arrives with
//! `firehose:` before its name: `EventSource` uses `open`, `error` and `message` itself, the rest is below.

mod frame;
mod request;

pub(crate) use frame::{GapContext, KEEP_ALIVE, gap, id_block, message, reset, retry, subscribed};
pub(crate) use request::{SseRequest, stream_of_path};

/// The most streams of one connection, so that its token stays under 4 KiB.
pub(crate) const MAX_STREAMS: usize = 64;

/// Up to so many streams the token comes with each event; above, by itself from time to time.
pub(crate) const MAX_INLINE_STREAMS: usize = 8;

/// Messages that a client asked for are no longer there.
pub(crate) const GAP_EVENT: &str = "firehose_replay_gap";

/// A stream is not the one that the client knew.
pub(crate) const RESET_EVENT: &str = "firehose_reset";

/// The first event of a connection whose client asked for it with `?subscribed=true`.
pub(crate) const SUBSCRIBED_EVENT: &str = "firehose_subscribed";
