#![doc = include_str!("../../docs/backends.md")]
