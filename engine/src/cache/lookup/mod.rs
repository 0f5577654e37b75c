//! The parts of a lookup: entries and their format, which request waits for which command, and where outputs are written.
//!
//! Each part stands alone; `Cache` combines them. They know neither a store nor another machine.

pub mod claim;
pub mod destination;
pub mod entry;
pub mod flight;
pub mod frame;
pub mod inputs;
pub mod packed;
pub mod restore;
