//! HTTP/1 as both our ports speak it, that of a team's server and that of the dashboard: heads of requests and of answers.
//!
//! Pure. It knows nothing of what is served, nor of who may have it.

pub mod asker;
pub mod head;
pub mod reply;

/// A request that is refused with this status and these words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused(pub u16, pub &'static str);
