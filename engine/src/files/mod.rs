//! Files of our own: the runtime folder, how a file is opened safely, the lines of a log, which folder is a checkout, and a search in a file. The room does not know
//! what the files mean.

pub mod checkout;
pub mod folder;
pub mod logbook;
pub mod regular;
pub mod search;
