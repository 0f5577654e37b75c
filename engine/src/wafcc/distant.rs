//! Stores on file systems that may hang for good, since they are another machine's or a program's: NFS, SMB, FUSE.
//!
//! Whoever looks at such a path while its server is gone waits until it is back. So a child that is nobody's looks first.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};

use super::trouble::{self, Advice};
use crate::client::patience;
use crate::files::folder::Folder;
use crate::settings::place::of_store;
use crate::settings::Distant;

/// Kinds of file systems that wait for another machine or a program, and those that begin so.
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
/// Links that lead to each other.
const LINKS: usize = 40;
/// The child ends by itself then, whatever it waits for.
const SECONDS: u32 = 10;

/// Looks whether a store answers whose file system may hang. Nothing is told of any other, at which everybody just looks. A store
/// that was silent a moment ago is not asked again.
pub fn look_at(store: &Path) -> Option<Distant> {
    if !is_distant(store) {
        return None;
    }
    let folder = of_store(&Folder::from_environment(), store);
    let (patience, earlier) = match trouble::consult(&folder) {
        Advice::Leave => return Some(Distant::Silent),
        Advice::Ask => (patience(), None),
        Advice::AskBriefly(note) => (trouble::BRIEFLY, Some(note)),
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

/// Whether a path is on such a file system. Only what is before it on the way is looked at.
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

/// The last first.
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
    /// "36 35 98:0 /root /place options - kind source options"
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

/// Blanks and the like are written as octal numbers.
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

/// Whether a path can be looked at within a time.
pub fn answers(path: &Path, patience: Duration) -> bool {
    look(path, patience).unwrap_or(true)
}

fn look(path: &Path, patience: Duration) -> io::Result<bool> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: this program has one thread; the children only make system calls, and end.
    unsafe {
        match libc::fork() {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                if libc::fork() == 0 {
                    look_and_tell(path, &write);
                }
                libc::_exit(0)
            }
            child => libc::waitpid(child, std::ptr::null_mut(), 0),
        };
    }
    drop(write);
    let end = Instant::now() + patience;
    let mut byte = [0];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let time = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&read, PollFlags::IN)], Some(&time)) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(fs::File::from(read).read(&mut byte)? == 1),
        }
    }
}

/// In the child of the child.
unsafe fn look_and_tell(path: &Path, write: &OwnedFd) {
    let number = write.as_raw_fd();
    unsafe {
        // Whoever waits for the end of something of ours must not wait for this.
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
    // Status and names may be remembered by the system; how full a disk is nobody remembers.
    let there = path.ancestors().find(|path| fs::metadata(path).is_ok());
    let _ = there.map(rustix::fs::statfs);
    let _ = rustix::io::write(unsafe { OwnedFd::from_raw_fd(3) }, b"x");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_where_what_is_mounted() {
        let line = "36 35 98:0 / /mnt/a\\040b rw,noatime shared:1 - nfs4 server:/x rw";
        let mount = Mount::parse(line).unwrap();
        assert_eq!((mount.place.as_path(), &*mount.kind), (Path::new("/mnt/a b"), "nfs4"));
        assert!(mount.is_distant());
        assert!(Mount::parse("36 35").is_none());
    }

    #[test]
    fn what_is_here_answers() {
        assert!(!is_distant(&std::env::temp_dir()));
        assert!(answers(Path::new("/"), Duration::from_secs(10)));
        assert!(answers(Path::new("/no/such/path"), Duration::from_secs(10)));
    }
}
