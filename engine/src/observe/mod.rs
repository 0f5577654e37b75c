//! What a command touched while it ran: what it noted of itself, and how that is read as accesses.
//!
//! `rules` is the table of programs whose accesses are known to mean less. Nothing here looks at the world, and nothing
//! knows what is concluded from an access: `facts` and `cache::story` do.

pub mod access;
pub mod known_programs;
pub mod trace;
