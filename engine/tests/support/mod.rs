//! Helpers that the test programs share.
#![allow(dead_code)] // each program uses a part

pub mod clock;
pub mod exceptions;
pub mod observed_folder;
pub mod order;
pub mod peer;
pub mod probes;
pub mod process;
pub mod sandbox;
pub mod scripted_command;
pub mod stand_in;
pub mod stores;
pub mod wrapper;
