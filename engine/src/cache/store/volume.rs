//! A volume: one file with many small blobs. Only the process that made it appends to it.
//!
//! A thread that has a piece of a volume keeps the volume open, and can read it even if its file is removed meanwhile.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::number::Number;

/// The unit in which disks allocate space.
const BLOCK: u64 = 4096;

#[derive(Debug)]
pub struct Volume {
    pub number: Number,
    /// Opened when it is needed.
    file: Mutex<Option<Arc<File>>>,
    /// The number of claims: pieces in the table, pieces that are being written, and one of the thread that empties it.
    /// Without claims, it is removed.
    claims: AtomicU32,
    /// The bytes of blobs that are in the table.
    alive: AtomicU32,
    /// The bytes that were appended, or reserved. Only `Volumes` changes this.
    pub(super) length: AtomicU32,
}

/// A blob's bytes in a volume.
#[derive(Debug, Clone)]
pub struct Piece {
    pub volume: Arc<Volume>,
    pub offset: u32,
    pub length: u32,
}

impl Volume {
    pub fn new(number: Number) -> Volume {
        Volume {
            number,
            file: Mutex::new(None),
            claims: AtomicU32::new(0),
            alive: AtomicU32::new(0),
            length: AtomicU32::new(0),
        }
    }

    pub fn file(&self) -> MutexGuard<'_, Option<Arc<File>>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn claim(&self, count: u32) {
        self.claims.fetch_add(count, Ordering::AcqRel);
    }

    /// Gives up a claim. Returns whether it was the last one.
    pub fn unclaim(&self, count: u32) -> bool {
        self.claims.fetch_sub(count, Ordering::AcqRel) == count
    }

    pub fn is_claimed(&self) -> bool {
        self.claims.load(Ordering::Acquire) > 0
    }

    pub fn alive(&self) -> u32 {
        self.alive.load(Ordering::Relaxed)
    }

    pub fn length(&self) -> u32 {
        self.length.load(Ordering::Relaxed)
    }

    /// The disk space of the volume, in bytes.
    pub fn held(&self) -> u64 {
        u64::from(self.length()).next_multiple_of(BLOCK)
    }
}

impl Piece {
    /// The piece is in the table from now on. Its claim was taken before.
    pub fn enter(&self) {
        self.volume.alive.fetch_add(self.length, Ordering::Relaxed);
    }

    /// The piece is not in the table any more. Returns whether its volume has no claim left.
    pub fn leave(&self) -> bool {
        self.volume.alive.fetch_sub(self.length, Ordering::Relaxed);
        self.volume.unclaim(1)
    }

    /// Whether the piece lies within the volume, as far as its length is known.
    pub fn is_within(&self) -> bool {
        u64::from(self.offset) + u64::from(self.length) <= u64::from(self.volume.length())
    }

    pub fn read(&self, file: &File) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.length as usize];
        file.read_exact_at(&mut bytes, u64::from(self.offset))?;
        Ok(bytes)
    }
}

impl PartialEq for Piece {
    fn eq(&self, other: &Piece) -> bool {
        Arc::ptr_eq(&self.volume, &other.volume) && self.offset == other.offset
    }
}
