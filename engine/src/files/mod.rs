//! Files of our own: the runtime folder, how a file is opened safely, the lines of a log. It does not know what stands in them.

pub mod folder;
pub mod logbook;
pub mod regular;
