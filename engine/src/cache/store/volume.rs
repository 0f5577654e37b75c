//! A volume: one file with many small blobs, to which the process that made it appends, and nobody else.
//!
//! Whoever has a piece of it has the volume, and reads it also when its file is gone from the folder meanwhile.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::number::Number;

/// What a disk gives out at once.
const BLOCK: u64 = 4096;

#[derive(Debug)]
pub struct Volume {
    pub number: Number,
    /// Opened when it is needed.
    file: Mutex<Option<Arc<File>>>,
    /// Of those in the table; of those that are being written; and one of whoever empties it. Without any it is removed.
    claims: AtomicU32,
    /// Bytes of blobs that the table knows.
    alive: AtomicU32,
    /// Bytes that were appended, or will be. Only `Volumes` changes it.
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

    /// Whether it was the last one.
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

    /// What the disk holds for it, in bytes.
    pub fn held(&self) -> u64 {
        u64::from(self.length()).next_multiple_of(BLOCK)
    }
}

impl Piece {
    /// The table knows it from now on. Its claim is there already.
    pub fn enter(&self) {
        self.volume.alive.fetch_add(self.length, Ordering::Relaxed);
    }

    /// The table does not know it any more. Whether nobody has a claim to its volume then.
    pub fn leave(&self) -> bool {
        self.volume.alive.fetch_sub(self.length, Ordering::Relaxed);
        self.volume.unclaim(1)
    }

    /// As far as is known of the volume's length.
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
