//! Stores on file systems that may hang: NFS, SMB and FUSE depend on another machine or on a program.
//!
//! An access to such a path blocks while its server is gone. So a child process, which is an orphan, tries it first.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use super::trouble::{self, Advice};
use crate::client::patience;
use crate::files::folder::Folder;
use crate::process::readable::is_readable;
use crate::settings::place::of_store;
use crate::settings::Distant;

/// Names, or beginnings of names, of such file systems.
const DISTANT: [&str; 20] = [
    "nfs",
    "cifs",
    "smb",
    "fuse",
    "9p",
    "virtiofs",
    "ceph",
    "afs",
    "lustre",
    "glusterfs",
    "gpfs",
    "beegfs",
    "orangefs",
    "ocfs2",
    "gfs2",
    "autofs",
    "davfs",
    "vboxsf",
    "vmhgfs",
    "ncp",
];
/// Limit for links that lead to each other.
const LINKS: usize = 40;
/// The child ends after this time, whatever it waits for.
const SECONDS: u32 = 10;

/// Finds out whether a store answers whose file system may hang. `None` for a store on any other file system. A store
/// that was silent a moment ago is not tried again.
pub fn look_at(store: &Path) -> Option<Distant> {
    if !is_distant(store) {
        return None;
    }
    let folder = of_store(&Folder::from_environment(), store);
    let (patience, earlier) = match trouble::consult(&folder) {
        Advice::Leave => return Some(Distant::Silent),
        Advice::Ask => (patience(), None),
        Advice::AskBriefly(note) => (trouble::SHORT_TIMEOUT, Some(note)),
    };
    if answers(store, patience) {
        if earlier.is_some() {
            trouble::forget(&folder);
        }
        return Some(Distant::Answers);
    }
    let reason = format!("the store {} does not answer", store.display());
    trouble::leave(&folder, &reason, earlier.as_ref());
    Some(Distant::Silent)
}

/// Whether a path is on such a file system. Only folders before the mount point are accessed.
pub fn is_distant(path: &Path) -> bool {
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else {
        return false;
    };
    let mounts: Vec<_> = mounts.lines().filter_map(Mount::parse).collect();
    let mut left: Vec<PathBuf> = parts(path);
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(part) = left.pop() {
        if part == Path::new("..") {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        if mounts.iter().any(|mount| mount.place == next && mount.is_distant()) {
            return true;
        }
        match fs::read_link(&next) {
            Ok(target) if links < LINKS => {
                links += 1;
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                left.extend(parts(&target));
            }
            _ => at = next,
        }
    }
    false
}

/// The components of a path, the last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let named = |part: Component<'_>| match part {
        Component::Normal(_) | Component::ParentDir => Some(PathBuf::from(part.as_os_str())),
        _ => None,
    };
    let mut parts: Vec<_> = path.components().filter_map(named).collect();
    parts.reverse();
    parts
}

struct Mount {
    place: PathBuf,
    kind: String,
}

impl Mount {
    /// A line of /proc/self/mountinfo: "36 35 98:0 /root /place options - kind source options"
    fn parse(line: &str) -> Option<Mount> {
        let (before, after) = line.split_once(" - ")?;
        Some(Mount {
            place: PathBuf::from(unescape(before.split(' ').nth(4)?)),
            kind: after.split(' ').next()?.to_owned(),
        })
    }

    fn is_distant(&self) -> bool {
        DISTANT.iter().any(|kind| self.kind.starts_with(kind))
    }
}

/// Blanks and some other characters are written as octal numbers.
fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let number = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match number {
            Some(byte) => whole.extend([&char::from(byte).to_string(), &part[3..]]),
            None => whole.extend(["\\", part]),
        }
    }
    whole
}

/// Whether a path can be accessed in time.
pub fn answers(path: &Path, patience: Duration) -> bool {
    try_access(path, patience).unwrap_or(true)
}

fn try_access(path: &Path, patience: Duration) -> io::Result<bool> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: this program has one thread; the children only make system calls, and end.
    unsafe {
        match libc::fork() {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                if libc::fork() == 0 {
                    access_and_report(path, &write);
                }
                libc::_exit(0)
            }
            child => libc::waitpid(child, std::ptr::null_mut(), 0),
        };
    }
    drop(write);
    Ok(is_readable(&read, Instant::now() + patience)? && fs::File::from(read).read(&mut [0])? == 1)
}

/// Runs in the grandchild.
unsafe fn access_and_report(path: &Path, write: &OwnedFd) {
    let number = write.as_raw_fd();
    unsafe {
        // Close what we have inherited: other processes may wait for the end of a pipe.
        if libc::dup2(number, 3) == 3 && number != 3 {
            libc::close(number);
        }
        for stream in 0..3 {
            libc::close(stream);
        }
        libc::close_range(4, libc::c_uint::MAX, 0);
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        libc::alarm(SECONDS);
    }
    // The system may have cached status and names. `statfs` always asks the server.
    let nearest = path.ancestors().find(|path| fs::metadata(path).is_ok());
    let _ = nearest.map(rustix::fs::statfs);
    let _ = rustix::io::write(unsafe { OwnedFd::from_raw_fd(3) }, b"x");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_place_and_kind_of_a_mount() {
        let line = "36 35 98:0 / /mnt/a\\040b rw,noatime shared:1 - nfs4 server:/x rw";
        let mount = Mount::parse(line).unwrap();
        assert_eq!((mount.place.as_path(), &*mount.kind), (Path::new("/mnt/a b"), "nfs4"));
        assert!(mount.is_distant());
        assert!(Mount::parse("36 35").is_none());
    }

    #[test]
    fn a_local_path_answers() {
        assert!(!is_distant(&std::env::temp_dir()));
        assert!(answers(Path::new("/"), Duration::from_secs(10)));
        assert!(answers(Path::new("/no/such/path"), Duration::from_secs(10)));
    }
}
