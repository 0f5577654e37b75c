//! What the threads of a store share: the steps that involve table, index and files, each with the locks that it needs.
//!
//! A change of the table holds the index's lock, and the table's own lock only for the change in memory.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::blob::{is_passing, load, Blob, Place};
use super::clock::{self, Clock};
use super::files::Files;
use super::index::{retired, Index};
use super::item::Item;
use super::keeper::Bell;
use super::location::{Freed, Location};
use super::number::{Number, Numbers};
use super::table::{Blobs, Entry, Slot, Table};
use super::volumes::{Limits, Volumes};
use super::{Compression, EntryRef, Usage};
use crate::bytes::digest::Digest;

pub struct Inside {
    /// The folder in which the store's folder is.
    pub cache: PathBuf,
    pub index: Mutex<Index>,
    pub table: RwLock<Table>,
    pub numbers: Numbers,
    pub files: Files,
    pub volumes: Volumes,
    pub clock: Clock,
    pub compression: Compression,
    /// Nothing is packed, whatever the setting for compression.
    pub is_plain: AtomicBool,
    pub max_size: AtomicU64,
    pub damaged: AtomicU64,
    pub stopped: AtomicBool,
    /// The folder does not belong to the store any more.
    pub retired: AtomicBool,
    /// Wakes the keeper.
    pub bell: Bell,
    pub lock: Arc<File>,
}

pub struct NewEntry {
    pub id: u32,
    pub key: Digest,
    pub used: clock::Instant,
    pub blobs: Blobs,
}

impl NewEntry {
    /// The items to be written to the index: blobs that no entry has needed before and that the index does not know, the
    /// entry, and the entries that it replaces.
    pub fn items(&self, table: &Table, excess: &[EntryRef], in_index: &mut HashSet<Number>) -> Vec<Item> {
        let blobs = self.blobs.iter().filter_map(|slot| table.blob(*slot));
        let numbers = blobs.clone().map(|blob| blob.number).collect();
        let fresh = blobs.filter(|blob| blob.entries == 0 && in_index.insert(blob.number));
        let fresh = fresh.map(|blob| blob.item(&blob.location));
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

    /// The caller must hold the index. Otherwise a thread that waits for the table would keep readers out.
    pub fn change(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a pass over the whole table. Threads that want to change it wait for the index, and keep no reader out.
    pub fn whole_table(&self) -> (MutexGuard<'_, Index>, RwLockReadGuard<'_, Table>) {
        let index = self.index();
        (index, self.table())
    }

    /// Keeps a blob for an hour without an entry. Returns whether it is there: if its file was removed, it must be stored
    /// again.
    pub fn pin(&self, digest: &Digest) -> bool {
        let place = {
            let table = self.table();
            let slot = table.find_blob(digest).inspect(|slot| table.pin(*slot));
            slot.and_then(|slot| self.place_of(&table, slot))
        };
        let Some(place) = place else { return false };
        let is_there = match &place.location {
            Location::File { .. } => self.files.has(place.number),
            Location::Piece(piece) => piece.is_within(),
        };
        is_there || self.lose(&place).is_some()
    }

    pub fn place_of(&self, table: &Table, slot: Slot) -> Option<Place> {
        let blob = table.blob(slot).filter(|blob| !blob.lost)?;
        Some(Place {
            slot,
            number: blob.number,
            digest: blob.digest,
            location: blob.location.clone(),
        })
    }

    /// The content, if its digest is right. Otherwise the blob is removed.
    pub fn content(&self, mut place: Place) -> Option<Blob> {
        loop {
            match load(&self.files, &self.volumes, &place) {
                Ok(Some(blob)) => return Some(blob),
                Err(error) if is_passing(&error) => return None,
                Ok(None) | Err(_) => place = self.lose(&place)?,
            }
        }
    }

    pub fn is_lost(&self, entry: &EntryRef) -> bool {
        let table = self.table();
        let body = table.find_entry(entry).map(Entry::body);
        body.and_then(|slot| table.blob(slot)).is_some_and(|blob| blob.lost)
    }

    /// A blob is not at this place, or is damaged: drops it from the table. If it was moved meanwhile, returns its new
    /// place instead.
    pub fn lose(&self, place: &Place) -> Option<Place> {
        let mut freed = Vec::new();
        let index = self.index();
        let now = self.place_of(&self.table(), place.slot);
        let now = now.filter(|now| now.number == place.number);
        if now.as_ref().is_some_and(|now| now.location != place.location) {
            return now;
        }
        let lost = self.change().lose_blob(place.slot, place.number, &mut freed);
        drop(index);
        self.damaged.fetch_add(u64::from(lost), Ordering::Relaxed);
        self.free(&freed);
        None
    }

    pub fn free(&self, freed: &[Freed]) {
        for freed in freed {
            match freed {
                Freed::File(number) => self.files.remove(*number),
                Freed::Volume(volume) => self.volumes.remove(volume),
            }
        }
    }

    /// Removes a blob that the table never knew.
    pub fn discard(&self, number: Number, location: &Location) {
        match location {
            Location::File { .. } => self.files.remove(number),
            Location::Piece(piece) => self.volumes.unclaim(&piece.volume),
        }
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
        self.free(&freed);
        EntryRef {
            key: entry.key,
            slot,
            id: entry.id,
        }
    }

    /// Removes those entries that are still there, and returns how many. If the index cannot be written because the disk is
    /// full, the blobs are removed all the same: without its blobs, an entry is none.
    pub fn remove(&self, entries: &[EntryRef]) -> usize {
        let mut index = self.index();
        let there = |entry: &&EntryRef| self.table().find_entry(entry).is_some();
        let entries: Vec<_> = entries.iter().filter(there).collect();
        let items: Vec<_> = entries.iter().map(|entry| Item::Drop { id: entry.id }).collect();
        drop(index.append(&items));
        let mut freed = Vec::new();
        let mut table = self.change();
        entries
            .iter()
            .for_each(|entry| table.remove_entry(entry.slot, &mut freed));
        drop((table, index));
        self.free(&freed);
        entries.len()
    }

    /// The disk space of the store.
    pub fn size(&self) -> u64 {
        self.size_with(&self.index())
    }

    pub fn size_with(&self, index: &Index) -> u64 {
        index.length + self.table().files + self.volumes.held()
    }

    /// The part of it that is alive. Evicting makes this smaller at once.
    pub fn alive(&self) -> u64 {
        let length = self.index().length;
        let table = self.table();
        table.files + table.pieces + length
    }

    pub fn max_size(&self) -> u64 {
        self.max_size.load(Ordering::Relaxed)
    }

    pub fn is_full(&self) -> bool {
        self.size() > self.max_size()
    }

    /// Stops all writing to this place: its folder was removed, or another one is in its place.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
        self.index().retire();
    }

    pub fn require_place(&self) -> io::Result<()> {
        match self.retired.load(Ordering::Relaxed) {
            true => Err(retired()),
            false => Ok(()),
        }
    }

    pub fn wake_if_full(&self, index: &Index) {
        let is_full = self.size_with(index) > self.max_size();
        if is_full || self.table().full_shares().next().is_some() {
            self.bell.ring();
        }
    }

    pub fn usage(&self, size: u64) -> Usage {
        let (entries, blobs) = self.table().counts();
        Usage {
            entries,
            blobs,
            size,
            max_size: self.max_size(),
            damaged: self.damaged.load(Ordering::Relaxed),
        }
    }

    pub fn limits(&self) -> Limits {
        Limits::of(self.max_size())
    }
}
