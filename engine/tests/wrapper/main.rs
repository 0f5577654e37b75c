//! The wrapper `wafcc`, in all situations in which a build may call it.

#[path = "../support/mod.rs"]
mod support;

mod commands;
mod limits;
mod names;
mod patience;
mod questions;
mod refusals;
mod reports;
mod settings;
mod strange_files;
