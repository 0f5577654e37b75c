//! Bytes and texts: digests, fields of a message, frames of a stream, numbers for people, what an ELF file says of itself.
//!
//! Knows nobody: no file, no socket, no command.

pub mod digest;
pub mod elf;
pub mod fields;
pub mod frame;
pub mod path_text;
pub mod quantity;
pub mod text;
