//! The roster: a list of an engine's running commands and temporary files, in memory that outlives the engine.
//!
//! ```text
//! engine ─► its roster ◄─ parked programs write the numbers of their processes into it
//!              ▲  ▲
//!   its guardian  the next engine, if engine and guardian were killed
//! ```
//!
//! It is a file of `/dev/shm`, which is memory. Without `/dev/shm` it is memory without a name, and only the guardian can
//! read it. The file is locked as long as engine or guardian live, and no other engine reads it then. The life lock is not
//! enough for that: a user may clear the runtime folder, and then the next engine makes another life lock there.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{fallocate, flock, FallocateFlags, FlockOperation};

use super::processes::uptime;
use crate::files::folder::ENGINE;
use crate::files::regular;

/// How many commands can be noted. Further commands have only the kernel's parent-death signal.
const ENTRIES: usize = 8192;
/// How many files can be noted. Their paths must be shorter than this.
const FILES: usize = 512;
const PATH: usize = 256;

const PROCESSES_SIZE: usize = ENTRIES * size_of::<AtomicI32>();
const SINCE_SIZE: usize = ENTRIES * size_of::<AtomicU64>();
/// The part that parked programs see.
const SHARED: usize = 2 * PROCESSES_SIZE;
const LAST_AT: usize = SHARED + SINCE_SIZE;
const FILES_AT: usize = LAST_AT + size_of::<AtomicU64>();
const SIZE: usize = FILES_AT + FILES * PATH;

const SHARED_MEMORY: &str = "/dev/shm";

pub struct Roster {
    entries: &'static [AtomicI32],
    /// When each place was taken, and when the last one was taken.
    since: &'static [AtomicU64],
    last: &'static AtomicU64,
    free: Vec<usize>,
    memory: OwnedFd,
    name: Option<PathBuf>,
    /// A handle of its own, because parked programs hold the other one.
    lock: Option<File>,
    tickets: Arc<Tickets>,
    temporary_files: Arc<TemporaryFiles>,
}

/// A place for processes that a thread of the engine runs for itself, one at a time.
#[derive(Clone, Copy)]
pub struct OwnPlace {
    number: usize,
    process: &'static AtomicI32,
    since: &'static AtomicU64,
    last: &'static AtomicU64,
}

/// Another part of the memory: for processes in the group of a command, which the guardian need not know.
pub struct Tickets {
    places: &'static [AtomicI32],
    free: Mutex<Vec<usize>>,
}

/// One of these places, until it is dropped.
pub struct Ticket {
    tickets: Arc<Tickets>,
    number: usize,
}

/// Temporary files that the guardian must remove if the engine is killed.
pub struct TemporaryFiles {
    paths: &'static [[AtomicU8; PATH]],
    free: Mutex<Vec<usize>>,
}

/// One of these files, until it is dropped.
pub struct NotedFile {
    temporary_files: Arc<TemporaryFiles>,
    number: usize,
}

/// The processes and files that a killed engine has left.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// Process groups, and when the place of each was taken.
    pub groups: Vec<(i32, u64)>,
    /// When the last place was taken.
    pub last: u64,
    pub files: Vec<PathBuf>,
}

impl OwnPlace {
    /// To be called before a process is started. Its number is written there at once.
    pub fn take(&self) -> (usize, &'static AtomicI32) {
        let now = uptime();
        self.since.store(now, Ordering::Relaxed);
        self.last.store(now, Ordering::Relaxed);
        (self.number, self.process)
    }

    /// To be called before the process is reaped.
    pub fn strike(&self) {
        self.process.store(0, Ordering::Release);
    }
}

impl Tickets {
    pub fn reserve(self: &Arc<Self>) -> Option<Ticket> {
        let number = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(Ticket {
            tickets: self.clone(),
            number,
        })
    }
}

impl Ticket {
    /// The index of the place in the whole memory.
    pub fn number(&self) -> usize {
        ENTRIES + self.number
    }

    pub fn place(&self) -> &AtomicI32 {
        &self.tickets.places[self.number]
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.place().store(0, Ordering::Release);
        let mut free = self.tickets.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(self.number);
    }
}

impl TemporaryFiles {
    /// Notes a file that was just made. None if there is no room for its path.
    pub fn note(self: &Arc<Self>, path: &Path) -> Option<NotedFile> {
        let bytes = path.as_os_str().as_bytes();
        let (first, rest) = bytes.split_first().filter(|_| bytes.len() < PATH)?;
        let number = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        let place = &self.paths[number];
        for (to, byte) in place[1..].iter().zip(rest.iter().chain(&[0])) {
            to.store(*byte, Ordering::Relaxed);
        }
        // The first byte makes the entry valid.
        place[0].store(*first, Ordering::Release);
        Some(NotedFile {
            temporary_files: self.clone(),
            number,
        })
    }
}

impl fmt::Debug for NotedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file {} of the roster", self.number)
    }
}

impl Drop for NotedFile {
    fn drop(&mut self) {
        self.temporary_files.paths[self.number][0].store(0, Ordering::Release);
        let mut free = self.temporary_files.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(self.number);
    }
}

impl Roster {
    /// A new roster under this name, which no other process uses.
    pub fn new(name: Option<PathBuf>) -> io::Result<Roster> {
        let named = name.and_then(|name| Some((make(&name).ok()?, lock(&name).ok()?, name)));
        let (memory, lock, name) = match named {
            Some((file, lock, name)) => (OwnedFd::from(file), Some(lock), Some(name)),
            None => {
                let memory = rustix::fs::memfd_create(c"wafd-roster", rustix::fs::MemfdFlags::CLOEXEC)?;
                rustix::fs::ftruncate(&memory, SIZE as u64)?;
                (memory, None, None)
            }
        };
        let start = map(&memory)?;
        // SAFETY: parts of the mapping, each for atomics of its own, aligned since those before it are; never unmapped.
        let (entries, places, since, last, paths) = unsafe {
            (
                slice::from_raw_parts(start.cast::<AtomicI32>(), ENTRIES),
                slice::from_raw_parts(start.add(PROCESSES_SIZE).cast::<AtomicI32>(), ENTRIES),
                slice::from_raw_parts(start.add(SHARED).cast::<AtomicU64>(), ENTRIES),
                &*start.add(LAST_AT).cast::<AtomicU64>(),
                slice::from_raw_parts(start.add(FILES_AT).cast::<[AtomicU8; PATH]>(), FILES),
            )
        };
        let all = |count: usize| (0..count).rev().collect::<Vec<_>>();
        Ok(Roster {
            entries,
            since,
            last,
            free: all(ENTRIES),
            memory,
            name,
            lock,
            tickets: Arc::new(Tickets {
                places,
                free: Mutex::new(all(ENTRIES)),
            }),
            temporary_files: Arc::new(TemporaryFiles {
                paths,
                free: Mutex::new(all(FILES)),
            }),
        })
    }

    /// The lock that says that an engine or a guardian looks after it.
    pub fn lock(&self) -> Option<&File> {
        self.lock.as_ref()
    }

    /// The memory and its size, for programs that note themselves.
    pub fn share(&self) -> io::Result<(OwnedFd, usize)> {
        Ok((self.memory.as_fd().try_clone_to_owned()?, SHARED))
    }

    pub fn tickets(&self) -> Arc<Tickets> {
        self.tickets.clone()
    }

    pub fn temporary_files(&self) -> Arc<TemporaryFiles> {
        self.temporary_files.clone()
    }

    /// A place for a command's process. The code that starts the process writes its number there at once.
    pub fn reserve(&mut self) -> Option<(usize, &'static AtomicI32)> {
        let entry = self.free.pop()?;
        let now = uptime();
        self.since[entry].store(now, Ordering::Relaxed);
        self.last.store(now, Ordering::Relaxed);
        Some((entry, &self.entries[entry]))
    }

    /// A place that is never given back.
    pub fn keep(&mut self) -> Option<OwnPlace> {
        let number = self.free.pop()?;
        Some(OwnPlace {
            number,
            process: &self.entries[number],
            since: &self.since[number],
            last: self.last,
        })
    }

    /// A place that is already taken, for the next process of its command.
    pub fn place(&self, entry: usize) -> (usize, &'static AtomicI32) {
        self.last.store(uptime(), Ordering::Relaxed);
        (entry, &self.entries[entry])
    }

    /// To be called before the process is reaped. Afterwards its number may belong to another process.
    pub fn strike(&mut self, entry: usize) {
        self.entries[entry].store(0, Ordering::Release);
        self.free.push(entry);
    }

    /// The present entries.
    pub fn remains(&self) -> Remains {
        let pids = self.entries.iter().map(|entry| entry.load(Ordering::Acquire));
        let since = self.since.iter().map(|since| since.load(Ordering::Relaxed));
        let paths = self.temporary_files.paths.iter().map(|path| path.each_ref().map(load));
        Remains {
            groups: pids.zip(since).filter(|(pid, _)| *pid > 0).collect(),
            last: self.last.load(Ordering::Relaxed),
            files: paths.filter_map(|path| path_of(&path)).collect(),
        }
    }

    /// To be called when the engine has ended, and nothing of it is left.
    pub fn remove(&self) {
        self.name.iter().for_each(|name| drop(fs::remove_file(name)));
    }
}

impl Remains {
    /// The entries under the name of an engine that has ended. None if the engine or its guardian live.
    pub fn find(name: &Path) -> Option<Remains> {
        let file = match lock(name) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(_) => return Some(Remains::default()),
        };
        let mut bytes = Vec::new();
        let read = file.take(SIZE as u64).read_to_end(&mut bytes);
        Some(match read {
            Ok(SIZE) => Remains::decode(&bytes),
            _ => Remains::default(),
        })
    }

    fn decode(bytes: &[u8]) -> Remains {
        let number = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let pid = |at: usize| i32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
        let places = (0..ENTRIES).map(|n| (pid(4 * n), number(SHARED + 8 * n)));
        Remains {
            groups: places.filter(|(pid, _)| *pid > 0).collect(),
            last: number(LAST_AT),
            files: bytes[FILES_AT..].chunks(PATH).filter_map(path_of).collect(),
        }
    }
}

/// Whether a path has the form that drivers use for temporary files.
pub fn is_drawn(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let letters = name.strip_prefix(b"cc").and_then(|name| name.strip_suffix(b".s"));
    path.starts_with(b"/") && letters.is_some_and(|it| it.len() == 6 && it.iter().all(u8::is_ascii_alphanumeric))
}

/// The path of the roster for the engine of a runtime folder.
pub fn name_of(folder: &Path) -> PathBuf {
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    for byte in folder.as_os_str().as_bytes() {
        digest = (digest ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    }
    let user = rustix::process::geteuid().as_raw();
    Path::new(SHARED_MEMORY).join(format!("wafd-{ENGINE}-{user}-{digest:016x}"))
}

/// Allocates all of the memory at once: if a page could not be had later, the engine would crash.
fn make(name: &Path) -> io::Result<File> {
    if rustix::fs::statfs(name.parent().unwrap_or(name))?.f_type != TMPFS {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let _ = fs::remove_file(name);
    let file = regular::open_with(File::options().read(true).write(true).create_new(true), name)?;
    fallocate(&file, FallocateFlags::empty(), 0, SIZE as u64).inspect_err(|_| drop(fs::remove_file(name)))?;
    Ok(file)
}

/// Opens another handle of the file, and locks all others out.
fn lock(name: &Path) -> io::Result<File> {
    let file = regular::open(name)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

const TMPFS: rustix::fs::FsWord = 0x0102_1994;

fn map(memory: &OwnedFd) -> io::Result<*mut u8> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: fresh zeroed memory, shared over `fork`.
    let start = unsafe { libc::mmap(ptr::null_mut(), SIZE, access, libc::MAP_SHARED, memory.as_raw_fd(), 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(start.cast())
}

fn load(byte: &AtomicU8) -> u8 {
    byte.load(Ordering::Acquire)
}

fn path_of(place: &(impl AsRef<[u8]> + ?Sized)) -> Option<PathBuf> {
    let place = place.as_ref();
    let size = place.iter().position(|byte| *byte == 0)?;
    let path = PathBuf::from(std::ffi::OsString::from_vec(place[..size].to_vec()));
    path.is_absolute().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_engine_finds_the_entries() {
        let name = Path::new(SHARED_MEMORY).join(format!("wafd-test-{}", std::process::id()));
        let mut roster = Roster::new(Some(name.clone())).unwrap();
        let (_, place) = roster.reserve().unwrap();
        place.store(4711, Ordering::Release);
        let (second, place) = roster.reserve().unwrap();
        place.store(4712, Ordering::Release);
        roster.strike(second);
        let kept = roster.temporary_files().note(Path::new("/tmp/cc1.s")).unwrap();
        drop(roster.temporary_files().note(Path::new("/tmp/cc2.s")).unwrap());
        assert!(roster
            .temporary_files()
            .note(Path::new(&format!("/{}", "x".repeat(PATH))))
            .is_none());
        assert_eq!(Remains::find(&name), None, "its engine lives");
        let remains = roster.remains();
        drop(roster);
        let found = Remains::find(&name).unwrap();
        assert_eq!(found, remains);
        let groups: Vec<i32> = found.groups.iter().map(|(group, _)| *group).collect();
        assert_eq!((groups, found.files), (vec![4711], vec![PathBuf::from("/tmp/cc1.s")]));
        drop(kept);
        assert_eq!(Remains::find(&name).unwrap().files, [] as [PathBuf; 0]);
        fs::remove_file(name).unwrap();
    }

    #[test]
    fn a_process_that_has_ended_is_not_listed() {
        let name = Path::new(SHARED_MEMORY).join(format!("wafd-test-ended-{}", std::process::id()));
        let mut roster = Roster::new(Some(name.clone())).unwrap();
        let (entry, place) = roster.reserve().unwrap();
        place.store(4711, Ordering::Release);
        roster.strike(entry);
        drop(roster);
        assert_eq!(Remains::find(&name).unwrap().groups, []);
        let roster = Roster::new(Some(name.clone())).unwrap();
        roster.remove();
        assert_eq!(Remains::find(&name), Some(Remains::default()));
    }

    #[test]
    fn a_place_of_the_engines_own_is_as_old_as_its_process() {
        let mut roster = Roster::new(None).unwrap();
        let own = roster.keep().unwrap();
        assert_ne!(roster.reserve().unwrap().0, own.number);
        for pid in [4711, 4712] {
            let (_, place) = own.take();
            place.store(pid, Ordering::Release);
            let (group, since) = roster.remains().groups[0];
            assert_eq!((group, roster.remains().last), (pid, since));
            assert!(since > 0);
            own.strike();
            assert_eq!(roster.remains().groups, []);
        }
    }

    #[test]
    fn a_roster_without_a_name_works() {
        let mut roster = Roster::new(None).unwrap();
        let (_, place) = roster.reserve().unwrap();
        place.store(1, Ordering::Release);
        assert_eq!(roster.remains().groups.len(), 1);
    }

    #[test]
    fn a_file_that_is_no_roster_has_no_entries() {
        let name = std::env::temp_dir().join(format!("wafd-roster-{}", std::process::id()));
        fs::write(&name, vec![1; SIZE - 1]).unwrap();
        assert_eq!(Remains::find(&name), Some(Remains::default()));
        fs::remove_file(&name).unwrap();
        assert_eq!(Remains::find(&name), Some(Remains::default()));
    }
}
