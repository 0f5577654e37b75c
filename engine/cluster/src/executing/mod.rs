//! Runs commands of this machine's builds on a cluster.

pub mod files;
pub mod root;
