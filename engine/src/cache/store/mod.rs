//! The cache on disk: blobs by their digest, and entries, which are blobs too, by their key.
//!
//! ```text
//! find ─► table (memory) ─► read ─► file ─► the digest is right ─► bytes
//! put_blob ─► file ─► table            put_entry ─► index (disk) ─► table
//! ```
//!
//! Knows nothing of what an entry says. One process writes, with any number of threads. Whatever changes the table holds the
//! index's lock, and the table's own lock only for as long as memory takes, so that a lookup never waits for a disk.
//! `docs/store-format.md` is the format, `docs/design.md` tells why it is this one.

mod blob;
mod clock;
mod files;
mod index;
mod inside;
mod item;
mod keeper;
mod pack;
mod table;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use rustix::fs::{flock, FlockOperation};

use super::digest::Digest;
use blob::clone;
use clock::Clock;
use files::{Files, Written};
use index::Index;
use inside::{Inside, NewEntry};
use item::Item;
use keeper::Keeper;
use table::{Blobs, Slot, Table};

pub use blob::Blob;
pub use pack::{unpack, Compression, LARGEST};

/// Another format is in another folder beside it.
pub const FOLDER: &str = "store-1";
/// More results of one command than that are of no use.
const ENTRIES_PER_KEY: usize = 16;
const BLOBS_PER_ENTRY: usize = 4096;
/// For so long a blob waits for the entry that needs it.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Entries that are evicted at once.
const BATCH: usize = 64;

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// In bytes, as the disk holds them.
    pub max_size: u64,
    pub compression: Compression,
}

/// Dropped, it writes down what it kept in memory.
pub struct Store {
    keeper: Keeper,
    inside: Arc<Inside>,
}

/// An entry that was found. It may be gone when it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryRef {
    pub key: Digest,
    slot: Slot,
    id: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub entries: usize,
    pub blobs: usize,
    /// What the disk holds for all of it.
    pub size: u64,
    pub max_size: u64,
    /// Blobs, and pieces of the index, that were found damaged since it was opened.
    pub damaged: u64,
}

impl Store {
    /// Makes the folder if need be. Refuses one that another process has open.
    pub fn open(folder: &Path, settings: Settings) -> io::Result<Store> {
        let folder = folder.join(FOLDER);
        DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&folder)
            .map_err(|e| named("make the folder", &folder, e))?;
        let lock = lock(&folder)?;
        let found = Index::open(&folder).map_err(|error| named("open the index of", &folder, error))?;
        let files = Files::open(&folder.join("blobs")).map_err(|error| named("open the blobs of", &folder, error))?;
        let inside = Arc::new(Inside {
            clock: Clock::after(found.table.newest),
            index: Mutex::new(found.index),
            table: RwLock::new(found.table),
            files,
            compression: settings.compression,
            is_plain: AtomicBool::new(false),
            max_size: AtomicU64::new(settings.max_size),
            damaged: AtomicU64::new(u64::from(found.damaged)),
            stopped: AtomicBool::new(false),
            _lock: lock,
        });
        let keeper = Keeper::start(inside.clone())?;
        Ok(Store { keeper, inside })
    }

    /// The entries of a key, the one that was used last first. Never looks at the disk.
    pub fn find(&self, key: &Digest) -> Vec<EntryRef> {
        by_use(&self.inside.table(), key).collect()
    }

    /// An entry's bytes. One that is damaged is removed.
    pub fn read(&self, entry: &EntryRef) -> Option<Vec<u8>> {
        let place = {
            let table = self.inside.table();
            let body = table.entry(entry.slot).filter(|found| entry.is(found))?.body();
            self.inside.place_of(&table, body)
        };
        let bytes = place
            .and_then(|place| self.inside.content(&place))
            .and_then(Blob::into_bytes);
        if bytes.is_none() && self.inside.is_lost(entry) {
            self.remove_entry(entry);
        }
        bytes
    }

    /// This entry was of use.
    pub fn touch(&self, entry: &EntryRef) {
        let now = self.inside.clock.now();
        let table = self.inside.table();
        table
            .entry(entry.slot)
            .filter(|found| entry.is(found))
            .into_iter()
            .for_each(|entry| entry.touch(now));
    }

    pub fn has_blob(&self, digest: &Digest) -> bool {
        self.inside.table().find_blob(digest).is_some()
    }

    /// Like a blob that was just stored: for an hour it waits for an entry that needs it. Tells whether it is there.
    pub fn hold_blob(&self, digest: &Digest) -> bool {
        self.inside.pin(digest)
    }

    /// What the disk holds for a blob, in bytes; never looks there.
    pub fn size_of(&self, digest: &Digest) -> Option<u64> {
        let table = self.inside.table();
        let blob = table.find_blob(digest).and_then(|slot| table.blob(slot));
        blob.map(|blob| u64::from(blob.blocks) * 512)
    }

    /// The blobs of an entry: its bytes, then what it needs. Never looks at the disk.
    pub fn blobs_of(&self, entry: &EntryRef) -> Option<Vec<Digest>> {
        let table = self.inside.table();
        let found = table.entry(entry.slot).filter(|found| entry.is(found))?;
        found
            .blobs
            .iter()
            .map(|slot| table.blob(*slot).map(|blob| blob.digest))
            .collect()
    }

    /// A blob's content, all of which was held against the digest; `None` if it is not there, or was damaged.
    pub fn open_blob(&self, digest: &Digest) -> Option<Blob> {
        let place = {
            let table = self.inside.table();
            table
                .find_blob(digest)
                .and_then(|slot| self.inside.place_of(&table, slot))
        };
        self.inside.content(&place?)
    }

    /// Stores bytes; what is there already is not stored twice. For an hour it waits for an entry that needs it.
    pub fn put_blob(&self, bytes: &[u8]) -> io::Result<Digest> {
        let digest = Digest::of(bytes);
        if self.inside.pin(&digest) {
            return Ok(digest);
        }
        let packed = match self.inside.is_plain.load(Ordering::Relaxed) {
            true => None,
            false => self.inside.compression.pack(bytes),
        };
        let stored = packed.as_deref().unwrap_or(bytes);
        self.check_room(stored.len() as u64)?;
        let written = self.inside.files.write(packed.is_some(), files::holding(stored))?;
        self.adopt(digest, written);
        Ok(digest)
    }

    /// Stores all that is left to read in a file. What is stored is a copy, and the digest is the copy's.
    pub fn put_file(&self, mut file: &File) -> io::Result<Digest> {
        let length = file.metadata()?.len();
        if length <= pack::LARGEST as u64 {
            let mut bytes = Vec::with_capacity(length as usize);
            file.take(pack::LARGEST as u64 + 1).read_to_end(&mut bytes)?;
            if bytes.len() <= pack::LARGEST {
                return self.put_blob(&bytes);
            }
            io::Seek::rewind(&mut file)?;
        }
        self.put_large(file, length)
    }

    fn put_large(&self, mut file: &File, length: u64) -> io::Result<Digest> {
        self.check_room(length)?;
        let written = self.inside.files.write(false, |mut copy| match clone(file, copy) {
            true => Ok(()),
            false => io::copy(&mut file, &mut copy).map(drop),
        })?;
        let rewound = io::Seek::rewind(&mut &written.file);
        let digest = rewound.and_then(|()| Digest::of_file(&written.file));
        let digest = digest.inspect_err(|_| self.inside.files.remove(written.number))?;
        self.adopt(digest, written);
        Ok(digest)
    }

    fn check_room(&self, length: u64) -> io::Result<()> {
        let max_size = self.inside.max_size.load(Ordering::Relaxed);
        match length > max_size / 2 {
            true => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "store a blob of {length} bytes in a cache of {max_size}: it is too large; raise the cache's size"
                ),
            )),
            false => Ok(()),
        }
    }

    /// Another thread may have stored the same meanwhile.
    fn adopt(&self, digest: Digest, written: Written) {
        let index = self.inside.index();
        if self.inside.pin(&digest) {
            drop(index);
            self.inside.files.remove(written.number);
            return;
        }
        let mut table = self.inside.change();
        let slot = table.add_blob(digest, written.number, written.blocks);
        table.pin(slot);
        drop((table, index));
        self.wake_if_full();
    }

    /// Stores an entry, which from then on survives the death of this process. All blobs that it needs are there, or this
    /// fails and names the one that is not.
    pub fn put_entry(&self, key: &Digest, bytes: &[u8], needs: &[Digest]) -> io::Result<EntryRef> {
        let body = self.put_blob(bytes)?;
        let mut index = self.inside.index();
        let table = self.inside.table();
        let blobs = find_all(&table, &body, needs)?;
        let same = table.entries_of(key).find(|(_, entry)| entry.blobs == blobs);
        if let Some((slot, entry)) = same {
            table.unpin(&blobs);
            entry.touch(self.inside.clock.now());
            return Ok(EntryRef {
                key: *key,
                slot,
                id: entry.id,
            });
        }
        let entry = NewEntry {
            id: table.next_id,
            key: *key,
            used: self.inside.clock.now(),
            blobs,
        };
        let excess = excess(&table, key);
        let items = entry.items(&table, &excess);
        drop(table);
        index.append(&items)?;
        let added = self.inside.add(entry, &excess);
        drop(index);
        self.wake_if_full();
        Ok(added)
    }

    pub fn remove_entry(&self, entry: &EntryRef) {
        self.inside.remove(&[*entry]);
    }

    /// Removes all entries and blobs; counters stay. Takes as long as it takes to remove the files, during which everybody
    /// else goes on.
    pub fn clear(&self) -> io::Result<()> {
        let mut index = self.inside.index();
        index.append(&[Item::Clear])?;
        let mut table = self.inside.change();
        let cleared = table.cleared();
        let old = std::mem::replace(&mut *table, cleared);
        drop((table, index));
        old.blobs()
            .filter(|blob| !blob.lost)
            .for_each(|blob| self.inside.files.remove(blob.number));
        self.inside.tidy_index()
    }

    /// Removes the entries that were not used for so long, and tells how many.
    pub fn evict_older_than(&self, age: Duration) -> usize {
        let now = self.inside.clock.now();
        let oldest = now.saturating_sub(clock::milliseconds(age));
        self.inside.evict(oldest, |_| false)
    }

    /// From now on. What is too much is evicted in the background.
    pub fn set_max_size(&self, max_size: u64) {
        self.inside.max_size.store(max_size, Ordering::Relaxed);
        self.wake_if_full();
    }

    /// From now on blobs are stored as they are, so that they can be linked.
    pub fn set_plain(&self, is_plain: bool) {
        self.inside.is_plain.store(is_plain, Ordering::Relaxed);
    }

    /// Adds to counters, which are made with the first number that is added. They survive as entries do.
    pub fn count(&self, added: &[(&str, u64)]) -> io::Result<()> {
        let item = |(name, added): &(&str, u64)| Item::Count {
            name: cut(name).to_owned(),
            added: *added,
        };
        let mut index = self.inside.index();
        index.append(&added.iter().map(item).collect::<Vec<_>>())?;
        let mut table = self.inside.change();
        added.iter().for_each(|(name, added)| table.count(cut(name), *added));
        Ok(())
    }

    pub fn counters(&self) -> BTreeMap<String, u64> {
        self.inside.table().counters.clone()
    }

    pub fn zero_counters(&self) -> io::Result<()> {
        let mut index = self.inside.index();
        index.append(&[Item::Zero])?;
        self.inside.change().counters.clear();
        Ok(())
    }

    pub fn usage(&self) -> Usage {
        let size = self.inside.size();
        let (entries, blobs) = self.inside.table().counts();
        let max_size = self.inside.max_size.load(Ordering::Relaxed);
        let damaged = self.inside.damaged.load(Ordering::Relaxed);
        Usage {
            entries,
            blobs,
            size,
            max_size,
            damaged,
        }
    }

    /// The same but for the index's own size, without waiting for whoever writes to the disk.
    pub fn glance(&self) -> Usage {
        let table = self.inside.table();
        let (entries, blobs) = table.counts();
        Usage {
            entries,
            blobs,
            size: table.blocks * 512,
            max_size: self.inside.max_size.load(Ordering::Relaxed),
            damaged: self.inside.damaged.load(Ordering::Relaxed),
        }
    }

    fn wake_if_full(&self) {
        if self.inside.is_full() {
            self.keeper.wake();
        }
    }
}

impl EntryRef {
    fn is(&self, entry: &table::Entry) -> bool {
        entry.id == self.id && entry.key == self.key
    }
}

/// The body first; each once.
fn find_all(table: &Table, body: &Digest, needs: &[Digest]) -> io::Result<Blobs> {
    if needs.len() >= BLOBS_PER_ENTRY {
        let message = format!(
            "store an entry: it needs {} blobs; {BLOBS_PER_ENTRY} are too many",
            needs.len()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let mut blobs = Blobs::new();
    for digest in std::iter::once(body).chain(needs) {
        let missing = || {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("store an entry: there is no blob {digest}"),
            )
        };
        let slot = table.find_blob(digest).ok_or_else(missing)?;
        if !blobs.contains(&slot) {
            blobs.push(slot);
        }
    }
    Ok(blobs)
}

/// The entries of a key, the one that was used last first.
fn by_use(table: &Table, key: &Digest) -> impl Iterator<Item = EntryRef> {
    let found = table.entries_of(key).map(|(slot, entry)| {
        let (key, id) = (*key, entry.id);
        (Reverse(entry.used()), EntryRef { key, slot, id })
    });
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(|(used, _)| *used);
    found.into_iter().map(|(_, entry)| entry)
}

/// What must go for one more of this key.
fn excess(table: &Table, key: &Digest) -> Vec<EntryRef> {
    by_use(table, key).skip(ENTRIES_PER_KEY - 1).collect()
}

/// What is left of a counter's name that is too long.
fn cut(name: &str) -> &str {
    let fits = |end: &usize| name.is_char_boundary(*end);
    let end = (0..=name.len().min(255)).rev().find(fits).unwrap_or(0);
    &name[..end]
}

fn lock(folder: &Path) -> io::Result<File> {
    let path = folder.join("lock");
    let open = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path);
    let file = open.map_err(|error| named("open the lock", &path, error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let message = format!(
                "cache {}: another wafd uses it; choose another folder, or stop that one",
                folder.display()
            );
            Err(io::Error::new(io::ErrorKind::AddrInUse, message))
        }
        Err(error) => Err(named("lock", &path, error.into())),
    }
}

fn named(what: &str, path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
}
