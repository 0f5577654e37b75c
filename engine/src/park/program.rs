//! Programs on disk: which file a command's name means, and whether a file may be parked at all.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{accessat, fstat, openat, readlinkat, Access, AtFlags, FileType, Mode, OFlags, CWD};

use super::policy::Policy;
use super::task::Task;
use crate::bytes::elf;

/// The identity and state of a file. A file that was replaced or changed has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    pub device: u64,
    pub inode: u64,
    pub size: i64,
    pub modified: (i64, i64),
    pub changed: (i64, i64),
}

/// An executable file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its real path, which the kernel also tells the program itself.
    pub path: CString,
    pub identity: Identity,
}

impl Identity {
    pub fn of(stat: &rustix::fs::Stat) -> Identity {
        Identity {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }

    /// The present state of a path.
    pub fn at(path: &CStr) -> Option<Identity> {
        rustix::fs::stat(path).ok().map(|stat| Identity::of(&stat))
    }
}

impl Program {
    /// The first of these paths that can be executed, and that path as `execve` would get it, because the command gets this
    /// name. A relative path refers to the command's folder.
    pub fn find<'a>(candidates: &'a [CString], folder: &[u8]) -> Option<(Program, &'a CStr)> {
        let mut found = candidates
            .iter()
            .filter_map(|path| Some((Program::at(path, folder)?, &**path)));
        found.next()
    }

    fn at(path: &CStr, folder: &[u8]) -> Option<Program> {
        let absolute;
        let path = if path.to_bytes().starts_with(b"/") {
            path
        } else {
            absolute = CString::new([folder, b"/", path.to_bytes()].concat()).ok()?;
            &absolute
        };
        let file = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let stat = fstat(&file).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_mode & 0o111 == 0 {
            return None;
        }
        accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).ok()?;
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        Some(Program {
            path: readlinkat(CWD, link, Vec::new()).ok()?,
            identity: Identity::of(&stat),
        })
    }

    /// Its name without folders.
    pub fn name(&self) -> String {
        let bytes = self.path.to_bytes();
        let name = bytes.rsplit(|b| *b == b'/').next().unwrap_or(bytes);
        String::from_utf8_lossy(name).into_owned()
    }
}

/// Programs that only start others. The programs that they start are parked instead.
const LAUNCHERS: [&str; 9] = [
    "ccache", "distcc", "icecc", "sccache", "rustup", "wafcc", "wafd", "busybox", "env",
];

/// Why a program is never parked, from its file alone.
pub fn find_obstacle(program: &Program, policy: &Policy) -> Option<String> {
    let name = program.name();
    if LAUNCHERS.contains(&name.as_str()) {
        return Some(format!("{name} only starts other programs"));
    }
    let path = Path::new(OsStr::from_bytes(program.path.to_bytes()));
    if !Task::is_known(&name) && !policy.folders.iter().any(|folder| path.starts_with(folder)) {
        return Some("it is neither a known compiler nor an installed program".to_owned());
    }
    match examine(program) {
        Ok(obstacle) => obstacle.map(str::to_owned),
        Err(error) => Some(format!("it cannot be read: {error}")),
    }
}

fn examine(program: &Program) -> io::Result<Option<&'static str>> {
    let file = File::open(OsStr::from_bytes(program.path.to_bytes()))?;
    let stat = fstat(file.as_fd())?;
    if Identity::of(&stat) != program.identity {
        return Ok(Some("it changes just now"));
    }
    if stat.st_mode & 0o6000 != 0 {
        return Ok(Some("it runs with another user's rights"));
    }
    let mut value = [0u8; 64];
    if rustix::fs::fgetxattr(&file, c"security.capability", &mut value).is_ok() {
        return Ok(Some("it runs with capabilities of its own"));
    }
    let mut head = [0; elf::HEAD];
    if file.read_at(&mut head, 0)? < head.len() || !elf::is_elf(&head) {
        return Ok(Some("it is a script"));
    }
    Ok(match elf::kind(&file, &head)? {
        elf::Kind::Loaded => None,
        elf::Kind::Static => Some("it is linked statically"),
        elf::Kind::Foreign => Some("it is of another kind of processor"),
    })
}
