//! What the examples share. The gateway is `src/bin/gateway.rs`.

/// The code of the README, compiled with the other examples so that it stays true.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
#[derive(Debug)]
pub struct Readme;
