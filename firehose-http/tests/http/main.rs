//! The routes, asked over a real connection.

mod bad_input;
mod events;
mod failures;
mod lifecycle;
mod publishing;
mod resume;
mod support;
