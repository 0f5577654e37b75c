//! Who is trusted: the user behind a socket, the token of a port, signatures of entries.
//!
//! The room does not know what is requested, nor what is signed.

pub mod peer;
pub mod signature;
pub mod token;
