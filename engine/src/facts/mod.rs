//! Facts, and the present state of files, folders, variables and the processor, with which they are compared.
//!
//! The room knows accesses only to predict those of a driver (`driver_model`). It knows nothing of keys, entries and stores.

pub mod clang_header;
pub mod comments;
pub mod compared_times;
pub mod crates;
pub mod definitions;
pub mod driver_model;
pub mod environment;
pub mod exception;
pub mod fact;
pub mod file_view;
pub mod includes;
pub mod input;
pub mod instructions;
pub mod listing;
pub mod pasting;
pub mod path;
pub mod preprocessed;
pub mod processor;
pub mod progress;
pub mod recent;
pub mod status;
pub mod words;
pub mod world;
