//! The index on disk: a file to which every change is appended. It is written anew when most of it is out of date.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::clock::Instant;
use super::health::is_at;
use super::item::{frame, Frames, Item, Items};
use super::location::{Freed, Location};
use super::number::Number;
use super::table::{Blobs, Slot, Table};
use super::volume::{Piece, Volume};
use crate::bytes::digest::Digest;
use crate::files::regular;

/// For people who look into the file. Frames show by themselves that they belong to an index.
const TITLE: &[u8] = b"wafcc store, format 2: index\n";
/// The most that one flipped bit can damage. A frame's head is small compared with it.
const FRAME: usize = 4096;
const LARGEST: u64 = 4 << 30;

pub struct Index {
    path: PathBuf,
    file: File,
    pub length: u64,
    /// The frames that are appended while the index is written anew.
    meanwhile: Option<Vec<u8>>,
    /// The store is at another place by now.
    is_retired: bool,
}

/// What was found on the disk.
pub struct Found {
    pub index: Index,
    pub table: Table,
    /// The volumes that hold a blob of the table.
    pub volumes: HashMap<Number, Arc<Volume>>,
    pub damaged: bool,
}

impl Index {
    /// Reads the index. If it cannot be used, it is begun anew, and the blobs of the old one are removed as leftovers.
    pub fn open(folder: &Path) -> io::Result<Found> {
        let path = folder.join("index");
        let bytes = read(&path)?;
        let rest = bytes.strip_prefix(TITLE).unwrap_or(&bytes);
        let mut frames = Frames::new(rest);
        let (table, volumes) = replay(&mut frames);
        let damaged = frames.damaged;
        let length = match frames.end {
            0 if rest.len() == bytes.len() => 0,
            end => bytes.len() - rest.len() + end,
        };
        if length == 0 && !bytes.is_empty() {
            // It is another file, so it is kept.
            fs::rename(&path, path.with_extension("foreign"))?;
        }
        let file = regular::append(&path)?;
        file.set_len(length as u64)?;
        drop(bytes);
        trim_heap();
        let mut index = Index {
            path,
            file,
            length: length as u64,
            meanwhile: None,
            is_retired: false,
        };
        if length == 0 {
            index.write(TITLE)?;
        }
        Ok(Found {
            index,
            table,
            volumes,
            damaged,
        })
    }

    /// When this has returned, killing the process does not lose it.
    pub fn append(&mut self, items: &[Item]) -> io::Result<()> {
        let frames = framed(items.iter().cloned());
        self.write(&frames)?;
        if let Some(meanwhile) = &mut self.meanwhile {
            meanwhile.extend(&frames);
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.is_retired {
            return Err(retired());
        }
        let written = self.file.write_all(bytes);
        match written {
            Ok(()) => self.length += bytes.len() as u64,
            // After an incomplete frame, the next reader would have to search.
            Err(_) => drop(self.file.set_len(self.length)),
        }
        written
    }

    /// Whether most of it is out of date, and it is not already being written anew.
    pub fn is_long(&self, table: &Table) -> bool {
        self.meanwhile.is_none() && self.length > 2 * table.index_size() + (1 << 20)
    }

    /// The first step of writing it anew, under the lock. It is quick, in memory.
    pub fn begin_rewrite(&mut self, table: &Table) -> NewIndex {
        self.meanwhile = Some(Vec::new());
        let mut bytes = TITLE.to_vec();
        bytes.extend(framed(table.items()));
        NewIndex {
            path: self.path.with_extension("new"),
            bytes,
        }
    }

    /// The last step, under the lock: adds the frames that came meanwhile, and replaces the old index.
    pub fn end_rewrite(&mut self, anew: io::Result<File>) -> io::Result<()> {
        let meanwhile = self.meanwhile.take().unwrap_or_default();
        let mut file = anew?;
        if self.is_retired {
            return Ok(());
        }
        file.write_all(&meanwhile)?;
        let length = file.metadata()?.len();
        fs::rename(self.path.with_extension("new"), &self.path)?;
        (self.file, self.length) = (file, length);
        Ok(())
    }

    /// Stops all writing, because the folder does not belong to the store any more.
    pub fn retire(&mut self) {
        self.is_retired = true;
    }

    /// Whether the path names the file that is open, and nothing of it was cut off.
    pub fn is_sound(&self) -> bool {
        let is_whole = |file: &File| file.metadata().is_ok_and(|status| status.len() >= self.length);
        is_at(&self.file, &self.path) && is_whole(&self.file)
    }

    pub fn is_being_written(&self) -> bool {
        self.meanwhile.is_some()
    }

    /// The file, to be synced without a lock.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

pub fn retired() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the store was removed or replaced")
}

/// An index that will replace the old one.
pub struct NewIndex {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl NewIndex {
    /// The second step, without any lock. The new index is on the disk before the old one is removed.
    pub fn write(self) -> io::Result<File> {
        drop(fs::remove_file(&self.path));
        let mut file = regular::append(&self.path)?;
        file.write_all(&self.bytes)?;
        file.sync_data()?;
        Ok(file)
    }
}

/// Returns the memory that reading took, which libc would keep: as much as the table itself.
fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it touches no memory that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Empty if the file is not there, or is not an index.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    regular::make_way(path);
    match regular::open(path) {
        Ok(mut file) if file.metadata()?.len() <= LARGEST => {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        }
        Ok(_) => Ok(Vec::new()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn framed(items: impl Iterator<Item = Item>) -> Vec<u8> {
    let (mut frames, mut payload) = (Vec::new(), Vec::new());
    for item in items {
        item.write(&mut payload);
        if payload.len() >= FRAME {
            frame(&payload, &mut frames);
            payload.clear();
        }
    }
    if !payload.is_empty() {
        frame(&payload, &mut frames);
    }
    frames
}

/// The state of the store after the whole index was read.
fn replay(frames: &mut Frames) -> (Table, HashMap<Number, Arc<Volume>>) {
    let mut replay = Replay::default();
    for payload in frames {
        Items(payload).for_each(|item| replay.apply(item));
    }
    replay.end()
}

#[derive(Default)]
struct Replay {
    table: Table,
    /// The slots to which they were added. A slot may hold another entry by now.
    entries: HashMap<u32, Slot>,
    blobs: HashMap<Number, Slot>,
    volumes: HashMap<Number, Arc<Volume>>,
    freed: Vec<Freed>,
}

impl Replay {
    fn apply(&mut self, item: Item) {
        match item {
            Item::Blob { digest, number, blocks } => self.add_blob(digest, number, Location::File { blocks }),
            Item::Piece {
                digest,
                number,
                volume,
                offset,
                length,
            } => {
                let volume = self
                    .volumes
                    .entry(volume)
                    .or_insert_with_key(|number| Arc::new(Volume::new(*number)));
                volume.claim(1);
                let volume = volume.clone();
                self.add_blob(digest, number, Location::Piece(Piece { volume, offset, length }));
            }
            Item::Entry { id, key, used, blobs } => self.add_entry(id, key, used, &blobs),
            Item::Drop { id } => self.remove_entry(id),
            Item::Use { id, used } => self.table.set_used(self.entry(id), used),
            Item::Count { name, added } => self.table.count(&name, added),
            Item::Zero => self.table.counters.clear(),
            Item::Clear => self.clear(),
        }
    }

    fn entry(&self, id: u32) -> Option<Slot> {
        let is_it = |slot: &Slot| self.table.entry(*slot).is_some_and(|entry| entry.id == id);
        self.entries.get(&id).copied().filter(is_it)
    }

    fn blob(&self, number: Number) -> Option<Slot> {
        let is_it = |slot: &Slot| {
            self.table
                .blob(*slot)
                .is_some_and(|blob| blob.number == number && !blob.lost)
        };
        self.blobs.get(&number).copied().filter(is_it)
    }

    fn add_blob(&mut self, digest: Digest, number: Number, location: Location) {
        let old = self.table.find_blob(&digest);
        if let Some(old) = old.and_then(|slot| self.table.blob(slot).map(|blob| (slot, blob.number))) {
            if old.1 == number {
                // It was moved, or is named a second time.
                self.table.move_blob(old.0, location, &mut self.freed);
                return;
            }
            // It was stored twice: the first one was lost.
            self.table.lose_blob(old.0, old.1, &mut self.freed);
        }
        self.blobs.insert(number, self.table.add_blob(digest, number, location));
    }

    fn add_entry(&mut self, id: u32, key: Digest, used: Instant, blobs: &[Number]) {
        self.remove_entry(id);
        let blobs: Option<Blobs> = blobs.iter().map(|number| self.blob(*number)).collect();
        if let Some(blobs) = blobs.filter(|blobs| !blobs.is_empty()) {
            let slot = self.table.add_entry(id, key, used, blobs);
            self.entries.insert(id, slot);
        }
    }

    fn remove_entry(&mut self, id: u32) {
        if let Some(slot) = self.entry(id) {
            self.table.remove_entry(slot, &mut self.freed);
        }
    }

    fn clear(&mut self) {
        let counters = std::mem::take(&mut self.table.counters);
        *self = Replay::default();
        self.table.counters = counters;
    }

    /// A blob that no entry needs was never acknowledged.
    fn end(mut self) -> (Table, HashMap<Number, Arc<Volume>>) {
        self.table.remove_idle(&mut self.freed);
        self.volumes.retain(|_, volume| volume.is_claimed());
        (self.table, self.volumes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::store::clock::Clock;
    use crate::cache::test_support::TestFolder;

    fn with_folder(test: impl Fn(&Path)) {
        test(&TestFolder::new().0);
    }

    fn entry(id: u32, number: u64, used: Instant) -> [Item; 2] {
        let (digest, number) = (Digest::of(&number.to_le_bytes()), Number(number));
        let entry = Item::Entry {
            id,
            key: Digest::of(b"key"),
            used,
            blobs: vec![number],
        };
        [
            Item::Blob {
                digest,
                number,
                blocks: 8,
            },
            entry,
        ]
    }

    fn ids(table: &Table) -> Vec<u32> {
        table
            .entries_of(&Digest::of(b"key"))
            .map(|(_, entry)| entry.id)
            .collect()
    }

    fn piece(number: u64, volume: u64, offset: u32) -> Item {
        Item::Piece {
            digest: Digest::of(&number.to_le_bytes()),
            number: Number(number),
            volume: Number(volume),
            offset,
            length: 10,
        }
    }

    #[test]
    fn the_last_item_about_a_blob_has_its_place() {
        with_folder(|folder| {
            let [_, first] = entry(1, 2, 0);
            let [_, second] = entry(2, 4, 0);
            let moved = [piece(2, 100, 0), first, piece(4, 100, 10), second, piece(2, 102, 30)];
            Index::open(folder).unwrap().index.append(&moved).unwrap();
            let found = Index::open(folder).unwrap();
            assert_eq!(ids(&found.table), [2, 1], "entries need it where it is now");
            let alive = |number| found.volumes.get(&Number(number)).map(|volume| volume.alive());
            assert_eq!((alive(100), alive(102), found.table.pieces), (Some(10), Some(10), 20));
            let more = [piece(4, 102, 40), Item::Drop { id: 1 }];
            Index::open(folder).unwrap().index.append(&more).unwrap();
            let found = Index::open(folder).unwrap();
            let volumes: Vec<_> = found.volumes.keys().copied().collect();
            assert_eq!((volumes, found.table.pieces), (vec![Number(102)], 10), "100 is empty");
        });
    }

    #[test]
    fn time_goes_on_after_an_index_from_the_future() {
        with_folder(|folder| {
            let future = 1 << 47;
            Index::open(folder).unwrap().index.append(&entry(1, 2, future)).unwrap();
            let table = Index::open(folder).unwrap().table;
            assert!(Clock::after(table.newest).now() > future);
        });
    }

    #[test]
    fn items_that_come_during_a_rewrite_are_in_the_new_index() {
        with_folder(|folder| {
            let mut found = Index::open(folder).unwrap();
            found.index.append(&entry(1, 2, 0)).unwrap();
            let table = Index::open(folder).unwrap().table;
            let anew = found.index.begin_rewrite(&table);
            assert!(!found.index.is_long(&Table::default()), "once at a time");
            found.index.append(&entry(2, 4, 0)).unwrap();
            found.index.end_rewrite(anew.write()).unwrap();
            found.index.append(&entry(3, 6, 0)).unwrap();
            let found = Index::open(folder).unwrap();
            assert_eq!((ids(&found.table), found.damaged), (vec![3, 2, 1], false));
        });
    }

    #[test]
    fn after_a_failed_rewrite_the_old_index_is_used() {
        with_folder(|folder| {
            let mut found = Index::open(folder).unwrap();
            drop(found.index.begin_rewrite(&found.table));
            found.index.append(&entry(1, 2, 0)).unwrap();
            assert!(found.index.end_rewrite(Err(io::ErrorKind::WriteZero.into())).is_err());
            found.index.append(&entry(2, 4, 0)).unwrap();
            assert_eq!(ids(&Index::open(folder).unwrap().table), [2, 1]);
        });
    }

    #[test]
    fn an_entry_with_an_unknown_blob_is_left_out() {
        with_folder(|folder| {
            let [_, entry] = entry(1, 2, 0);
            Index::open(folder).unwrap().index.append(&[entry]).unwrap();
            assert_eq!(Index::open(folder).unwrap().table.counts(), (0, 0));
        });
    }

    #[test]
    fn a_rewrite_makes_an_outdated_index_short() {
        with_folder(|folder| {
            let mut found = Index::open(folder).unwrap();
            let counted = Item::Count {
                name: "hit".into(),
                added: 1,
            };
            while !found.index.is_long(&found.table) {
                found.index.append(&vec![counted.clone(); 1000]).unwrap();
            }
            let table = Index::open(folder).unwrap().table;
            let anew = found.index.begin_rewrite(&table);
            found.index.end_rewrite(anew.write()).unwrap();
            assert!(found.index.length < 100);
            assert_eq!(Index::open(folder).unwrap().table.counters, table.counters);
        });
    }
}
