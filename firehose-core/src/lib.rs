//! Firehose: persistent publish/subscribe (work in progress map).

mod backend;
mod config;
mod cursor;
mod error;
mod message;
mod naming;
mod stream;
mod token;
pub mod wire;

pub use backend::*;
pub use config::{Config, Loaded, Secret};
pub use cursor::{Before, Cursor, Start};
pub use error::{Error, ErrorKind, Outcome, Result, Step};
pub use message::{Epoch, Message, MessageId, MessageKey, NewMessage, Sequence, Timestamp};
pub use naming::{Layout, Naming};
pub use stream::{ChannelIdentifier, StreamName};
pub use token::Token;
