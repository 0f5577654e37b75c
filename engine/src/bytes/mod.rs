//! Bytes and texts: digests, fields of a message, frames of a stream, numbers for users, headers of ELF files.
//!
//! Knows no files, no sockets and no commands.

pub mod digest;
pub mod elf;
pub mod fields;
pub mod frame;
pub mod path_text;
pub mod quantity;
pub mod text;
