//! Tells that a file has changed, without reading it.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What of a file's status changes with its content, or with who may read it. A program can set back the time of a change, but
/// not that of the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    file: (u64, u64),
    changed: (i64, i64),
    status_changed: (i64, i64),
    size: u64,
}

impl Stamp {
    pub fn of(found: &Metadata) -> Stamp {
        Stamp {
            file: (found.dev(), found.ino()),
            changed: (found.mtime(), found.mtime_nsec()),
            status_changed: (found.ctime(), found.ctime_nsec()),
            size: found.len(),
        }
    }

    /// `None` if it is not there.
    pub fn at(path: &Path) -> Option<Stamp> {
        fs::metadata(path).ok().as_ref().map(Stamp::of)
    }
}
