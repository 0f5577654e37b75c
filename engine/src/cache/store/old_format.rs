//! Removes the store of an older format beside this one: no engine would read it again, and it would take disk space for
//! ever.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use rustix::fs::{flock, FlockOperation};

use crate::files::regular;

const FORMER: &str = "store-1";

/// Removes it, unless an older engine has it open. The lock is removed last, so that no engine opens it meanwhile.
pub fn remove_old_format(cache: &Path, stop: impl Fn() -> bool) -> io::Result<()> {
    let folder = cache.join(FORMER);
    let lock = folder.join("lock");
    let file = regular::open_with(OpenOptions::new().write(true), &lock)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    // A folder of a few thousand files at a time.
    for blobs in fs::read_dir(folder.join("blobs")).into_iter().flatten().flatten() {
        if stop() {
            return Ok(());
        }
        fs::remove_dir_all(blobs.path())?;
    }
    for name in fs::read_dir(&folder)?.flatten() {
        let path = name.path();
        match name.file_type()?.is_dir() {
            true => fs::remove_dir_all(path)?,
            false if path != lock => fs::remove_file(path)?,
            false => {}
        }
    }
    fs::remove_file(lock)?;
    fs::remove_dir(folder)
}
