//! The content of the store, in memory: the entries of each key, and the blobs that each entry needs.
//!
//! It knows nothing of the disk except the place of each blob. Entries and blobs are in slots, which take a quarter of the
//! memory of maps that own their keys.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hashbrown::HashTable;
use smallvec::SmallVec;

use super::clock;
use super::item::Item;
use super::location::{Freed, Location};
use super::number::Number;
pub use super::slots::Slot;
use super::slots::Slots;
use super::EntryRef;
use crate::bytes::digest::Digest;

const NONE: Slot = Slot::MAX;

/// The blob with the entry's bytes, followed by those that it needs. Most entries have two or three.
pub type Blobs = SmallVec<[Slot; 4]>;

pub struct Entry {
    pub key: Digest,
    /// Twice the time of the last use, plus one if the index does not know it yet.
    used: AtomicU64,
    pub blobs: Blobs,
    pub id: u32,
    /// The next entry of the same key.
    next: Slot,
}

pub struct Blob {
    pub digest: Digest,
    pub number: Number,
    pub location: Location,
    /// How many entries need the blob.
    pub entries: u32,
    /// It is damaged or gone.
    pub lost: bool,
}

#[derive(Default)]
pub struct Table {
    entries: Slots<Entry>,
    blobs: Slots<Blob>,
    by_key: HashTable<Slot>,
    by_digest: HashTable<Slot>,
    /// Blobs that were just stored, or asked for, so that an entry can name them.
    pins: Mutex<HashMap<Slot, Instant>>,
    pub counters: BTreeMap<String, u64>,
    /// The disk space of blobs that are files.
    pub files: u64,
    /// The bytes that are alive in volumes.
    pub pieces: u64,
    /// The limits of entries that need one of these blobs.
    shares: HashMap<Digest, Share>,
    /// How many times blobs are needed.
    needs: usize,
    pub next_id: u32,
    pub newest: clock::Instant,
}

/// The limit of a group of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The disk space of all blobs of each entry. A blob that two entries need counts twice.
    pub held: u64,
    pub most: u64,
}

impl Share {
    pub fn is_full(&self) -> bool {
        self.held > self.most
    }
}

impl Entry {
    pub fn used(&self) -> clock::Instant {
        self.used.load(Ordering::Relaxed) >> 1
    }

    pub fn touch(&self, now: clock::Instant) {
        self.used.store(now << 1 | 1, Ordering::Relaxed);
    }

    /// The time of the last use, if the index does not know it yet. Afterwards it counts as known.
    pub fn take_unrecorded_use(&self) -> Option<clock::Instant> {
        match self.used.load(Ordering::Relaxed) & 1 {
            1 => Some(self.used.fetch_and(!1, Ordering::Relaxed) >> 1),
            _ => None,
        }
    }

    pub fn body(&self) -> Slot {
        self.blobs[0]
    }
}

/// An entry that needs these blobs comes or goes.
fn charge(shares: &mut HashMap<Digest, Share>, all: &Slots<Blob>, blobs: &Blobs, by: fn(u64, u64) -> u64) {
    let found = || blobs.iter().filter_map(|slot| all.get(*slot));
    let size: u64 = found().map(|blob| blob.location.size()).sum();
    for blob in found() {
        if let Some(share) = shares.get_mut(&blob.digest) {
            share.held = by(share.held, size);
        }
    }
}

/// Digests need no further hashing.
fn hash_of(digest: &Digest) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = digest.0;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

impl Table {
    pub fn entry(&self, slot: Slot) -> Option<&Entry> {
        self.entries.get(slot)
    }

    /// The entry, if it is still there.
    pub fn find_entry(&self, entry: &EntryRef) -> Option<&Entry> {
        self.entry(entry.slot).filter(|found| entry.is(found))
    }

    pub fn blob(&self, slot: Slot) -> Option<&Blob> {
        self.blobs.get(slot)
    }

    pub fn entries(&self) -> impl Iterator<Item = (Slot, &Entry)> {
        self.entries.iter()
    }

    pub fn blobs(&self) -> impl Iterator<Item = (Slot, &Blob)> {
        self.blobs.iter()
    }

    pub fn entries_of<'a>(&'a self, key: &'a Digest) -> impl Iterator<Item = (Slot, &'a Entry)> {
        let first = self.by_key.find(hash_of(key), |slot| self.has_key(*slot, key)).copied();
        std::iter::successors(first, |slot| self.entry(*slot).map(|entry| entry.next))
            .map_while(|slot| Some((slot, self.entry(slot)?)))
    }

    fn has_key(&self, slot: Slot, key: &Digest) -> bool {
        self.entry(slot).is_some_and(|entry| entry.key == *key)
    }

    pub fn find_blob(&self, digest: &Digest) -> Option<Slot> {
        let is_it = |slot: &Slot| self.blob(*slot).is_some_and(|blob| blob.digest == *digest);
        self.by_digest.find(hash_of(digest), is_it).copied()
    }

    /// Keeps a blob for a while, even if no entry needs it.
    pub fn pin(&self, slot: Slot) {
        self.pins().insert(slot, Instant::now());
    }

    pub fn unpin(&self, slots: &[Slot]) {
        let mut pins = self.pins();
        for slot in slots {
            pins.remove(slot);
        }
    }

    fn pins(&self) -> std::sync::MutexGuard<'_, HashMap<Slot, Instant>> {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add_blob(&mut self, digest: Digest, number: Number, location: Location) -> Slot {
        self.enter(&location);
        let slot = self.blobs.add(Blob {
            digest,
            number,
            location,
            entries: 0,
            lost: false,
        });
        let blobs = &self.blobs;
        let rehash = |slot: &Slot| blobs.get(*slot).map_or(0, |blob| hash_of(&blob.digest));
        self.by_digest.insert_unique(hash_of(&digest), slot, rehash);
        slot
    }

    /// All of `blobs` must be there.
    pub fn add_entry(&mut self, id: u32, key: Digest, used: clock::Instant, blobs: Blobs) -> Slot {
        for slot in &blobs {
            if let Some(blob) = self.blobs.get_mut(*slot) {
                blob.entries += 1;
            }
        }
        self.needs += blobs.len();
        self.charge(&blobs, u64::wrapping_add);
        self.newest = self.newest.max(used);
        self.next_id = self.next_id.max(id.wrapping_add(1));
        let slot = self.entries.add(Entry {
            key,
            used: AtomicU64::new(used << 1),
            blobs,
            id,
            next: NONE,
        });
        self.put_first(slot, key);
        slot
    }

    fn put_first(&mut self, slot: Slot, key: Digest) {
        let entries = &self.entries;
        let has_key = |slot: &Slot| entries.get(*slot).is_some_and(|entry| entry.key == key);
        let rehash = |slot: &Slot| entries.get(*slot).map_or(0, |entry| hash_of(&entry.key));
        let next = match self.by_key.find_mut(hash_of(&key), has_key) {
            Some(first) => std::mem::replace(first, slot),
            None => {
                self.by_key.insert_unique(hash_of(&key), slot, rehash);
                NONE
            }
        };
        if let Some(entry) = self.entries.get_mut(slot) {
            entry.next = next;
        }
    }

    fn enter(&mut self, location: &Location) {
        if let Location::Piece(piece) = location {
            piece.enter();
        }
        *self.sum_of(location) += location.size();
    }

    fn leave(&mut self, number: Number, location: &Location, freed: &mut Vec<Freed>) {
        *self.sum_of(location) -= location.size();
        location.leave(number, freed);
    }

    fn sum_of(&mut self, location: &Location) -> &mut u64 {
        match location {
            Location::File { .. } => &mut self.files,
            Location::Piece(_) => &mut self.pieces,
        }
    }

    /// The blob's bytes have moved to another place.
    pub fn move_blob(&mut self, slot: Slot, location: Location, freed: &mut Vec<Freed>) {
        self.enter(&location);
        let moved = self.blobs.get_mut(slot);
        if let Some((number, old)) = moved.map(|blob| (blob.number, std::mem::replace(&mut blob.location, location))) {
            self.leave(number, &old, freed);
        }
    }

    /// Adds to `freed` what no entry needs any more.
    pub fn remove_entry(&mut self, slot: Slot, freed: &mut Vec<Freed>) {
        let Some((key, next)) = self.entry(slot).map(|entry| (entry.key, entry.next)) else {
            return;
        };
        self.unlink(slot, &key, next);
        let Some(entry) = self.entries.remove(slot) else {
            return;
        };
        self.needs -= entry.blobs.len();
        self.charge(&entry.blobs, u64::wrapping_sub);
        for slot in entry.blobs {
            self.leave_blob(slot, freed);
        }
    }

    fn unlink(&mut self, slot: Slot, key: &Digest, next: Slot) {
        let before = self.entries_of(key).find(|(_, entry)| entry.next == slot);
        let before = before.map(|(before, _)| before);
        if let Some(before) = before.and_then(|before| self.entries.get_mut(before)) {
            before.next = next;
            return;
        }
        let Ok(mut first) = self.by_key.find_entry(hash_of(key), |first| *first == slot) else {
            return;
        };
        match next {
            NONE => drop(first.remove()),
            next => *first.get_mut() = next,
        }
    }

    fn leave_blob(&mut self, slot: Slot, freed: &mut Vec<Freed>) {
        let Some(blob) = self.blobs.get_mut(slot) else {
            return;
        };
        blob.entries -= 1;
        if blob.entries == 0 && (blob.lost || !self.pins().contains_key(&slot)) {
            self.remove_blob(slot, freed);
        }
    }

    fn remove_blob(&mut self, slot: Slot, freed: &mut Vec<Freed>) {
        self.forget_digest(slot);
        if let Some(blob) = self.blobs.remove(slot).filter(|blob| !blob.lost) {
            self.leave(blob.number, &blob.location, freed);
        }
    }

    fn forget_digest(&mut self, slot: Slot) {
        let Some(digest) = self.blob(slot).map(|blob| blob.digest) else {
            return;
        };
        if let Ok(found) = self.by_digest.find_entry(hash_of(&digest), |found| *found == slot) {
            found.remove();
        }
    }

    /// The blob is damaged: it is not found any more, and the next one with its digest is stored anew.
    pub fn lose_blob(&mut self, slot: Slot, number: Number, freed: &mut Vec<Freed>) -> bool {
        if self.blob(slot).map(|blob| (blob.number, blob.lost)) != Some((number, false)) {
            return false;
        }
        self.forget_digest(slot);
        self.unpin(&[slot]);
        let Some(blob) = self.blobs.get_mut(slot) else {
            return false;
        };
        blob.lost = true;
        let is_idle = blob.entries == 0;
        // It has no claim to a volume.
        let location = std::mem::replace(&mut blob.location, Location::File { blocks: 0 });
        if is_idle {
            self.blobs.remove(slot);
        }
        self.leave(number, &location, freed);
        // It counted in the limits of the entries that need it.
        self.charge_all();
        true
    }

    /// From now on, entries that need the blob with this digest have a limit. The blob may be stored later.
    pub fn share(&mut self, mark: Digest, most: u64) {
        self.shares.insert(mark, Share { held: 0, most });
        self.charge_all();
    }

    pub fn share_of(&self, mark: &Digest) -> Option<Share> {
        self.shares.get(mark).copied()
    }

    pub fn shares(&self) -> impl Iterator<Item = (Digest, Share)> + '_ {
        self.shares.iter().map(|(mark, share)| (*mark, *share))
    }

    pub fn full_shares(&self) -> impl Iterator<Item = (Digest, Share)> + '_ {
        self.shares().filter(|(_, share)| share.is_full())
    }

    fn charge_all(&mut self) {
        if self.shares.is_empty() {
            return;
        }
        self.shares.values_mut().for_each(|share| share.held = 0);
        for (_, entry) in self.entries.iter() {
            charge(&mut self.shares, &self.blobs, &entry.blobs, u64::wrapping_add);
        }
    }

    fn charge(&mut self, blobs: &Blobs, by: fn(u64, u64) -> u64) {
        if !self.shares.is_empty() {
            charge(&mut self.shares, &self.blobs, blobs, by);
        }
    }

    /// Removes the blobs that have waited too long for an entry.
    pub fn remove_expired(&mut self, patience: Duration, freed: &mut Vec<Freed>) {
        let mut gone = Vec::new();
        self.pins().retain(|slot, since| {
            let waits = since.elapsed() < patience;
            gone.extend((!waits).then_some(*slot));
            waits
        });
        gone.retain(|slot| self.blob(*slot).is_some_and(|blob| blob.entries == 0));
        gone.into_iter().for_each(|slot| self.remove_blob(slot, freed));
    }

    /// Removes the blobs that no entry needs.
    pub fn remove_idle(&mut self, freed: &mut Vec<Freed>) {
        let idle = self.blobs.iter().filter(|(_, blob)| blob.entries == 0);
        let idle: Vec<Slot> = idle.map(|(slot, _)| slot).collect();
        idle.into_iter().for_each(|slot| self.remove_blob(slot, freed));
    }

    /// Applies an item of the index.
    pub fn set_used(&mut self, slot: Option<Slot>, used: clock::Instant) {
        if let Some(entry) = slot.and_then(|slot| self.entry(slot)) {
            entry.touch(used);
            entry.take_unrecorded_use();
            self.newest = self.newest.max(used);
        }
    }

    /// How long an index would be that has only this.
    pub fn index_size(&self) -> u64 {
        (47 * self.entries.len() + 8 * self.needs + 57 * self.blobs.len() + 64 * self.counters.len()) as u64
    }

    /// Removes all entries and blobs, and keeps the rest.
    pub fn cleared(&mut self) -> Table {
        Table {
            counters: std::mem::take(&mut self.counters),
            shares: self
                .shares
                .drain()
                .map(|(mark, share)| (mark, Share { held: 0, ..share }))
                .collect(),
            next_id: self.next_id,
            newest: self.newest,
            ..Table::default()
        }
    }

    pub fn counts(&self) -> (usize, usize) {
        (self.entries.len(), self.blobs.len())
    }

    pub fn count(&mut self, name: &str, added: u64) {
        match self.counters.get_mut(name) {
            Some(counter) => *counter = counter.saturating_add(added),
            None => drop(self.counters.insert(name.to_owned(), added)),
        }
    }

    /// The whole table as items of the index.
    pub fn items(&self) -> impl Iterator<Item = Item> + '_ {
        let counters = self.counters.iter();
        let counters = counters.map(|(name, added)| Item::Count {
            name: name.clone(),
            added: *added,
        });
        let blobs = self
            .blobs()
            .filter(|(_, blob)| blob.entries > 0 && !blob.lost)
            .map(|(_, blob)| blob.item(&blob.location));
        let entries = self.entries().filter_map(|(_, entry)| self.item_of(entry));
        counters.chain(blobs).chain(entries)
    }

    /// `None` if a blob that it needs is lost.
    fn item_of(&self, entry: &Entry) -> Option<Item> {
        let number = |slot: &Slot| self.blob(*slot).filter(|blob| !blob.lost).map(|blob| blob.number);
        let blobs = entry.blobs.iter().map(number).collect::<Option<_>>()?;
        let (id, key, used) = (entry.id, entry.key, entry.used());
        Some(Item::Entry { id, key, used, blobs })
    }
}

impl Blob {
    /// A blob as an item of the index, or with the place to which it will move.
    pub fn item(&self, location: &Location) -> Item {
        let (digest, number) = (self.digest, self.number);
        match location {
            Location::File { blocks } => Item::Blob {
                digest,
                number,
                blocks: *blocks,
            },
            Location::Piece(piece) => Item::Piece {
                digest,
                number,
                volume: piece.volume.number,
                offset: piece.offset,
                length: piece.length,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_takes_no_more_memory_than_a_line_of_the_processors_cache() {
        assert_eq!(std::mem::size_of::<Option<Blob>>(), 64);
    }
}
