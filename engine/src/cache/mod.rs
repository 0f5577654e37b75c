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
pub mod action;
pub mod compiler;
pub mod digest;
pub mod entry;
pub mod environment;
pub mod exception;
pub mod fact;
pub mod flight;
pub mod language;
pub mod line;
pub mod listing;
pub mod obstacle;
pub mod options;
pub mod outputs;
pub mod packed;
pub mod path;
pub mod reason;
pub mod recent;
pub mod relocation;
pub mod response;
pub mod restore;
pub mod sharing;
pub mod status;
pub mod store;
pub mod story;
pub mod trace;
pub mod world;
