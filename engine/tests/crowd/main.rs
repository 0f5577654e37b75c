//! As many connections and commands as an engine takes. This is a program of its own: it raises the limit of descriptors of its
//! process, and opens thousands of them.

#[path = "../support/mod.rs"]
mod support;

mod commands;
mod connections;
