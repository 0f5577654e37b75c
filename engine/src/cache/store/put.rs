//! Storing blobs, and entries that need them.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::Ordering;

use super::blob::clone;
use super::files::holding;
use super::index::Index;
use super::inside::{Inside, NewEntry};
use super::item::Item;
use super::location::Location;
use super::number::Number;
use super::pack::{self, Compression};
use super::table::{Blobs, Table};
use super::{by_use, EntryRef, Store};
use crate::bytes::digest::Digest;

/// More results of one command than this are of no use.
const ENTRIES_PER_KEY: usize = 16;
const BLOBS_PER_ENTRY: usize = 4096;

/// About how many bytes are written at once.
const BATCH_BYTES: usize = 1 << 20;

/// Bytes to be stored, and their digest.
#[derive(Debug, Clone, Copy)]
pub struct Parcel<'a> {
    pub digest: Digest,
    bytes: &'a [u8],
    wrapping: Wrapping<'a>,
}

/// How a parcel's bytes are stored.
#[derive(Debug, Clone, Copy)]
enum Wrapping<'a> {
    /// Packed, if that pays.
    Fitting,
    /// As they are.
    None,
    /// Already packed by another machine, and checked.
    Done(&'a [u8]),
}

impl<'a> Parcel<'a> {
    pub fn of(bytes: &'a [u8]) -> Parcel<'a> {
        Parcel {
            digest: Digest::of(bytes),
            bytes,
            wrapping: Wrapping::Fitting,
        }
    }

    /// The same, to be stored unpacked.
    pub fn bare(self) -> Parcel<'a> {
        let wrapping = Wrapping::None;
        Parcel { wrapping, ..self }
    }

    /// The same, with its packed form. The caller has unpacked it, and these are the bytes.
    pub fn packed(self, packed: &'a [u8]) -> Parcel<'a> {
        let wrapping = Wrapping::Done(packed);
        Parcel { wrapping, ..self }
    }

    /// The bytes that are stored, and whether they are packed.
    fn stored(&self, compression: Compression) -> (Cow<'a, [u8]>, bool) {
        match self.wrapping {
            Wrapping::Done(packed) => (Cow::Borrowed(packed), true),
            Wrapping::None => (Cow::Borrowed(self.bytes), false),
            Wrapping::Fitting => match compression.pack(self.bytes) {
                Some(packed) => (Cow::Owned(packed), true),
                None => (Cow::Borrowed(self.bytes), false),
            },
        }
    }
}

/// An entry to be stored, with some of the blobs that it needs.
#[derive(Debug)]
pub struct Draft<'a> {
    pub key: Digest,
    pub bytes: &'a [u8],
    pub needs: Vec<Digest>,
    pub parcels: Vec<Parcel<'a>>,
}

/// The decision about a draft.
enum Plan {
    /// It is there already.
    Same(EntryRef),
    /// It replaces these entries.
    New(NewEntry, Vec<EntryRef>),
}

/// A blob that is on the disk, and not in the table yet.
type Fresh = (Digest, Number, Location);

impl Store {
    /// Stores bytes, unless they are already there. The blob is kept for an hour without an entry that needs it.
    pub fn put_blob(&self, bytes: &[u8]) -> io::Result<Digest> {
        self.heal();
        self.inside().put_blob(bytes)
    }

    /// The same for several. The small ones are written at once.
    pub fn put_blobs(&self, parcels: &[Parcel]) -> io::Result<()> {
        self.heal();
        self.inside().put_blobs(parcels)
    }

    /// Stores all that is left to read in a file. A copy is stored, and the digest is that of the copy.
    pub fn put_file(&self, file: &File) -> io::Result<Digest> {
        self.heal();
        self.inside().put_file(file)
    }

    /// Stores an entry, which from then on survives the death of this process. If a blob that it needs is not there, this
    /// fails and names the blob.
    pub fn put_entry(&self, key: &Digest, bytes: &[u8], needs: &[Digest]) -> io::Result<EntryRef> {
        self.put_entry_with(key, bytes, needs, Vec::new())
    }

    /// The same, with some of the blobs that it needs.
    pub fn put_entry_with<'a>(
        &self,
        key: &Digest,
        bytes: &'a [u8],
        needs: &[Digest],
        parcels: Vec<Parcel<'a>>,
    ) -> io::Result<EntryRef> {
        let draft = Draft {
            key: *key,
            bytes,
            needs: needs.to_vec(),
            parcels,
        };
        self.heal();
        let mut done = self.inside().put_drafts(ENTRIES_PER_KEY, &[draft]);
        done.pop().unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
    }

    /// The same for several, which together take little longer than one. Each replaces all other entries of its key: no
    /// lookup ever finds none, or two. Returns the result for each, in their order.
    pub fn put_only_entries(&self, mut drafts: &[Draft]) -> Vec<io::Result<EntryRef>> {
        self.heal();
        let inside = self.inside();
        let mut done = Vec::with_capacity(drafts.len());
        while !drafts.is_empty() {
            // An entry that is replaced at once must be there first.
            let mut keys = HashSet::new();
            let count = drafts.iter().take_while(|draft| keys.insert(draft.key)).count();
            done.extend(inside.put_drafts(1, &drafts[..count]));
            drafts = &drafts[count..];
        }
        done
    }
}

impl Inside {
    fn put_blob(&self, bytes: &[u8]) -> io::Result<Digest> {
        let parcel = Parcel::of(bytes);
        self.put_blobs(&[parcel])?;
        Ok(parcel.digest)
    }

    fn put_blobs(&self, parcels: &[Parcel]) -> io::Result<()> {
        let (fresh, written) = self.write(parcels);
        if !fresh.is_empty() {
            self.adopt(&self.index(), fresh);
        }
        written
    }

    /// Writes the blobs that are not there yet, as far as possible.
    fn write(&self, parcels: &[Parcel]) -> (Vec<Fresh>, io::Result<()>) {
        let mut fresh = Vec::new();
        let written = self.write_to(parcels, &mut fresh);
        (fresh, written)
    }

    fn write_to(&self, parcels: &[Parcel], fresh: &mut Vec<Fresh>) -> io::Result<()> {
        self.require_place()?;
        let is_plain = self.is_plain.load(Ordering::Relaxed);
        let (compression, largest) = match is_plain {
            // A blob in a volume cannot be linked.
            true => (Compression::Off, 0),
            false => (self.compression, self.limits().piece as usize),
        };
        let (mut batch, mut size) = (Vec::new(), 0);
        for parcel in parcels.iter().filter(|parcel| !self.pin(&parcel.digest)) {
            let (stored, is_packed) = parcel.stored(compression);
            let number = self.numbers.draw(is_packed);
            self.check_room(stored.len() as u64)?;
            if is_plain || stored.len() > largest {
                let blocks = self.files.write(number, holding(&stored))?.blocks;
                fresh.push((parcel.digest, number, Location::File { blocks }));
                continue;
            }
            size += stored.len();
            batch.push((parcel.digest, number, stored));
            if size > BATCH_BYTES {
                self.write_batch(&batch, fresh)?;
                (batch, size) = (Vec::new(), 0);
            }
        }
        self.write_batch(&batch, fresh)
    }

    fn write_batch(&self, batch: &[(Digest, Number, Cow<[u8]>)], fresh: &mut Vec<Fresh>) -> io::Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let stored: Vec<&[u8]> = batch.iter().map(|(_, _, stored)| &stored[..]).collect();
        let pieces = self.volumes.append(&stored, self.limits(), &self.numbers)?;
        let pieces = batch.iter().zip(pieces);
        fresh.extend(pieces.map(|((digest, number, _), piece)| (*digest, *number, Location::Piece(piece))));
        Ok(())
    }

    fn put_file(&self, mut file: &File) -> io::Result<Digest> {
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
        self.require_place()?;
        self.check_room(length)?;
        let number = self.numbers.draw(false);
        let written = self.files.write(number, |mut copy| match clone(file, copy) {
            true => Ok(()),
            false => io::copy(&mut file, &mut copy).map(drop),
        })?;
        let rewound = io::Seek::rewind(&mut &written.file);
        let digest = rewound.and_then(|()| Digest::of_file(&written.file));
        let digest = digest.inspect_err(|_| self.files.remove(number))?;
        let blocks = written.blocks;
        self.adopt(&self.index(), vec![(digest, number, Location::File { blocks })]);
        Ok(digest)
    }

    fn check_room(&self, length: u64) -> io::Result<()> {
        let max_size = self.max_size();
        if length <= max_size / 2 {
            return Ok(());
        }
        let message =
            format!("store a blob of {length} bytes in a cache of {max_size}: it is too large; raise the cache's size");
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }

    /// Another thread may have stored the same meanwhile.
    fn adopt(&self, index: &Index, fresh: Vec<Fresh>) {
        let mut unneeded = Vec::new();
        let mut table = self.change();
        for (digest, number, location) in fresh {
            let slot = match table.find_blob(&digest) {
                Some(slot) => {
                    unneeded.push((number, location));
                    slot
                }
                None => table.add_blob(digest, number, location),
            };
            table.pin(slot);
        }
        drop(table);
        unneeded
            .iter()
            .for_each(|(number, location)| self.discard(*number, location));
        self.wake_if_full(index);
    }

    /// The drafts have different keys. If they cannot all be written together, each is tried alone.
    fn put_drafts(&self, most: usize, drafts: &[Draft]) -> Vec<io::Result<EntryRef>> {
        let bodies: Vec<_> = drafts.iter().map(|draft| Parcel::of(draft.bytes)).collect();
        let mut parcels: Vec<_> = drafts.iter().flat_map(|draft| draft.parcels.iter().copied()).collect();
        parcels.extend(&bodies);
        parcels.dedup_by_key(|parcel| parcel.digest);
        let (fresh, written) = self.write(&parcels);
        let mut index = self.index();
        self.adopt(&index, fresh);
        if let Err(error) = written {
            drop(index);
            return match drafts {
                [_] => vec![Err(error)],
                all => all.chunks(1).flat_map(|draft| self.put_drafts(most, draft)).collect(),
            };
        }
        let (plans, items) = self.plan(most, drafts, &bodies);
        let appended = index.append(&items);
        let done = plans.into_iter().map(|plan| match (plan?, &appended) {
            (Plan::Same(entry), _) => Ok(entry),
            (Plan::New(..), Err(error)) => Err(io::Error::new(error.kind(), error.to_string())),
            (Plan::New(entry, excess), Ok(())) => Ok(self.add(entry, &excess)),
        });
        let done = done.collect();
        self.wake_if_full(&index);
        done
    }

    /// Decides about each draft whose blobs are there, and what must be written to the index.
    fn plan(&self, most: usize, drafts: &[Draft], bodies: &[Parcel]) -> (Vec<io::Result<Plan>>, Vec<Item>) {
        let table = self.table();
        let (mut items, mut in_index, mut id) = (Vec::new(), HashSet::new(), table.next_id);
        let plan = |(draft, body): (&Draft, &Parcel)| {
            let blobs = find_all(&table, &body.digest, &draft.needs)?;
            let key = draft.key;
            let same = table.entries_of(&key).find(|(_, entry)| entry.blobs == blobs);
            if let Some((slot, entry)) = same {
                table.unpin(&blobs);
                entry.touch(self.clock.now());
                return Ok(Plan::Same(EntryRef::of(slot, entry)));
            }
            let used = self.clock.now();
            let entry = NewEntry { id, key, used, blobs };
            let excess: Vec<_> = by_use(&table, &key).skip(most - 1).collect();
            items.extend(entry.items(&table, &excess, &mut in_index));
            id = id.wrapping_add(1);
            Ok(Plan::New(entry, excess))
        };
        let plans = drafts.iter().zip(bodies).map(plan).collect();
        (plans, items)
    }
}

/// The blobs of an entry, its own bytes first, each once.
fn find_all(table: &Table, body: &Digest, needs: &[Digest]) -> io::Result<Blobs> {
    let count = needs.len();
    if count >= BLOBS_PER_ENTRY {
        let message = format!("store an entry: it needs {count} blobs; {BLOBS_PER_ENTRY} are too many");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let mut blobs = Blobs::new();
    for digest in std::iter::once(body).chain(needs) {
        let message = || format!("store an entry: there is no blob {digest}");
        let found = table.find_blob(digest);
        let slot = found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, message()))?;
        if !blobs.contains(&slot) {
            blobs.push(slot);
        }
    }
    Ok(blobs)
}
