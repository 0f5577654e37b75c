//! Who may come in, and whose word is taken: the user behind a socket, the token of a port, signatures of entries.
//!
//! It does not know what is asked for, nor what is signed.

pub mod peer;
pub mod signature;
pub mod token;
