//! `wafd worker`: runs the commands of a cluster.

pub mod bots;
pub mod store;
pub mod tree;
