//! Starts processes, gives them their context, limits their number, and cleans up after them.
//!
//! The room does not know why a command runs, which client wants it, or what is parked or cached.

pub mod admission;
pub mod apart;
pub mod brake;
pub mod context;
pub mod fault;
pub mod guardian;
pub mod headroom;
pub mod jobserver;
pub mod mailbox;
pub mod meter;
pub mod peak_file;
pub mod peaks;
pub mod pins;
pub mod place;
pub mod processes;
pub mod prompt;
pub mod readable;
pub mod replace;
pub mod roster;
pub mod service;
pub mod spawn;
pub mod terminal;
