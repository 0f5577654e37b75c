//! What a worker and the keeper of a slot say to each other: a line of JSON each.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a slot is like. It stays so until the slot is made anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The slot's folder, with `root`, `tmp`, `home`, `out` and `new` in it.
    pub folder: PathBuf,
    /// Folders of which commands see what is in `root`, and nothing of this machine.
    pub places: Vec<PathBuf>,
    /// Folders of this machine that commands may read.
    pub shared: Vec<PathBuf>,
    /// Files of this machine that they must not see even so.
    pub hidden: Vec<PathBuf>,
    /// The folder of `wafd` and `wafcc`.
    pub programs: PathBuf,
    /// The user and group of commands, if it is not ours.
    pub user: Option<u32>,
    /// Without namespaces, commands see all of this machine.
    pub is_isolated: bool,
    /// What the slot's engine is told when it starts.
    pub variables: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub argv: Vec<String>,
    pub variables: Vec<(String, String)>,
    pub folder: PathBuf,
    pub milliseconds: u64,
    /// The largest file that it may write.
    pub largest: u64,
    /// No process of the slot outlives it.
    pub is_last: bool,
}

/// What became of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// As a shell tells it: with 128 and the number of a signal.
    pub status: i32,
    pub is_late: bool,
    /// It was not started, for this reason.
    pub trouble: Option<String>,
    /// Microseconds.
    pub user: u64,
    pub system: u64,
    /// Bytes of memory.
    pub peak: u64,
}
