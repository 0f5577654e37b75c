//! What the engine and its program `wafd-cluster` say to each other of commands that run on a cluster.
//!
//! Pure. It knows nothing of the cluster: the program is on this machine, and opens the files that are named here itself.

pub mod message;

/// The form of entries that a worker must make for us, and our version. Both must be the worker's, too.
pub const VERSION: &str = concat!("1 ", env!("CARGO_PKG_VERSION"));
/// The variable of a command that has the version.
pub const ENTRY: &str = "WAFD_ENTRY";
/// The variable of a command that names the folders which have nothing but what was sent, separated by colons.
pub const PLACES: &str = "WAFD_PLACES";
/// Where a worker puts an entry, in the folder of the command.
pub const FOLDER: &str = ".wafd";
