//! The cache on disk: blobs by their digest, and entries, which are blobs too, by their key.
//!
//! ```text
//! find ─► table (memory) ─► read ─► volume or file ─► the digest is right ─► bytes
//! put_blob ─► volume or file ─► table            put_entry ─► index (disk) ─► table
//! ```
//!
//! It does not know what an entry contains. One process writes, with any number of threads. A change of the table holds the
//! index's lock, and the table's own lock only for the change in memory, so that a lookup never waits for a disk.
//! `docs/store-format.md` is the format; `docs/design.md` has the reasons for it.

mod blob;
mod clock;
mod files;
mod health;
mod index;
mod inside;
pub mod item;
mod keeper;
mod location;
mod moving;
mod number;
mod old_format;
mod pack;
mod put;
mod slots;
mod table;
mod volume;
mod volumes;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use rustix::fs::{flock, FlockOperation};

use crate::bytes::digest::Digest;
use clock::Clock;
use files::Files;
use health::Health;
use index::Index;
use inside::Inside;
use item::Item;
use keeper::{Bell, Keeper};
use number::Numbers;
use table::{Slot, Table};
use volumes::Volumes;

use crate::files::regular;

pub use blob::Blob;
pub use pack::{unpack, Compression, LARGEST};
pub use put::{Draft, Parcel};
pub use table::Share;

/// Another format has another folder beside this one.
pub const FOLDER: &str = "store-2";
const LOCK: &str = "lock";
const BLOBS: &str = "blobs";
const VOLUMES: &str = "volumes";
/// How long a blob is kept without an entry that needs it.
const PATIENCE: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The disk space, in bytes.
    pub max_size: u64,
    pub compression: Compression,
}

/// When it is dropped, it writes down what it kept in memory.
pub struct Store {
    /// The folder in which the store's folder is.
    cache: PathBuf,
    /// The opened store. It is replaced when the path names another folder.
    open: RwLock<Open>,
    health: Health,
}

struct Open {
    inside: Arc<Inside>,
    keeper: Keeper,
}

/// An entry that was found. It may be gone before it is read.
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
    /// The disk space of the store.
    pub size: u64,
    pub max_size: u64,
    /// How many blobs and pieces of the index were found damaged since the store was opened.
    pub damaged: u64,
}

impl Open {
    /// Opens the store with a lock that is already held, if it is this folder's.
    fn at(cache: &Path, settings: Settings, held: Option<&Arc<File>>) -> io::Result<Open> {
        let folder = cache.join(FOLDER);
        DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&folder)
            .map_err(|e| named("make the folder", &folder, e))?;
        let held = held.filter(|held| health::is_at(held, &folder.join(LOCK)));
        let lock = held.map_or_else(|| lock(&folder).map(Arc::new), |held| Ok(held.clone()))?;
        let found = Index::open(&folder).map_err(|error| named("open the index of", &folder, error))?;
        let files = Files::open(&folder.join(BLOBS)).map_err(|error| named("open the blobs of", &folder, error))?;
        let volumes = Volumes::open(&folder.join(VOLUMES), found.volumes);
        let volumes = volumes.map_err(|error| named("open the volumes of", &folder, error))?;
        let inside = Arc::new(Inside {
            cache: cache.to_owned(),
            clock: Clock::after(found.table.newest),
            index: Mutex::new(found.index),
            table: RwLock::new(found.table),
            numbers: Numbers::new()?,
            files,
            volumes,
            compression: settings.compression,
            is_plain: AtomicBool::new(false),
            max_size: AtomicU64::new(settings.max_size),
            damaged: AtomicU64::new(u64::from(found.damaged)),
            stopped: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            bell: Bell::default(),
            lock,
        });
        let keeper = Keeper::start(inside.clone())?;
        Ok(Open { inside, keeper })
    }
}

impl Store {
    /// Opens the store, and makes its folder if needed. Fails if another process has it open.
    pub fn open(cache: &Path, settings: Settings) -> io::Result<Store> {
        Ok(Store {
            cache: cache.to_owned(),
            open: RwLock::new(Open::at(cache, settings, None)?),
            health: Health::default(),
        })
    }

    fn inside(&self) -> Arc<Inside> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.inside.clone()
    }

    /// The entries of a key, the last used first. Never reads the disk.
    pub fn find(&self, key: &Digest) -> Vec<EntryRef> {
        let inside = self.inside();
        let table = inside.table();
        by_use(&table, key).collect()
    }

    /// An entry's bytes. A damaged entry is removed.
    pub fn read(&self, entry: &EntryRef) -> Option<Vec<u8>> {
        let inside = self.inside();
        let place = {
            let table = inside.table();
            let body = table.find_entry(entry)?.body();
            inside.place_of(&table, body)
        };
        let bytes = place.and_then(|place| inside.content(place)).and_then(Blob::into_bytes);
        if bytes.is_none() && inside.is_lost(entry) {
            self.remove_entry(entry);
        }
        bytes
    }

    /// Notes that this entry was used.
    pub fn touch(&self, entry: &EntryRef) {
        let inside = self.inside();
        let now = inside.clock.now();
        let table = inside.table();
        if let Some(entry) = table.find_entry(entry) {
            entry.touch(now);
        }
    }

    pub fn has_blob(&self, digest: &Digest) -> bool {
        let inside = self.inside();
        let table = inside.table();
        table.find_blob(digest).is_some()
    }

    /// Keeps a blob for an hour without an entry that needs it, as if it were just stored. Returns whether it is there.
    pub fn hold_blob(&self, digest: &Digest) -> bool {
        let inside = self.inside();
        inside.pin(digest)
    }

    /// The disk space of a blob, in bytes. Never reads the disk.
    pub fn size_of(&self, digest: &Digest) -> Option<u64> {
        let inside = self.inside();
        let table = inside.table();
        let blob = table.find_blob(digest).and_then(|slot| table.blob(slot));
        blob.map(|blob| blob.location.size())
    }

    /// The blobs of an entry: its bytes, then the blobs that it needs. Never reads the disk.
    pub fn blobs_of(&self, entry: &EntryRef) -> Option<Vec<Digest>> {
        let inside = self.inside();
        let table = inside.table();
        let blobs = table.find_entry(entry)?.blobs.iter();
        blobs.map(|slot| Some(table.blob(*slot)?.digest)).collect()
    }

    /// A blob's content, completely checked against its digest. `None` if it is not there, or was damaged.
    pub fn open_blob(&self, digest: &Digest) -> Option<Blob> {
        let inside = self.inside();
        let place = {
            let table = inside.table();
            table.find_blob(digest).and_then(|slot| inside.place_of(&table, slot))
        };
        inside.content(place?)
    }

    pub fn remove_entry(&self, entry: &EntryRef) {
        let inside = self.inside();
        inside.remove(&[*entry]);
    }

    /// Removes all entries and blobs, and keeps the counters. It takes as long as removing the files; other requests go on
    /// meanwhile.
    pub fn clear(&self) -> io::Result<()> {
        let inside = self.inside();
        let mut index = inside.index();
        index.append(&[Item::Clear])?;
        let mut table = inside.change();
        let cleared = table.cleared();
        let old = std::mem::replace(&mut *table, cleared);
        drop((table, index));
        let mut freed = Vec::new();
        let there = old.blobs().filter(|(_, blob)| !blob.lost);
        there.for_each(|(_, blob)| blob.location.leave(blob.number, &mut freed));
        inside.free(&freed);
        inside.tidy_index()
    }

    /// Removes the entries that were not used for this time, and returns how many.
    pub fn evict_older_than(&self, age: Duration) -> usize {
        let inside = self.inside();
        let now = inside.clock.now();
        let oldest = now.saturating_sub(clock::milliseconds(age));
        inside.evict(oldest, |_, _| true, || u64::MAX)
    }

    /// Sets the limit. What exceeds it is evicted in the background.
    pub fn set_max_size(&self, max_size: u64) {
        let inside = self.inside();
        inside.max_size.store(max_size, Ordering::Relaxed);
        inside.wake_if_full(&inside.index());
    }

    /// Limits the entries that need the blob with these bytes to this size together. Those that were not used longest are
    /// evicted in the background. Their present size is computed now.
    pub fn set_share(&self, mark: &Digest, most: u64) {
        let inside = self.inside();
        let index = inside.index();
        inside.change().share(*mark, most);
        inside.wake_if_full(&index);
    }

    pub fn share_of(&self, mark: &Digest) -> Option<Share> {
        let inside = self.inside();
        let table = inside.table();
        table.share_of(mark)
    }

    /// From now on, blobs are stored unpacked and as files, so that they can be linked.
    pub fn set_plain(&self, is_plain: bool) {
        let inside = self.inside();
        inside.is_plain.store(is_plain, Ordering::Relaxed);
    }

    /// Adds to counters. The first addition creates a counter. They survive as entries do.
    pub fn count(&self, added: &[(&str, u64)]) -> io::Result<()> {
        let inside = self.inside();
        let item = |(name, added): &(&str, u64)| Item::Count {
            name: cut(name).to_owned(),
            added: *added,
        };
        let mut index = inside.index();
        index.append(&added.iter().map(item).collect::<Vec<_>>())?;
        let mut table = inside.change();
        added.iter().for_each(|(name, added)| table.count(cut(name), *added));
        Ok(())
    }

    pub fn counters(&self) -> BTreeMap<String, u64> {
        let inside = self.inside();
        let table = inside.table();
        table.counters.clone()
    }

    pub fn zero_counters(&self) -> io::Result<()> {
        let inside = self.inside();
        let mut index = inside.index();
        index.append(&[Item::Zero])?;
        inside.change().counters.clear();
        Ok(())
    }

    pub fn usage(&self) -> Usage {
        let inside = self.inside();
        inside.usage(inside.size())
    }

    /// The same without the index's own size, and without waiting for a thread that writes to the disk.
    pub fn glance(&self) -> Usage {
        let inside = self.inside();
        let files = inside.table().files;
        inside.usage(files + inside.volumes.held())
    }
}

impl EntryRef {
    fn of(slot: Slot, entry: &table::Entry) -> EntryRef {
        let (key, id) = (entry.key, entry.id);
        EntryRef { key, slot, id }
    }

    fn is(&self, entry: &table::Entry) -> bool {
        entry.id == self.id && entry.key == self.key
    }
}

/// The entries of a key, the last used first.
fn by_use(table: &Table, key: &Digest) -> impl Iterator<Item = EntryRef> {
    let found = table.entries_of(key);
    let found = found.map(|(slot, entry)| (Reverse(entry.used()), EntryRef::of(slot, entry)));
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(|(used, _)| *used);
    found.into_iter().map(|(_, entry)| entry)
}

/// A counter's name, cut to the longest possible.
fn cut(name: &str) -> &str {
    let fits = |end: &usize| name.is_char_boundary(*end);
    let end = (0..=name.len().min(255)).rev().find(fits).unwrap_or(0);
    &name[..end]
}

fn lock(folder: &Path) -> io::Result<File> {
    let path = folder.join(LOCK);
    regular::make_way(&path);
    let file = regular::open_lock(&path).map_err(|error| named("open the lock", &path, error))?;
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
