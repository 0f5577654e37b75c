//! Appends records to a command's trace region, like `engine/park/record.c`: the traced program cannot do so itself.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::observe::trace::record::HEAD;
use crate::observe::trace::{AHEAD, FULL, REGION_SIZE};

/// A trace region of the engine's arena.
pub struct Notes {
    place: *mut u8,
    generation: u32,
}

/// The content of a record; see `struct wafpark_record`.
#[derive(Default)]
pub struct Note<'a> {
    pub kind: u16,
    pub process: i32,
    /// In the form of a system call's result.
    pub result: i64,
    pub detail: u32,
    pub token: u32,
    pub identity: u64,
    pub first: &'a [u8],
    pub second: &'a [u8],
}

const ALIGNMENT: usize = 8;

impl Notes {
    /// From the value of `WAFPARK_TRACE`, which also has the token with which the next program begins.
    pub fn open(trace: &[u8]) -> Option<(Notes, u32)> {
        let mut parts = trace.rsplitn(4, |b| *b == b':');
        let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse::<u32>().ok();
        let (token, generation, trace_region) = (number()?, number()?, number()?);
        let file = File::options()
            .read(true)
            .write(true)
            .open(OsStr::from_bytes(parts.next()?))
            .ok()?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let offset = i64::from(trace_region) * REGION_SIZE as i64;
        // SAFETY: a fresh mapping, which is never unmapped.
        let place = unsafe {
            libc::mmap(
                ptr::null_mut(),
                REGION_SIZE,
                access,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        let is_mapped = place != libc::MAP_FAILED;
        let notes = Notes {
            place: place.cast(),
            generation,
        };
        (is_mapped && notes.is_ours()).then_some((notes, token))
    }

    /// By how many seconds the command finds calendars ahead.
    pub fn ahead(&self) -> u32 {
        // SAFETY: a trace region has it in its head, aligned.
        unsafe { AtomicU32::from_ptr(self.place.add(AHEAD).cast()) }.load(Ordering::Relaxed)
    }

    /// Whether the region still belongs to this command.
    fn is_ours(&self) -> bool {
        (self.cursor().load(Ordering::Acquire) >> 32) as u32 == self.generation
    }

    fn cursor(&self) -> &AtomicU64 {
        // SAFETY: a trace region begins with it, and is aligned to a page.
        unsafe { AtomicU64::from_ptr(self.place.cast()) }
    }

    /// Reserves room for a record. None if the trace region is full, or no longer ours.
    fn make_room(&self, size: usize) -> Option<u32> {
        let next = |now: u64| {
            let place = now as u32;
            let is_open = (now >> 32) as u32 == self.generation && place as usize <= REGION_SIZE;
            let fits = size <= REGION_SIZE.saturating_sub(place as usize);
            let next = if fits { place + size as u32 } else { FULL };
            is_open.then_some(u64::from(self.generation) << 32 | u64::from(next))
        };
        let before = self
            .cursor()
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, next)
            .ok()?;
        let place = before as u32;
        (size <= REGION_SIZE - place as usize).then_some(place)
    }

    /// The token of an exec, which is the record's place; 0 if it was not noted.
    pub fn write(&self, note: &Note, is_exec: bool) -> u32 {
        let size = (HEAD as usize + note.first.len() + note.second.len()).next_multiple_of(ALIGNMENT);
        let Some(place) = self.make_room(size) else { return 0 };
        let own = place / ALIGNMENT as u32;
        let error = if (-4095..0).contains(&note.result) {
            -note.result
        } else {
            0
        };
        let words = [
            note.detail,
            note.first.len() as u32,
            note.second.len() as u32,
            if is_exec { own } else { note.token },
        ];
        let mut record = Vec::with_capacity(size);
        record.extend([size as u32, note.process as u32].map(u32::to_ne_bytes).concat());
        record.extend([note.kind, error as u16].map(u16::to_ne_bytes).concat());
        record.extend(words.map(u32::to_ne_bytes).concat());
        record.extend(note.identity.to_ne_bytes());
        record.extend_from_slice(note.first);
        record.extend_from_slice(note.second);
        // SAFETY: the room is ours, within the mapping, and aligned.
        unsafe {
            let at = self.place.add(place as usize);
            ptr::copy_nonoverlapping(record.as_ptr(), at.add(4), record.len());
            AtomicU32::from_ptr(at.cast()).store(self.generation, Ordering::Release);
        }
        own
    }
}
