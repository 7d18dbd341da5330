//! The routes, asked over a real connection.

mod bad_input;
mod events;
mod lifecycle;
mod publishing;
mod resume;
mod support;
