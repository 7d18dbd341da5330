//! What the examples share. The gateway is `src/bin/gateway.rs`.
//!
//! [`SqliteStore`] is a store of one's own and [`Board`] a transport; [`guide`] tells how one is written.

mod board;
pub mod guide;
mod sqlite;

pub use board::Board;
pub use sqlite::{SqliteOptions, SqliteStore};

/// The code of the README, compiled with the other examples so that it stays true.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
#[derive(Debug)]
pub struct Readme;
