//! What the threads of a store share: the steps between table, index and files, each under the locks that it needs.
//!
//! Whatever changes the table holds the index, and the table itself only for as long as memory takes.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::blob::{is_passing, load, Blob, Place};
use super::clock::{self, Clock};
use super::files::{Files, Number};
use super::index::Index;
use super::item::Item;
use super::table::{self, Blobs, Slot, Table};
use super::{Compression, EntryRef};
use crate::cache::digest::Digest;

pub struct Inside {
    pub index: Mutex<Index>,
    pub table: RwLock<Table>,
    pub files: Files,
    pub clock: Clock,
    pub compression: Compression,
    /// Nothing is packed, whatever the compression.
    pub is_plain: AtomicBool,
    pub max_size: AtomicU64,
    pub damaged: AtomicU64,
    pub stopped: AtomicBool,
    pub _lock: File,
}

pub struct NewEntry {
    pub id: u32,
    pub key: Digest,
    pub used: clock::Instant,
    pub blobs: Blobs,
}

impl NewEntry {
    /// What the index must be told: blobs that no entry has needed yet, the entry, and those that it replaces.
    pub fn items(&self, table: &Table, excess: &[EntryRef]) -> Vec<Item> {
        let blobs = self.blobs.iter().filter_map(|slot| table.blob(*slot));
        let numbers = blobs.clone().map(|blob| blob.number).collect();
        let fresh = blobs.filter(|blob| blob.entries == 0).map(table::Blob::item);
        let entry = Item::Entry {
            id: self.id,
            key: self.key,
            used: self.used,
            blobs: numbers,
        };
        let dropped = excess.iter().map(|entry| Item::Drop { id: entry.id });
        fresh.chain([entry]).chain(dropped).collect()
    }
}

impl Inside {
    pub fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever calls it holds the index: a thread that waits for the table keeps others from reading it.
    pub fn change(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a look at all of it: a thread that wants to change it waits for the index, and keeps nobody from reading.
    pub fn whole_table(&self) -> (MutexGuard<'_, Index>, RwLockReadGuard<'_, Table>) {
        let index = self.index();
        (index, self.table())
    }

    pub fn pin(&self, digest: &Digest) -> bool {
        let table = self.table();
        table.find_blob(digest).inspect(|slot| table.pin(*slot)).is_some()
    }

    pub fn place_of(&self, table: &Table, slot: Slot) -> Option<Place> {
        let blob = table.blob(slot).filter(|blob| !blob.lost)?;
        Some(Place {
            slot,
            number: blob.number,
            digest: blob.digest,
        })
    }

    /// The content, if it is what it should be. Else it is removed.
    pub fn content(&self, place: &Place) -> Option<Blob> {
        match load(&self.files, place) {
            Ok(Some(blob)) => Some(blob),
            Err(error) if is_passing(&error) => None,
            Ok(None) | Err(_) => {
                self.lose(place);
                None
            }
        }
    }

    pub fn is_lost(&self, entry: &EntryRef) -> bool {
        let table = self.table();
        let body = table
            .entry(entry.slot)
            .filter(|found| entry.is(found))
            .map(table::Entry::body);
        body.and_then(|slot| table.blob(slot)).is_some_and(|blob| blob.lost)
    }

    pub fn lose(&self, place: &Place) {
        let mut freed = Vec::new();
        let index = self.index();
        let lost = self.change().lose_blob(place.slot, place.number, &mut freed);
        drop(index);
        self.damaged.fetch_add(u64::from(lost), Ordering::Relaxed);
        self.remove_files(&freed);
    }

    pub fn remove_files(&self, freed: &[Number]) {
        freed.iter().for_each(|number| self.files.remove(*number));
    }

    pub fn add(&self, entry: NewEntry, excess: &[EntryRef]) -> EntryRef {
        let mut freed = Vec::new();
        let mut table = self.change();
        table.unpin(&entry.blobs);
        let slot = table.add_entry(entry.id, entry.key, entry.used, entry.blobs);
        excess
            .iter()
            .for_each(|entry| table.remove_entry(entry.slot, &mut freed));
        drop(table);
        self.remove_files(&freed);
        EntryRef {
            key: entry.key,
            slot,
            id: entry.id,
        }
    }

    /// Removes those that are still there, and tells how many. An index that cannot be written, on a full disk, must not keep
    /// the disk full: its entries without blobs are no entries.
    pub fn remove(&self, entries: &[EntryRef]) -> usize {
        let mut index = self.index();
        let there = |entry: &&EntryRef| self.table().entry(entry.slot).is_some_and(|found| entry.is(found));
        let entries: Vec<_> = entries.iter().filter(there).collect();
        let items: Vec<_> = entries.iter().map(|entry| Item::Drop { id: entry.id }).collect();
        drop(index.append(&items));
        let mut freed = Vec::new();
        let mut table = self.change();
        entries
            .iter()
            .for_each(|entry| table.remove_entry(entry.slot, &mut freed));
        drop((table, index));
        self.remove_files(&freed);
        entries.len()
    }

    pub fn size(&self) -> u64 {
        let length = self.index().length;
        self.table().blocks * 512 + length
    }

    pub fn is_full(&self) -> bool {
        self.size() > self.max_size.load(Ordering::Relaxed)
    }
}
