//! All volumes: the one to which blobs are appended, the descriptors of those that are read, and the disk space that they
//! take.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use rustix::fs::{openat, unlinkat, AtFlags, Mode, OFlags};

use super::files::numbers_in;
use super::number::{Number, Numbers};
use super::volume::{Piece, Volume};

use crate::files::regular;

/// The kernel accepts no more parts in one call.
const MOST_SLICES: usize = 1024;

/// If a folder was left alone for this long, the next change in it changes its time.
const QUIET: Duration = Duration::from_secs(3);

/// How many descriptors stay open for the next reader.
const OPEN: usize = 128;

pub struct Volumes {
    folder: OwnedFd,
    state: Mutex<State>,
    /// The disk space of all volumes, in bytes.
    held: AtomicU64,
    /// Those with an open descriptor, the oldest first.
    opened: Mutex<VecDeque<Weak<Volume>>>,
}

struct State {
    tail: Option<Tail>,
    all: HashMap<Number, Arc<Volume>>,
}

/// The one to which blobs are appended.
#[derive(Clone)]
struct Tail {
    volume: Arc<Volume>,
    file: Arc<File>,
}

/// The size of a volume, and of the largest piece in it. Both are smaller in a small cache, so that evicting frees some of
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub volume: u32,
    pub piece: u32,
}

impl Limits {
    pub fn of(max_size: u64) -> Limits {
        let volume = (max_size / 64).clamp(128 << 10, 32 << 20) as u32;
        let piece = (volume / 8).min(64 << 10);
        Limits { volume, piece }
    }
}

impl Volumes {
    /// With those that the index names.
    pub fn open(folder: &Path, known: HashMap<Number, Arc<Volume>>) -> io::Result<Volumes> {
        fs::create_dir_all(folder)?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let volumes = Volumes {
            folder: rustix::fs::open(folder, flags, Mode::empty())?,
            state: Mutex::new(State {
                tail: None,
                all: HashMap::new(),
            }),
            held: AtomicU64::new(0),
            opened: Mutex::default(),
        };
        for volume in known.values() {
            // A piece in a volume that is gone or cut is found to be damaged when it is read.
            volumes.set_length(volume, volumes.measure(volume.number).unwrap_or(0));
        }
        volumes.state().all = known;
        Ok(volumes)
    }

    pub fn folder(&self) -> &OwnedFd {
        &self.folder
    }

    /// A state of the folder. If it differs from an earlier one, files may have come or gone.
    pub fn folder_state(&self) -> io::Result<FolderState> {
        let status = rustix::fs::fstat(&self.folder)?;
        Ok(FolderState {
            changed: (status.st_ctime as i64, status.st_ctime_nsec as i64),
            at: SystemTime::now(),
        })
    }

    /// The volumes that are gone from the folder although this process has not removed them. Nothing is appended to them
    /// from now on.
    pub fn vanished(&self) -> Vec<Arc<Volume>> {
        let mut state = self.state();
        let is_gone = |volume: &Volume| {
            let found = rustix::fs::statat(&self.folder, volume.number.to_string(), AtFlags::SYMLINK_NOFOLLOW);
            matches!(found, Err(rustix::io::Errno::NOENT))
        };
        let gone: Vec<_> = state.all.values().filter(|volume| is_gone(volume)).cloned().collect();
        for volume in &gone {
            if state.is_tail(volume) {
                state.tail = None;
            }
            volume.file().take();
        }
        gone
    }

    fn measure(&self, number: Number) -> io::Result<u32> {
        let status = rustix::fs::statat(&self.folder, number.to_string(), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(u32::try_from(status.st_size).unwrap_or(u32::MAX))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_length(&self, volume: &Volume, length: u32) {
        let before = volume.held();
        volume.length.store(length, Ordering::Relaxed);
        self.held
            .fetch_add(volume.held().wrapping_sub(before), Ordering::Relaxed);
    }

    /// The disk space of all volumes, in bytes.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Appends all of these, one after the other. The caller has a claim for each piece.
    pub fn append(&self, pieces: &[&[u8]], limits: Limits, numbers: &Numbers) -> io::Result<Vec<Piece>> {
        let length = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let length = u32::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
        let count = pieces.len() as u32;
        let (tail, mut offset) = self.reserve(length, count, limits, numbers)?;
        if let Err(error) = write_all(&tail.file, pieces, u64::from(offset)) {
            self.release(&tail, offset, length, count);
            return Err(error);
        }
        let place = |bytes: &&[u8]| {
            let (volume, length) = (tail.volume.clone(), bytes.len() as u32);
            let piece = Piece { volume, offset, length };
            offset += length;
            piece
        };
        Ok(pieces.iter().map(place).collect())
    }

    /// Room at the end of the last volume, or in a new one.
    fn reserve(&self, length: u32, count: u32, limits: Limits, numbers: &Numbers) -> io::Result<(Tail, u32)> {
        let mut state = self.state();
        let fits = |tail: &&Tail| {
            let end = tail.volume.length().checked_add(length);
            tail.volume.length() == 0 || end.is_some_and(|end| end <= limits.volume)
        };
        let tail = match state.tail.as_ref().filter(fits) {
            Some(tail) => tail.clone(),
            None => {
                let tail = self.create(numbers.draw(false))?;
                state.all.insert(tail.volume.number, tail.volume.clone());
                state.tail.insert(tail).clone()
            }
        };
        let offset = tail.volume.length();
        tail.volume.claim(count);
        self.set_length(&tail.volume, offset + length);
        Ok((tail, offset))
    }

    fn create(&self, number: Number) -> io::Result<Tail> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(&self.folder, number.to_string(), flags, Mode::from_raw_mode(0o600))?;
        let (volume, file) = (Arc::new(Volume::new(number)), Arc::new(File::from(file)));
        *volume.file() = Some(file.clone());
        self.keep_open(&volume);
        Ok(Tail { volume, file })
    }

    /// Gives back room whose blob could not be written. If nothing was reserved after it, it is used again; otherwise it is
    /// a hole.
    fn release(&self, tail: &Tail, offset: u32, length: u32, count: u32) {
        let (volume, state) = (&tail.volume, self.state());
        if volume.length() == offset + length {
            // On a full disk, half a blob takes the room that the index needs.
            let _ = tail.file.set_len(u64::from(offset));
            self.set_length(volume, offset);
        }
        drop(state);
        if volume.unclaim(count) {
            self.remove(volume);
        }
    }

    /// Gives up a claim: of a piece that the table never knew, or of the thread that emptied a volume.
    pub fn unclaim(&self, volume: &Arc<Volume>) {
        if volume.unclaim(1) {
            self.remove(volume);
        }
    }

    /// Removes it, unless there is a claim to it again.
    pub fn remove(&self, volume: &Arc<Volume>) {
        let mut state = self.state();
        if volume.is_claimed() || state.all.remove(&volume.number).is_none() {
            return;
        }
        if state.is_tail(volume) {
            state.tail = None;
        }
        self.held.fetch_sub(volume.held(), Ordering::Relaxed);
        drop(state);
        self.unlink(volume.number);
    }

    fn unlink(&self, number: Number) {
        let _ = unlinkat(&self.folder, number.to_string(), AtFlags::empty());
    }

    pub fn read(&self, piece: &Piece) -> io::Result<Vec<u8>> {
        piece.read(&*self.file_of(&piece.volume)?)
    }

    pub fn file_of(&self, volume: &Arc<Volume>) -> io::Result<Arc<File>> {
        let mut open = volume.file();
        if let Some(file) = &*open {
            return Ok(file.clone());
        }
        let file = regular::open_at(&self.folder, &volume.number.to_string())?;
        let file = open.insert(Arc::new(file)).clone();
        drop(open);
        self.keep_open(volume);
        Ok(file)
    }

    /// Keeps a descriptor open, and closes the oldest one if there are too many.
    fn keep_open(&self, volume: &Arc<Volume>) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.push_back(Arc::downgrade(volume));
        let oldest = match opened.len() > OPEN {
            true => opened.pop_front(),
            false => None,
        };
        drop(opened);
        if let Some(oldest) = oldest.and_then(|oldest| oldest.upgrade()) {
            oldest.file().take();
        }
    }

    /// All volumes, and for each whether blobs are appended to it.
    pub fn all(&self) -> Vec<(Arc<Volume>, bool)> {
        let state = self.state();
        let all = state.all.values();
        all.map(|volume| (volume.clone(), state.is_tail(volume))).collect()
    }

    /// Takes a claim to a volume that will be emptied, if it is there. Nothing is appended to it from now on.
    pub fn seal(&self, volume: &Arc<Volume>) -> bool {
        let mut state = self.state();
        let is_there = state.all.contains_key(&volume.number);
        if is_there {
            volume.claim(1);
        }
        if is_there && state.is_tail(volume) {
            state.tail = None;
        }
        is_there
    }

    /// Removes the files of dead processes.
    pub fn sweep(&self, numbers: &Numbers) {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let folder = openat(&self.folder, ".", flags, Mode::empty()).map_err(io::Error::from);
        let left = folder.and_then(numbers_in).unwrap_or_default();
        for number in left {
            // A volume of another process is either known from the beginning or not at all.
            if !numbers.has_drawn(number) && !self.state().all.contains_key(&number) {
                self.unlink(number);
            }
        }
    }
}

/// When the folder was changed last, and when this was read.
#[derive(Debug, Clone, Copy)]
pub struct FolderState {
    changed: (i64, i64),
    at: SystemTime,
}

impl FolderState {
    /// Whether nothing came or went between the two states. A change in the tick of the first one may not show.
    pub fn is_same(&self, later: &FolderState) -> bool {
        let changed = SystemTime::UNIX_EPOCH + Duration::new(self.changed.0.max(0) as u64, 0);
        let was_quiet = self.at.duration_since(changed).is_ok_and(|age| age > QUIET);
        self.changed == later.changed && was_quiet
    }
}

impl State {
    fn is_tail(&self, volume: &Arc<Volume>) -> bool {
        self.tail.as_ref().is_some_and(|tail| Arc::ptr_eq(&tail.volume, volume))
    }
}

/// Writes one part after the other, from this offset on.
fn write_all(file: &File, pieces: &[&[u8]], offset: u64) -> io::Result<()> {
    let slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let written = match slices.len() {
        // Copying many small parts together is quicker than writing each on its own.
        2..=MOST_SLICES => rustix::io::pwritev(file, &slices, offset)?,
        _ => 0,
    };
    match pieces {
        [one] => file.write_all_at(one, offset),
        all if written < all.iter().map(|piece| piece.len()).sum() => {
            file.write_all_at(&all.concat()[written..], offset + written as u64)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::test_support::TestFolder;

    fn with_volumes(test: impl Fn(&Volumes, &Path)) {
        let folder = TestFolder::new();
        test(&Volumes::open(&folder.0, HashMap::new()).unwrap(), &folder.0);
    }

    #[test]
    fn more_volumes_are_read_than_are_kept_open() {
        with_volumes(|volumes, _| {
            let (numbers, limits) = (Numbers::new().unwrap(), Limits { volume: 8, piece: 8 });
            let bytes = |n: usize| n.to_le_bytes();
            let pieces: Vec<Piece> = (0..2 * OPEN)
                .flat_map(|n| volumes.append(&[&bytes(n)], limits, &numbers).unwrap())
                .collect();
            for round in 0..2 {
                for (n, piece) in pieces.iter().enumerate() {
                    assert_eq!(volumes.read(piece).unwrap(), bytes(n), "round {round}");
                }
            }
            let open = pieces.iter().filter(|piece| piece.volume.file().is_some()).count();
            assert_eq!((volumes.all().len(), open), (2 * OPEN, OPEN));
        });
    }

    #[test]
    fn a_volume_is_removed_with_its_last_claim_and_its_pieces_stay_readable() {
        with_volumes(|volumes, folder| {
            let (numbers, limits) = (Numbers::new().unwrap(), Limits::of(0));
            let pieces = volumes.append(&[b"one", b"", b"three"], limits, &numbers).unwrap();
            let volume = pieces[0].volume.clone();
            assert!(pieces.iter().all(|piece| Arc::ptr_eq(&piece.volume, &volume)));
            assert_eq!((volumes.held(), volume.length()), (4096, 8));
            volumes.unclaim(&volume);
            volumes.unclaim(&volume);
            assert!(folder.join(volume.number.to_string()).exists());
            volumes.unclaim(&volume);
            assert!(!folder.join(volume.number.to_string()).exists());
            assert_eq!((volumes.held(), volumes.all().len()), (0, 0));
            assert_eq!(volumes.read(&pieces[2]).unwrap(), b"three");
            let next = volumes.append(&[b"next"], limits, &numbers).unwrap();
            assert_ne!(next[0].volume.number, volume.number);
        });
    }

    #[test]
    fn nothing_is_appended_to_a_volume_that_is_being_emptied() {
        with_volumes(|volumes, _| {
            let (numbers, limits) = (Numbers::new().unwrap(), Limits::of(0));
            let first = volumes.append(&[b"first"], limits, &numbers).unwrap().remove(0);
            assert!(volumes.seal(&first.volume));
            let second = volumes.append(&[b"second"], limits, &numbers).unwrap().remove(0);
            assert_ne!(first.volume.number, second.volume.number);
            volumes.unclaim(&first.volume);
            volumes.unclaim(&first.volume);
            assert!(!volumes.seal(&first.volume), "it is gone");
        });
    }
}
