//! Files of our own: the runtime folder, how a file is opened safely, the lines of a log, and which folder is a checkout. The room does not know what the
//! files contain.

pub mod checkout;
pub mod folder;
pub mod logbook;
pub mod regular;
