//! HTTP/1 for our two ports, the team server and the dashboard: heads of requests and replies.
//!
//! Pure. Does not know what is served, nor who may have it.

pub mod asker;
pub mod head;
pub mod reply;

/// A request that is refused with this status and these words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused(pub u16, pub &'static str);
