//! The most connections and commands of an engine. This is a separate program, because it raises the descriptor limit of its
//! process, and opens thousands of descriptors.

#[path = "../support/mod.rs"]
mod support;

mod commands;
mod connections;
