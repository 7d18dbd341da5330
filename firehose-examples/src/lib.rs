//! What the examples share. The gateway is `src/bin/gateway.rs`.
//!
//! [`SqliteStore`] is a store of one's own, on SQLite; `docs/backends.md` tells how one is written.

mod sqlite;

pub use sqlite::{SqliteOptions, SqliteStore};

/// The code of the README, compiled with the other examples so that it stays true.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
#[derive(Debug)]
pub struct Readme;
