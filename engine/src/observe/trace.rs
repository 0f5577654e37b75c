//! The records that observed commands make: the other side of `engine/park/record.h`.
//!
//! ```text
//! arena ─► trace region, one per command ─► variables ─► libwafpark.so notes ─► records ─► accesses
//! ```
//!
//! The commands can write to this memory as well as we can, so nothing in it is trusted. The room does not know what the
//! accesses mean.

pub mod program;
mod reader;
pub mod record;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use log::debug;
use rustix::fs::{fallocate, ftruncate, memfd_create, FallocateFlags, MemfdFlags};
use rustix::process::{getrlimit, Resource};

use self::reader::{Reader, UNSEEN};
use self::record::{Record, HEAD};
use super::access::{Access, Bytes};

/// Bytes of a trace region; a page that is never written takes no memory.
pub const REGION_SIZE: usize = 16 << 20;
/// As many regions as commands can run at once (`process/guardian.rs`), and as many again for commands that wait to be
/// stored: 256 GiB of address space.
const MOST_REGIONS: usize = 16 << 10;
/// If address space is limited, the arena takes this fraction of it, but at least `FEWEST` trace regions.
const SHARE: u64 = 4;
const FEWEST: usize = 64;
/// How much memory a trace region keeps for the next command. Regions above the first `FEWEST` are seldom used, and keep
/// less.
const KEPT: usize = 1 << 20;
const KEPT_ABOVE: usize = 16 << 10;
/// The place of the first record.
const FIRST: u32 = 24;
/// The place of the witness's descriptor: the number of a file that we have open, or -1.
const WITNESS: usize = 8;
/// The place of the seconds by which calendars are ahead.
pub const AHEAD: usize = 12;
/// The place of the word that says whether programs must show that they make no system calls of their own.
const GUARDS: usize = 16;
/// The cursor's place when a record did not fit.
pub const FULL: u32 = u32::MAX;
const ALIGNMENT: u32 = 8;

const GAP: &str = "what it does was not noted to the end";
const DAMAGED: &str = "what it noted is damaged";
const OVERFLOW: &str = "it does more than can be noted";
const OUTLIVED: &str = "a process of it still runs";

/// Memory that all observed commands share with the engine.
#[derive(Clone)]
pub struct Arena {
    memory: Arc<Memory>,
}

/// Where a command puts its records; by default nowhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    pub trace_region: u32,
    /// 0 for none.
    pub generation: u32,
    /// The token of the exec by which the program starts; 0 if the engine starts it.
    pub token: u32,
}

/// The part of the arena for the records of one command.
pub struct TraceRegion {
    memory: Arc<Memory>,
    number: usize,
    generation: u32,
    /// Where the records of each further part of the command begin.
    marks: Vec<u32>,
    /// The program that is started for each part, if it is known.
    started: Vec<Option<PathBuf>>,
    is_finished: bool,
}

struct Memory {
    file: OwnedFd,
    /// The program that observes where the library cannot: `wafd` itself.
    witness: Option<OwnedFd>,
    place: *mut u8,
    trace_regions: usize,
    free: Mutex<Free>,
}

// SAFETY: the mapping belongs to this value alone, and is only accessed through atomics and copies.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

struct Free {
    /// The lowest free region is taken first, so that a build with few commands at once writes to few pages.
    trace_regions: BinaryHeap<Reverse<usize>>,
    /// Each reservation has its own generation, so that processes of an earlier command are recognized.
    generation: u32,
}

impl Arena {
    /// An arena with a trace region for each command that can run at once. At first this is only address space: a file in
    /// memory takes pages when they are written, and is not accounted before.
    pub fn open(witness: Option<OwnedFd>) -> io::Result<Arena> {
        let limit = getrlimit(Resource::As).current.unwrap_or(u64::MAX);
        let share = usize::try_from(limit / SHARE / REGION_SIZE as u64).unwrap_or(MOST_REGIONS);
        let mut trace_regions = share.clamp(FEWEST, MOST_REGIONS);
        loop {
            match Arena::new(trace_regions) {
                // Another limit applies, to address space or to the size of files.
                Err(error) if trace_regions > FEWEST => debug!("an arena of {trace_regions} slots: {error}"),
                made => return Ok(made?.with_witness(witness)),
            }
            trace_regions = (trace_regions / 4).max(FEWEST);
        }
    }

    pub fn new(trace_regions: usize) -> io::Result<Arena> {
        let file = memfd_create("wafpark", MemfdFlags::CLOEXEC)?;
        let size = trace_regions * REGION_SIZE;
        ftruncate(&file, size as u64)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping, which no other code uses.
        let place = unsafe { libc::mmap(ptr::null_mut(), size, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if place == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let free = Free {
            trace_regions: (0..trace_regions).map(Reverse).collect(),
            generation: 0,
        };
        let memory = Memory {
            file,
            witness: None,
            place: place.cast(),
            trace_regions,
            free: Mutex::new(free),
        };
        Ok(Arena { memory: memory.into() })
    }

    /// Programs that the library cannot observe are started below this witness: see `crate::witness`.
    pub fn with_witness(mut self, witness: Option<OwnedFd>) -> Arena {
        if let Some(memory) = Arc::get_mut(&mut self.memory) {
            memory.witness = witness;
        }
        self
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.memory.file.as_fd()
    }

    pub fn trace_regions(&self) -> usize {
        self.memory.trace_regions
    }

    /// The path by which programs open the arena.
    pub fn path(&self) -> String {
        self.memory.path()
    }

    /// Reserves a trace region for a command. None if all are taken.
    pub fn reserve(&self) -> Option<TraceRegion> {
        let mut free = self.memory.free();
        let Reverse(number) = free.trace_regions.pop()?;
        free.generation = free.generation.checked_add(1).unwrap_or(1);
        let generation = free.generation;
        drop(free);
        let trace_region = TraceRegion {
            memory: self.memory.clone(),
            number,
            generation,
            marks: Vec::new(),
            started: Vec::new(),
            is_finished: false,
        };
        trace_region.tell_witness();
        trace_region.put_ahead(0);
        trace_region.guard(false);
        trace_region
            .cursor()
            .store(u64::from(generation) << 32 | u64::from(FIRST), Ordering::Release);
        Some(trace_region)
    }
}

impl Memory {
    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self) -> String {
        path_of(&self.file)
    }
}

/// The path by which other processes can open a file of ours.
fn path_of(file: &OwnedFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping; no trace region is in use any more.
        unsafe { libc::munmap(self.place.cast(), self.trace_regions * REGION_SIZE) };
    }
}

impl TraceRegion {
    /// Where a parked program puts its records.
    pub fn place(&self) -> Place {
        Place {
            trace_region: self.number as u32,
            generation: self.generation,
            token: 0,
        }
    }

    /// The variables that a program needs in order to be observed. `theirs` are the libraries that it preloads anyway. They
    /// replace variables of the same names.
    pub fn variables(&self, library: &[u8], theirs: Option<&[u8]>) -> [Bytes; 2] {
        let mut preload = [b"LD_PRELOAD=", library].concat();
        if let Some(theirs) = theirs.filter(|theirs| !theirs.is_empty()) {
            preload.push(b':');
            preload.extend_from_slice(theirs);
        }
        [preload, self.trace_variable()]
    }

    /// The path of the second witness, and the variable that it needs.
    pub fn witness(&self) -> Option<(String, Bytes)> {
        let path = path_of(self.memory.witness.as_ref()?);
        Some((path, self.trace_variable()))
    }

    fn trace_variable(&self) -> Bytes {
        let path = self.memory.path();
        format!("WAFPARK_TRACE={path}:{}:{}:0", self.number, self.generation).into_bytes()
    }

    fn tell_witness(&self) {
        let number = self.memory.witness.as_ref().map_or(-1, |file| file.as_raw_fd());
        // SAFETY: within the trace region, aligned, and not in use by a command.
        unsafe { AtomicU32::from_ptr(self.at(WITNESS).cast()).store(number as u32, Ordering::Relaxed) };
    }

    /// The command finds calendars that many seconds ahead, in all programs that the library observes.
    pub fn put_ahead(&self, seconds: u32) {
        // SAFETY: within the trace region, aligned, and not in use by a command.
        unsafe { AtomicU32::from_ptr(self.at(AHEAD).cast()) }.store(seconds, Ordering::Relaxed);
    }

    /// Its programs must show that they make no system calls by their own instructions.
    pub fn guard(&self, are_guarded: bool) {
        // SAFETY: within the trace region, aligned, and not in use by a command.
        unsafe { AtomicU32::from_ptr(self.at(GUARDS).cast()) }.store(are_guarded.into(), Ordering::Relaxed);
    }

    /// This program is started next, by an absolute path. Its records count only if this very file has begun. A program
    /// that is not observed may start another one that is.
    pub fn expect(&mut self, program: Option<PathBuf>) {
        self.started.resize(self.marks.len(), None);
        self.started.push(program);
    }

    /// The first part was started with this program, and not with the expected one.
    pub fn expect_first(&mut self, program: Option<PathBuf>) {
        self.started.splice(..self.started.len().min(1), [program]);
    }

    /// Records from now on belong to another part, because the previous one has ended.
    pub fn mark(&mut self) {
        let cursor = self.cursor().load(Ordering::Acquire);
        let is_ours = (cursor >> 32) as u32 == self.generation;
        self.marks.push(if is_ours { cursor as u32 } else { FULL });
    }

    /// What the command did. It must have ended.
    pub fn finish(self) -> Vec<Access> {
        self.finish_parts().concat()
    }

    /// The same, part by part. What could not be observed is reported at the end.
    pub fn finish_parts(self) -> Vec<Vec<Access>> {
        self.read(Reader::find_unseen)
    }

    /// The same for a driver that has recorded an exec and executed nothing, because it was told that everything had been
    /// done.
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
            .or_else(|| reader.find_exchanged(&self.find_started()))
            .or_else(|| find_survivor(&reader.accesses));
        let mut parts = reader.into_parts();
        if let Some(last) = parts.last_mut() {
            last.extend(why.map(Access::blind));
        }
        parts
    }

    fn find_started(&self) -> Vec<Option<u64>> {
        let find = |program: &Option<PathBuf>| program.as_deref().map(program::find);
        self.started.iter().map(find).collect()
    }

    fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < REGION_SIZE);
        // SAFETY: within the trace region, and so within the mapping.
        unsafe { self.memory.place.add(self.number * REGION_SIZE + offset) }
    }

    fn cursor(&self) -> &AtomicU64 {
        // SAFETY: a trace region begins with it, and is aligned to a page; it lives as long as the mapping that we hold.
        unsafe { AtomicU64::from_ptr(self.at(0).cast()) }
    }

    /// Stops further records. Returns where they end.
    fn close(&self) -> u32 {
        let cursor = self.cursor().swap(0, Ordering::AcqRel);
        // A process that can write into the region could have changed the cursor.
        if (cursor >> 32) as u32 == self.generation {
            cursor as u32
        } else {
            FULL
        }
    }

    fn free(&self, end: u32) {
        let kept = if self.number < FEWEST { KEPT } else { KEPT_ABOVE };
        if end as usize > kept {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let start = self.number * REGION_SIZE + kept;
            // If this fails, the memory is freed when the region is used again.
            let _ = fallocate(&self.memory.file, flags, start as u64, (REGION_SIZE - kept) as u64);
        }
        self.memory.free().trace_regions.push(Reverse(self.number));
    }

    /// A process that was killed during a record, or that is about to continue, may still write there. Then the trace
    /// region is not used again.
    fn decode(&self, end: u32, reader: &mut Reader) -> Option<&'static str> {
        if end as usize > REGION_SIZE {
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
        // Nothing is known of a part without records.
        marks.next().map(|_| UNSEEN)
    }

    /// A copy of the records: the memory may change while we read it.
    fn record(&self, place: u32, end: u32) -> Result<Record, &'static str> {
        if (end - place) < HEAD || place % ALIGNMENT != 0 {
            return Err(DAMAGED);
        }
        // SAFETY: aligned and within the trace region, as was just seen.
        let commit = unsafe { AtomicU32::from_ptr(self.at(place as usize).cast()) };
        if commit.load(Ordering::Acquire) != self.generation {
            return Err(GAP);
        }
        let head = self.copy(place, HEAD);
        let size = record::size(&head);
        if size < HEAD || size > end - place || size % ALIGNMENT != 0 {
            return Err(DAMAGED);
        }
        Record::read(&head, size, self.copy(place + HEAD, size - HEAD)).ok_or(DAMAGED)
    }

    fn copy(&self, place: u32, size: u32) -> Bytes {
        let mut bytes = vec![0; size as usize];
        if size > 0 {
            // SAFETY: the caller has checked that the trace region goes so far; what others write there meanwhile are just bytes.
            unsafe { ptr::copy_nonoverlapping(self.at(place as usize), bytes.as_mut_ptr(), bytes.len()) };
        }
        bytes
    }
}

impl Drop for TraceRegion {
    /// Dropping it means that no command was started.
    fn drop(&mut self) {
        if !self.is_finished {
            let end = self.close();
            self.free(end);
        }
    }
}

/// The actions of a process that outlives its command are not seen.
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
