//! Parked programs: what they become, which are refused, and what can go wrong.

#[path = "../support/mod.rs"]
mod support;

mod commands;
mod refusals;
mod spawning;
mod thread;
mod trouble;
