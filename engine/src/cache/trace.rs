//! What observed commands note of themselves: the other side of `engine/park/record.h`.
//!
//! ```text
//! arena ─► berth, one per command ─► variables ─► libwafpark.so notes ─► records ─► accesses
//! ```
//!
//! The memory belongs to the commands as much as to us: nothing that is found in it is believed. Knows nothing of what the
//! accesses mean.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{fallocate, ftruncate, memfd_create, FallocateFlags, MemfdFlags};

use super::access::{Access, Bytes, Mode, What};

/// Bytes of a berth; a page that is never written takes no memory.
pub const BERTH: usize = 4 << 20;
/// What a berth keeps in memory for the next command.
const KEPT: usize = 1 << 20;
/// Where the first record is.
const FIRST: u32 = 8;
/// A cursor's place when something could not be noted.
const FULL: u32 = u32::MAX;
const ALIGNMENT: u32 = 8;

const UNSEEN: &str = "it cannot be observed";
const UNSEEN_CHILD: &str = "a program that it executes cannot be observed";
const GAP: &str = "what it does was not noted to the end";
const DAMAGED: &str = "what it noted is damaged";
const OVERFLOW: &str = "it does more than can be noted";
const OUTLIVED: &str = "a process of it still runs";
/// By `enum wafpark_blindness`.
const BLINDNESS: [&str; 6] = [
    DAMAGED,
    "it uses a folder whose path cannot be told",
    "it used files before it was parked",
    "it lets the C library walk through folders",
    "it makes system calls of its own",
    "it talks to other processes",
];

/// Memory that all observed commands share with us.
#[derive(Clone)]
pub struct Arena {
    memory: Arc<Memory>,
}

/// Where a command is to note what it does; by default nowhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    pub berth: u32,
    /// 0 of none.
    pub generation: u32,
}

/// The part of it in which one command notes what it does.
pub struct Berth {
    memory: Arc<Memory>,
    number: usize,
    generation: u32,
    /// Where the records of each further part of the command begin.
    marks: Vec<u32>,
    is_finished: bool,
}

struct Memory {
    file: OwnedFd,
    place: *mut u8,
    berths: usize,
    free: Mutex<Free>,
}

// SAFETY: the mapping belongs to this value alone, and is only accessed through atomics and copies.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

struct Free {
    berths: Vec<usize>,
    /// Each reservation has its own, so that a process of an earlier command is told apart.
    generation: u32,
}

impl Arena {
    pub fn new(berths: usize) -> io::Result<Arena> {
        let file = memfd_create("wafpark", MemfdFlags::CLOEXEC)?;
        let size = berths * BERTH;
        ftruncate(&file, size as u64)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping, which nobody else has.
        let place = unsafe { libc::mmap(ptr::null_mut(), size, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if place == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let free = Free {
            berths: (0..berths).rev().collect(),
            generation: 0,
        };
        let memory = Memory {
            file,
            place: place.cast(),
            berths,
            free: Mutex::new(free),
        };
        Ok(Arena { memory: memory.into() })
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.memory.file.as_fd()
    }

    /// Bytes of all of it.
    pub fn size(&self) -> usize {
        self.memory.berths * BERTH
    }

    /// Where programs find it.
    pub fn path(&self) -> String {
        self.memory.path()
    }

    /// A berth for a command; none if all are taken.
    pub fn reserve(&self) -> Option<Berth> {
        let mut free = self.memory.free();
        let number = free.berths.pop()?;
        free.generation = free.generation.checked_add(1).unwrap_or(1);
        let generation = free.generation;
        drop(free);
        let berth = Berth {
            memory: self.memory.clone(),
            number,
            generation,
            marks: Vec::new(),
            is_finished: false,
        };
        berth
            .cursor()
            .store(u64::from(generation) << 32 | u64::from(FIRST), Ordering::Release);
        Some(berth)
    }
}

impl Memory {
    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping; nobody has a berth any more.
        unsafe { libc::munmap(self.place.cast(), self.berths * BERTH) };
    }
}

impl Berth {
    /// For a parked program.
    pub fn place(&self) -> Place {
        Place {
            berth: self.number as u32,
            generation: self.generation,
        }
    }

    /// What a program needs in its environment to be observed; `theirs` are the libraries that it is to preload anyway.
    /// They replace variables of these names.
    pub fn variables(&self, library: &[u8], theirs: Option<&[u8]>) -> [Bytes; 2] {
        let mut preload = [b"LD_PRELOAD=", library].concat();
        if let Some(theirs) = theirs.filter(|theirs| !theirs.is_empty()) {
            preload.push(b':');
            preload.extend_from_slice(theirs);
        }
        let trace = format!(
            "WAFPARK_TRACE={}:{}:{}",
            self.memory.path(),
            self.number,
            self.generation
        );
        [preload, trace.into_bytes()]
    }

    /// What is noted from now on is another part's: the one before has ended.
    pub fn mark(&mut self) {
        let cursor = self.cursor().load(Ordering::Acquire);
        let is_ours = (cursor >> 32) as u32 == self.generation;
        self.marks.push(if is_ours { cursor as u32 } else { FULL });
    }

    /// What the command did; it has ended.
    pub fn finish(self) -> Vec<Access> {
        self.finish_parts().concat()
    }

    /// The same, part by part. Whatever could not be observed is told at the end.
    pub fn finish_parts(self) -> Vec<Vec<Access>> {
        self.read(Reader::find_unseen)
    }

    /// The same of one that has executed nothing, though it noted that it would: it was told that all had been done.
    pub fn finish_idle(self) -> Vec<Access> {
        self.read(Reader::find_unbegun).concat()
    }

    fn read(mut self, find_unseen: impl FnOnce(&Reader) -> Option<&'static str>) -> Vec<Vec<Access>> {
        self.is_finished = true;
        let end = self.close();
        let mut reader = Reader::default();
        let why = self.decode(end, &mut reader);
        if why != Some(GAP) {
            self.free(end);
        }
        let why = why
            .or_else(|| find_unseen(&reader))
            .or_else(|| find_survivor(&reader.accesses));
        let mut parts = reader.into_parts();
        let blindness = why.map(|why| Access {
            process: 0,
            what: What::Blind { why },
            error: 0,
        });
        parts
            .last_mut()
            .into_iter()
            .for_each(|part| part.extend(blindness.clone()));
        parts
    }

    fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < BERTH);
        // SAFETY: within the berth, and so within the mapping.
        unsafe { self.memory.place.add(self.number * BERTH + offset) }
    }

    fn cursor(&self) -> &AtomicU64 {
        // SAFETY: a berth begins with it, and is aligned to a page; it lives as long as the mapping that we hold.
        unsafe { AtomicU64::from_ptr(self.at(0).cast()) }
    }

    /// Takes no more records; where they end.
    fn close(&self) -> u32 {
        let cursor = self.cursor().swap(0, Ordering::AcqRel);
        // Whoever can write into it could have written another one.
        if (cursor >> 32) as u32 == self.generation {
            cursor as u32
        } else {
            FULL
        }
    }

    fn free(&self, end: u32) {
        if end as usize > KEPT {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let start = self.number * BERTH + KEPT;
            // What is not given back now is used again later.
            let _ = fallocate(&self.memory.file, flags, start as u64, (BERTH - KEPT) as u64);
        }
        self.memory.free().berths.push(self.number);
    }

    /// A process that was killed while it noted something, or that is about to go on, may yet write there: then the berth
    /// is not used again.
    fn decode(&self, end: u32, reader: &mut Reader) -> Option<&'static str> {
        if end as usize > BERTH {
            return Some(OVERFLOW);
        }
        let (mut place, mut marks) = (FIRST, self.marks.iter().peekable());
        while place < end {
            while marks.next_if_eq(&&place).is_some() {
                reader.begin_part();
            }
            let taken = self.record(place, end).and_then(|record| {
                place += record.size;
                reader.take(record)
            });
            if let Err(why) = taken {
                return Some(why);
            }
        }
        // Of a part that noted nothing, nothing is known.
        marks.next().map(|_| UNSEEN)
    }

    /// A copy of what is there: the memory may change while we look at it.
    fn record(&self, place: u32, end: u32) -> Result<Record, &'static str> {
        if (end - place) < HEAD || place % ALIGNMENT != 0 {
            return Err(DAMAGED);
        }
        // SAFETY: aligned and within the berth, as was just seen.
        let commit = unsafe { AtomicU32::from_ptr(self.at(place as usize).cast()) };
        if commit.load(Ordering::Acquire) != self.generation {
            return Err(GAP);
        }
        let head = self.copy(place, HEAD);
        let size = number(&head, 4);
        if size < HEAD || size > end - place || size % ALIGNMENT != 0 {
            return Err(DAMAGED);
        }
        Record::read(&head, size, self.copy(place + HEAD, size - HEAD)).ok_or(DAMAGED)
    }

    fn copy(&self, place: u32, size: u32) -> Bytes {
        let mut bytes = vec![0; size as usize];
        if size > 0 {
            // SAFETY: the caller has checked that the berth goes so far; what others write there meanwhile are just bytes.
            unsafe { ptr::copy_nonoverlapping(self.at(place as usize), bytes.as_mut_ptr(), bytes.len()) };
        }
        bytes
    }
}

impl Drop for Berth {
    /// Who drops it has not started a command.
    fn drop(&mut self) {
        if !self.is_finished {
            let end = self.close();
            self.free(end);
        }
    }
}

/// Size of a `struct wafpark_record`.
const HEAD: u32 = 32;

struct Record {
    size: u32,
    process: u32,
    kind: u16,
    error: u16,
    detail: u32,
    first: Bytes,
    second: Bytes,
}

fn number(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    u32::from_ne_bytes(bytes.unwrap_or_default())
}

fn short(bytes: &[u8], at: usize) -> u16 {
    let bytes = bytes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
    u16::from_ne_bytes(bytes.unwrap_or_default())
}

impl Record {
    fn read(head: &[u8], size: u32, mut texts: Bytes) -> Option<Record> {
        let (first, second) = (number(head, 20) as usize, number(head, 24) as usize);
        texts.truncate(first.checked_add(second).filter(|end| *end <= texts.len())?);
        let second = texts.split_off(first);
        Some(Record {
            size,
            process: number(head, 8),
            kind: short(head, 12),
            error: short(head, 14),
            detail: number(head, 16),
            first: texts,
            second,
        })
    }
}

/// Makes accesses of records.
#[derive(Default)]
struct Reader {
    accesses: Vec<Access>,
    /// Processes that were about to execute a program, or to make a child that does, and where that is said.
    awaited: Vec<(u32, usize)>,
    /// Where the accesses of further parts begin.
    breaks: Vec<usize>,
}

impl Reader {
    fn take(&mut self, record: Record) -> Result<(), &'static str> {
        let (process, error) = (record.process, record.error);
        if record.kind == REFUSED {
            self.refuse(process, error);
            return Ok(());
        }
        // Nothing is ever where an empty path leads.
        if PATHS.contains(&record.kind) && record.first.is_empty() && i32::from(error) == libc::ENOENT {
            return Ok(());
        }
        let what = what(record)?;
        match &what {
            What::Begin { parent, .. } => self.begin(process, *parent),
            What::Execute { .. } => self.awaited.push((process, self.accesses.len())),
            _ => {}
        }
        self.accesses.push(Access { process, what, error });
        Ok(())
    }

    fn begin(&mut self, process: u32, parent: u32) {
        let of = |wanted: u32| self.awaited.iter().position(|(process, _)| *process == wanted);
        if let Some(at) = of(process).or_else(|| of(parent)) {
            self.awaited.swap_remove(at);
        }
    }

    /// The last that this process was about to execute was not executed.
    fn refuse(&mut self, process: u32, error: u16) {
        if let Some(at) = self.awaited.iter().rposition(|(awaited, _)| *awaited == process) {
            let (_, access) = self.awaited.remove(at);
            self.accesses[access].error = error;
        }
    }

    fn begin_part(&mut self) {
        self.breaks.push(self.accesses.len());
    }

    fn find_unseen(&self) -> Option<&'static str> {
        let child = || (!self.awaited.is_empty()).then_some(UNSEEN_CHILD);
        self.find_unbegun().or_else(child)
    }

    /// Each part must begin as a program does.
    fn find_unbegun(&self) -> Option<&'static str> {
        let begins = |at: &usize| {
            matches!(
                self.accesses.get(*at).map(|access| &access.what),
                Some(What::Begin { .. })
            )
        };
        let mut firsts = [0].iter().chain(&self.breaks);
        (!firsts.all(begins)).then_some(UNSEEN)
    }

    fn into_parts(mut self) -> Vec<Vec<Access>> {
        let mut parts: Vec<_> = self
            .breaks
            .iter()
            .rev()
            .map(|at| self.accesses.split_off(*at))
            .collect();
        parts.push(self.accesses);
        parts.reverse();
        parts
    }
}

/// `enum wafpark_kind`, of those that are not accesses of their own.
const REFUSED: u16 = 3;
/// Of those that only look at a path.
const PATHS: std::ops::RangeInclusive<u16> = 5..=11;

fn what(record: Record) -> Result<What, &'static str> {
    let path = record.first;
    Ok(match record.kind {
        1 => What::Begin {
            program: path,
            folder: record.second,
            parent: record.detail,
        },
        2 => What::Execute { path },
        4 => What::Load { path },
        5 => What::Enter { path },
        6 => open(path, record.detail as i32),
        7 => What::Find { path },
        8 => What::Look {
            path,
            follows: record.detail != 0,
        },
        9 => What::Link { path },
        10 => What::Resolve { path },
        11 => What::List { path },
        12 => What::Ask { name: path },
        13 if record.detail != 0 => What::Anchor,
        13 => What::Locate,
        14 => What::Time,
        15 => What::Date,
        16 => What::Random,
        17 => What::Rename {
            from: path,
            to: record.second,
        },
        18 => What::Remove { path },
        19 => What::Make { path },
        20 => What::Blind {
            why: BLINDNESS.get(record.detail as usize).unwrap_or(&DAMAGED),
        },
        _ => return Err(DAMAGED),
    })
}

fn open(path: Bytes, flags: i32) -> What {
    let has = |wanted: i32| flags & wanted == wanted;
    if matches!(path.as_slice(), b"/dev/urandom" | b"/dev/random") {
        return What::Random;
    }
    if has(libc::O_TMPFILE) || has(libc::O_PATH) {
        // Nobody else sees what it writes there, or it reads nothing.
        return What::Find { path };
    }
    if has(libc::O_DIRECTORY) {
        // What it lists is said when it does so.
        let follows = !has(libc::O_NOFOLLOW);
        return What::Look { path, follows };
    }
    let access = flags & libc::O_ACCMODE;
    let mode = Mode {
        reads: access != libc::O_WRONLY,
        writes: access != libc::O_RDONLY,
        creates: has(libc::O_CREAT),
        exclusive: has(libc::O_CREAT | libc::O_EXCL),
        truncates: has(libc::O_TRUNC),
    };
    What::Open { path, mode }
}

/// What a process does that outlives its command is not seen.
fn find_survivor(accesses: &[Access]) -> Option<&'static str> {
    let processes: BTreeSet<u32> = accesses.iter().map(|access| access.process).collect();
    processes.into_iter().any(runs).then_some(OUTLIVED)
}

fn runs(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.trim_start().chars().next());
    state.is_some_and(|state| !"ZX".contains(state))
}

#[cfg(test)]
mod tests;
