//! Tells that a file has changed, without reading it.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What of a file's status changes with its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp(u64, u64, i64, i64, u64);

impl Stamp {
    pub fn of(found: &Metadata) -> Stamp {
        Stamp(found.dev(), found.ino(), found.mtime(), found.mtime_nsec(), found.len())
    }

    /// `None` if it is not there.
    pub fn at(path: &Path) -> Option<Stamp> {
        fs::metadata(path).ok().as_ref().map(Stamp::of)
    }
}
