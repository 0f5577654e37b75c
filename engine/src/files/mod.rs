//! Files of our own: the runtime folder, how a file is opened safely, the lines of a log. The room does not know what the
//! files contain.

pub mod folder;
pub mod logbook;
pub mod regular;
