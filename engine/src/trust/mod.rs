//! Checks of trust: the user of a socket's peer, the token of a port, signatures of entries.
//!
//! The room does not know the requests, nor the content of entries.

pub mod peer;
pub mod signature;
pub mod token;
