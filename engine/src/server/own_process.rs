//! The engine's own process, which decides which clients it can serve.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::process::context::{self, Context};
use crate::process::place::Place;

pub(super) struct OwnProcess {
    pub(super) place: Place,
    pub(super) context: Context,
    pub(super) started: Instant,
    /// Our program's file as it was at our start.
    program: PathBuf,
    program_identity: Option<(u64, u64)>,
}

impl OwnProcess {
    pub(super) fn read() -> io::Result<OwnProcess> {
        let pid = std::process::id();
        let program = std::env::current_exe().unwrap_or_default();
        Ok(OwnProcess {
            place: Place::of(pid).map_err(io::Error::other)?,
            context: context::Reader::new(pid)?.read()?,
            started: Instant::now(),
            program_identity: identity(&program),
            program,
        })
    }

    /// Another version of the program was installed: a newer engine should take over.
    pub(super) fn is_replaced(&self) -> bool {
        self.program_identity != identity(&self.program)
    }
}

/// Device and inode of a file, which tell it from another file of the same name.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}
