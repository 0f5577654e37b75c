//! The cache: what commands depended on, and what came of them.
//!
//! ```text
//! execute ─► action ─► entries of its key ─► facts that hold ─► restore ─► outcome
//!               │                └─► none: run it observed ─► accesses ─► facts ─► entry ─► store
//!               └─► not cacheable: a named reason
//! ```
//!
//! Knows nothing of sockets, slots and connections. Nothing here can fail a build: whoever is in doubt says why, and the
//! real command runs.

pub mod access;
pub mod digest;
pub mod store;
