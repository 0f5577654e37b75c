//! Facts, and the world that they are held against: files, folders, variables and the processor, each looked at once.
//!
//! It knows accesses only as far as a driver's can be foretold (`diary`), and nothing of keys, entries and stores.

pub mod dated;
pub mod diary;
pub mod environment;
pub mod exception;
pub mod fact;
pub mod file_view;
pub mod input;
pub mod instructions;
pub mod listing;
pub mod path;
pub mod processor;
pub mod progress;
pub mod recent;
pub mod status;
pub mod world;
