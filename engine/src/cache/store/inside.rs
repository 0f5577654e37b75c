//! What the threads of a store share: the steps between table, index and files, each under the locks that it needs.
//!
//! Whatever changes the table holds the index, and the table itself only for as long as memory takes.

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
use super::number::{Number, Numbers};
use super::spot::{Freed, Spot};
use super::table::{self, Blobs, Slot, Table};
use super::volumes::{Limits, Volumes};
use super::{Compression, EntryRef};
use crate::bytes::digest::Digest;

pub struct Inside {
    /// The folder that has the store's.
    pub cache: PathBuf,
    pub index: Mutex<Index>,
    pub table: RwLock<Table>,
    pub numbers: Numbers,
    pub files: Files,
    pub volumes: Volumes,
    pub clock: Clock,
    pub compression: Compression,
    /// Nothing is packed, whatever the compression.
    pub is_plain: AtomicBool,
    pub max_size: AtomicU64,
    pub damaged: AtomicU64,
    pub stopped: AtomicBool,
    /// The folder is not the store's any more.
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
    /// What the index must be told: blobs that no entry has needed yet and that it was not told before, the entry, and those
    /// that it replaces.
    pub fn items(&self, table: &Table, excess: &[EntryRef], told: &mut HashSet<Number>) -> Vec<Item> {
        let blobs = self.blobs.iter().filter_map(|slot| table.blob(*slot));
        let numbers = blobs.clone().map(|blob| blob.number).collect();
        let fresh = blobs.filter(|blob| blob.entries == 0 && told.insert(blob.number));
        let fresh = fresh.map(|blob| blob.item(&blob.spot));
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

    /// For an hour it waits for an entry. Whether it is there: one whose file somebody has removed must be stored again.
    pub fn pin(&self, digest: &Digest) -> bool {
        let place = {
            let table = self.table();
            let slot = table.find_blob(digest).inspect(|slot| table.pin(*slot));
            slot.and_then(|slot| self.place_of(&table, slot))
        };
        let Some(place) = place else { return false };
        let is_there = match &place.spot {
            Spot::File { .. } => self.files.has(place.number),
            Spot::Piece(piece) => piece.is_within(),
        };
        is_there || self.lose(&place).is_some()
    }

    pub fn place_of(&self, table: &Table, slot: Slot) -> Option<Place> {
        let blob = table.blob(slot).filter(|blob| !blob.lost)?;
        Some(Place {
            slot,
            number: blob.number,
            digest: blob.digest,
            spot: blob.spot.clone(),
        })
    }

    /// The content, if it is what it should be. Else it is removed.
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
        let body = table
            .entry(entry.slot)
            .filter(|found| entry.is(found))
            .map(table::Entry::body);
        body.and_then(|slot| table.blob(slot)).is_some_and(|blob| blob.lost)
    }

    /// It is not there as it should be: nobody finds it again. Unless it was moved meanwhile: then this is its new place.
    pub fn lose(&self, place: &Place) -> Option<Place> {
        let mut freed = Vec::new();
        let index = self.index();
        let now = self.place_of(&self.table(), place.slot);
        let now = now.filter(|now| now.number == place.number);
        if now.as_ref().is_some_and(|now| now.spot != place.spot) {
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

    /// Of a blob that the table never knew.
    pub fn forsake(&self, number: Number, spot: &Spot) {
        match spot {
            Spot::File { .. } => self.files.remove(number),
            Spot::Piece(piece) => self.volumes.unclaim(&piece.volume),
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
        self.free(&freed);
        entries.len()
    }

    /// What the disk holds.
    pub fn size(&self) -> u64 {
        self.size_with(&self.index())
    }

    pub fn size_with(&self, index: &Index) -> u64 {
        index.length + self.table().files + self.volumes.held()
    }

    /// The part of it that is of use, which is what evicting makes smaller at once.
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

    /// Nothing more is written to where it is: its folder was removed, or another one is in its place.
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

    pub fn limits(&self) -> Limits {
        Limits::of(self.max_size())
    }
}
