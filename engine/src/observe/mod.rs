//! The files and variables that a command used while it ran: its records, and the accesses that they describe.
//!
//! `known_programs` is the table of programs of which some accesses do not count. The room does not compare accesses with
//! the present state of files, and draws no conclusions from them: `facts` and `cache::story` do.

pub mod access;
pub mod crate_names;
pub mod known_programs;
pub mod trace;
