//! The place of an output: an open folder, and a name in it. So the folder that is checked is also the folder that is
//! written to, even if links on the way are changed meanwhile.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{fstat, open, openat, openat2, readlinkat, utimensat, AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::fs::{Timespec, Timestamps, CWD, UTIME_NOW};
use rustix::io::Errno;

use crate::facts::path::below;

/// The kernel follows the same number of links.
const MOST_LINKS: usize = 40;
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

#[derive(Debug, Clone)]
pub struct Destination {
    folder: Arc<OwnedFd>,
    name: OsString,
}

/// The folders of one command's outputs. Most outputs share one.
#[derive(Default)]
pub struct Folders {
    last: Option<(PathBuf, Arc<OwnedFd>)>,
}

impl Folders {
    /// For outputs that were made on this machine. All links are followed, as the command itself did.
    pub fn known(&mut self, path: &Path) -> io::Result<Destination> {
        self.find(path, |folder| open(folder, FOLDER, Mode::empty()))
    }

    /// For outputs from other machines, at an absolute path that is declared here. The command's own folder is accepted as
    /// it is. Below it, and everywhere else, a link is followed only if it belongs to this user or to root.
    pub fn declared(&mut self, command: &Path, path: &Path) -> io::Result<Destination> {
        let us = rustix::process::geteuid().as_raw();
        self.find(path, |folder| {
            let (base, rest) = match below(command.as_os_str().as_bytes(), folder.as_os_str().as_bytes()) {
                Some(rest) => (command, rest),
                None => (Path::new("/"), folder.as_os_str().as_bytes()),
            };
            let base = open(base, FOLDER, Mode::empty())?;
            enter(base, rest, us)
        })
    }

    fn find(&mut self, path: &Path, enter: impl FnOnce(&Path) -> Result<OwnedFd, Errno>) -> io::Result<Destination> {
        let is_named = !path.as_os_str().as_bytes().ends_with(b"/");
        let (Some(parent), Some(name), true) = (path.parent(), path.file_name(), is_named) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let folder = match &self.last {
            Some((last, folder)) if last == parent => folder.clone(),
            _ => {
                let folder = Arc::new(enter(parent)?);
                self.last = Some((parent.to_owned(), folder.clone()));
                folder
            }
        };
        let name = name.to_owned();
        Ok(Destination { folder, name })
    }
}

impl Destination {
    pub fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// A path of the same file that leads through this very folder, for calls without a descriptor for the folder.
    pub fn beside(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.folder.as_raw_fd()))
    }

    /// Such a path to the output itself.
    pub fn itself(&self) -> PathBuf {
        self.beside("").join(&self.name)
    }

    /// Gives an existing output the present time, as if it were written now. Returns whether that worked.
    pub fn freshen(&self) -> bool {
        freshen_at(self.folder.as_fd(), self.name.as_ref())
    }
}

/// The same for a path.
pub fn freshen(path: &Path) -> bool {
    freshen_at(CWD, path)
}

fn freshen_at(folder: BorrowedFd<'_>, path: &Path) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    utimensat(folder, path, &times, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// The folder at a path below another one. Fails at a link of another user.
fn enter(base: OwnedFd, path: &[u8], us: u32) -> Result<OwnedFd, Errno> {
    let rest: Vec<u8> = match path.iter().position(|byte| *byte != b'/') {
        Some(at) => path[at..].to_vec(),
        None => return Ok(base),
    };
    let (flags, mode) = (FOLDER, Mode::empty());
    match openat2(&base, &rest[..], flags, mode, ResolveFlags::NO_SYMLINKS) {
        Ok(folder) => Ok(folder),
        // There are links, or the kernel or a filter of system calls refuses this call.
        Err(_) => walk(base, rest, us),
    }
}

/// Step by step. Each step follows exactly what was checked.
fn walk(base: OwnedFd, path: Vec<u8>, us: u32) -> Result<OwnedFd, Errno> {
    let parts = |path: &[u8]| -> Vec<Vec<u8>> { path.rsplit(|byte| *byte == b'/').map(<[u8]>::to_vec).collect() };
    let (mut at, mut rest, mut links) = (base, parts(&path), 0);
    while let Some(part) = rest.pop() {
        if part.is_empty() || part == b"." {
            continue;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = openat(&at, &part[..], flags, Mode::empty())?;
        let status = fstat(&found)?;
        match FileType::from_raw_mode(status.st_mode) {
            FileType::Directory => at = found,
            FileType::Symlink if status.st_uid != us && status.st_uid != 0 => return Err(Errno::PERM),
            FileType::Symlink if links == MOST_LINKS => return Err(Errno::LOOP),
            FileType::Symlink => {
                links += 1;
                let text = readlinkat(&found, "", Vec::new())?.into_bytes();
                if text.starts_with(b"/") {
                    at = open("/", FOLDER, Mode::empty())?;
                }
                rest.extend(parts(&text));
            }
            _ => return Err(Errno::NOTDIR),
        }
    }
    Ok(at)
}

/// An absolute name whose folder has no links any more. `None` if there is no such folder.
pub fn resolved(path: &[u8]) -> Option<(PathBuf, OsString)> {
    let path = Path::new(OsStr::from_bytes(path));
    let folder = std::fs::canonicalize(path.parent()?).ok()?;
    let name = OsString::from_vec(path.file_name()?.as_bytes().to_vec());
    Some((folder, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::test_support::TestFolder;
    use std::fs;
    use std::os::unix::fs::{symlink, MetadataExt};

    impl TestFolder {
        fn with_folders() -> TestFolder {
            let folder = TestFolder::new();
            fs::create_dir_all(folder.path("one/two")).unwrap();
            folder
        }

        fn walked(&self, path: &str, us: u32) -> Result<u64, Errno> {
            let base = open(&self.0, FOLDER, Mode::empty()).unwrap();
            walk(base, path.into(), us).map(|folder| fstat(folder).unwrap().st_ino)
        }

        fn inode(&self, path: &str) -> u64 {
            fs::metadata(self.path(path)).unwrap().ino()
        }
    }

    fn us() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn a_walk_leads_where_the_kernel_leads() {
        let folder = TestFolder::with_folders();
        symlink("one/two", folder.0.join("near")).unwrap();
        symlink(folder.0.join("one"), folder.0.join("far")).unwrap();
        symlink("../near/..", folder.0.join("one/up")).unwrap();
        for path in [
            "one",
            "one/two",
            "one//./two/",
            "one/../one",
            "near",
            "far/two",
            "far/up",
            ".",
        ] {
            assert_eq!(folder.walked(path, us()), Ok(folder.inode(path)), "{path}");
            let base = open(&folder.0, FOLDER, Mode::empty()).unwrap();
            let entered = enter(base, path.as_bytes(), us()).unwrap();
            assert_eq!(fstat(entered).unwrap().st_ino, folder.inode(path), "{path}");
        }
    }

    #[test]
    fn a_link_in_a_circle_ends() {
        let folder = TestFolder::with_folders();
        symlink("round", folder.0.join("round")).unwrap();
        assert_eq!(folder.walked("round", us()), Err(Errno::LOOP));
    }

    #[test]
    fn a_missing_folder_and_a_file_are_errors() {
        let folder = TestFolder::with_folders();
        fs::write(folder.0.join("file"), "").unwrap();
        assert_eq!(folder.walked("missing/x", us()), Err(Errno::NOENT));
        assert_eq!(folder.walked("file", us()), Err(Errno::NOTDIR));
    }

    /// As root, the link is given to another user. Otherwise the test plays another user, to whom our link is foreign.
    #[test]
    fn a_link_of_another_user_is_not_followed() {
        let folder = TestFolder::with_folders();
        let link = folder.0.join("link");
        symlink("one", &link).unwrap();
        let other = match us() {
            0 => {
                let nobody = rustix::fs::Uid::from_raw(65534);
                rustix::fs::chownat(CWD, &link, Some(nobody), None, AtFlags::SYMLINK_NOFOLLOW).unwrap();
                0
            }
            us => us + 1,
        };
        assert_eq!(folder.walked("link/two", other), Err(Errno::PERM));
        let refused = Folders::default().declared(&folder.0, &folder.0.join("link/two/x"));
        assert_eq!(refused.is_err(), us() == 0);
        assert!(Folders::default().known(&folder.0.join("link/two/x")).is_ok());
    }

    #[test]
    fn a_folder_without_a_name_is_no_destination() {
        let folder = TestFolder::with_folders();
        for name in ["one/..", "one/", ""] {
            assert!(
                Folders::default().declared(&folder.0, &folder.0.join(name)).is_err(),
                "{name}"
            );
        }
    }
}
