//! Storing blobs, and entries that need them.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::Ordering;

use super::blob::clone;
use super::files::holding;
use super::inside::NewEntry;
use super::number::Number;
use super::pack;
use super::spot::Spot;
use super::table::{Blobs, Table};
use super::{by_use, EntryRef, Store};
use crate::cache::digest::Digest;

/// More results of one command than that are of no use.
const ENTRIES_PER_KEY: usize = 16;
const BLOBS_PER_ENTRY: usize = 4096;

/// So many bytes are written at once, or a little more.
const LOT: usize = 1 << 20;

/// Bytes that are to be stored, and their digest.
#[derive(Debug, Clone, Copy)]
pub struct Parcel<'a> {
    pub digest: Digest,
    bytes: &'a [u8],
}

impl Parcel<'_> {
    pub fn of(bytes: &[u8]) -> Parcel<'_> {
        let digest = Digest::of(bytes);
        Parcel { digest, bytes }
    }
}

impl Store {
    /// Stores bytes; what is there already is not stored twice. For an hour it waits for an entry that needs it.
    pub fn put_blob(&self, bytes: &[u8]) -> io::Result<Digest> {
        let parcel = Parcel::of(bytes);
        self.put_blobs(&[parcel])?;
        Ok(parcel.digest)
    }

    /// The same for several, of which the small ones are written at once.
    pub fn put_blobs(&self, parcels: &[Parcel]) -> io::Result<()> {
        let is_plain = self.inside.is_plain.load(Ordering::Relaxed);
        let largest = match is_plain {
            // What is in a volume cannot be linked.
            true => 0,
            false => self.inside.limits().piece as usize,
        };
        let (mut lot, mut size) = (Vec::new(), 0);
        for parcel in parcels.iter().filter(|parcel| !self.inside.pin(&parcel.digest)) {
            let packed = match is_plain {
                true => None,
                false => self.inside.compression.pack(parcel.bytes),
            };
            let number = self.inside.numbers.draw(packed.is_some());
            let stored = packed.map_or(Cow::Borrowed(parcel.bytes), Cow::Owned);
            self.check_room(stored.len() as u64)?;
            if is_plain || stored.len() > largest {
                self.put_alone(parcel.digest, number, &stored)?;
                continue;
            }
            size += stored.len();
            lot.push((parcel.digest, number, stored));
            if size > LOT {
                self.put_lot(&lot)?;
                (lot, size) = (Vec::new(), 0);
            }
        }
        self.put_lot(&lot)
    }

    fn put_alone(&self, digest: Digest, number: Number, stored: &[u8]) -> io::Result<()> {
        let blocks = self.inside.files.write(number, holding(stored))?.blocks;
        self.adopt([(digest, number, Spot::File { blocks })]);
        Ok(())
    }

    fn put_lot(&self, lot: &[(Digest, Number, Cow<[u8]>)]) -> io::Result<()> {
        if lot.is_empty() {
            return Ok(());
        }
        let stored: Vec<&[u8]> = lot.iter().map(|(_, _, stored)| &stored[..]).collect();
        let inside = &self.inside;
        let pieces = inside.volumes.append(&stored, inside.limits(), &inside.numbers)?;
        let pieces = lot.iter().zip(pieces);
        self.adopt(pieces.map(|((digest, number, _), piece)| (*digest, *number, Spot::Piece(piece))));
        Ok(())
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
        let number = self.inside.numbers.draw(false);
        let written = self.inside.files.write(number, |mut copy| match clone(file, copy) {
            true => Ok(()),
            false => io::copy(&mut file, &mut copy).map(drop),
        })?;
        let rewound = io::Seek::rewind(&mut &written.file);
        let digest = rewound.and_then(|()| Digest::of_file(&written.file));
        let digest = digest.inspect_err(|_| self.inside.files.remove(number))?;
        let blocks = written.blocks;
        self.adopt([(digest, number, Spot::File { blocks })]);
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
    fn adopt(&self, fresh: impl IntoIterator<Item = (Digest, Number, Spot)>) {
        let mut past = Vec::new();
        let index = self.inside.index();
        let mut table = self.inside.change();
        for (digest, number, spot) in fresh {
            let slot = match table.find_blob(&digest) {
                Some(slot) => {
                    past.push((number, spot));
                    slot
                }
                None => table.add_blob(digest, number, spot),
            };
            table.pin(slot);
        }
        drop((table, index));
        past.iter()
            .for_each(|(number, spot)| self.inside.forsake(*number, spot));
        self.wake_if_full();
    }

    /// Stores an entry, which from then on survives the death of this process. All blobs that it needs are there, or this
    /// fails and names the one that is not.
    pub fn put_entry(&self, key: &Digest, bytes: &[u8], needs: &[Digest]) -> io::Result<EntryRef> {
        self.put_entry_with(key, bytes, needs, Vec::new())
    }

    /// The same, with some of the blobs that it needs.
    pub fn put_entry_with<'a>(
        &self,
        key: &Digest,
        bytes: &'a [u8],
        needs: &[Digest],
        mut parcels: Vec<Parcel<'a>>,
    ) -> io::Result<EntryRef> {
        let body = Parcel::of(bytes);
        parcels.push(body);
        self.put_blobs(&parcels)?;
        let body = body.digest;
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

/// What must go for one more of this key.
fn excess(table: &Table, key: &Digest) -> Vec<EntryRef> {
    by_use(table, key).skip(ENTRIES_PER_KEY - 1).collect()
}
