//! Bytes and texts: digests, fields of a message, frames of a stream, numbers for people, what an ELF file says of itself.
//!
//! It knows no file, no socket and no command.

pub mod digest;
pub mod elf;
pub mod fields;
pub mod frame;
pub mod path_text;
pub mod quantity;
pub mod text;
