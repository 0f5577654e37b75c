//! What a lookup works with: entries and their format, who waits for whose command, and where outputs are put.
//!
//! Every part stands alone; `Cache` puts them together. Nothing here knows a store or another machine.

pub mod claim;
pub mod destination;
pub mod entry;
pub mod flight;
pub mod inputs;
pub mod packed;
pub mod restore;
