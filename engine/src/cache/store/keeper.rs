//! The thread that keeps the store in order: it removes leftovers, evicts, writes down uses, and keeps the index short.
//!
//! No request waits for it. Only closing the store does.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::clock::Instant;
use super::inside::Inside;
use super::item::Item;
use super::location::Location;
use super::number::Number;
use super::old_format::remove_old_format;
use super::slots::Slot;
use super::table::{Entry, Table};
use super::{EntryRef, Store, PATIENCE};

/// As many entries are evicted at once.
const BATCH: usize = 64;
/// How old the recorded order of uses may be after a crash.
const ROUND: Duration = Duration::from_secs(60);

pub struct Keeper {
    thread: Option<JoinHandle<()>>,
}

/// Wakes the keeper.
#[derive(Default)]
pub struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl Bell {
    pub fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.heard.notify_one();
    }

    fn wait(&self) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.heard.wait_timeout_while(rung, ROUND, |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

impl Keeper {
    pub fn start(inside: Arc<Inside>) -> io::Result<Keeper> {
        let keeper = thread::Builder::new().name("store".into());
        let thread = keeper.spawn(move || inside.keep())?;
        Ok(Keeper { thread: Some(thread) })
    }

    fn join(&mut self) {
        self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner);
        open.inside.stop();
        open.keeper.join();
        open.inside.note_uses();
        open.inside.end();
    }
}

impl Inside {
    fn keep(&self) {
        self.sweep();
        // There is no old folder, or another engine uses it.
        drop(remove_old_format(&self.cache, || self.is_stopped()));
        while !self.is_stopped() {
            self.evict_from_shares();
            self.evict_excess();
            self.remove_expired();
            self.note_uses();
            drop(self.tidy_index());
            self.bell.wait();
        }
    }

    /// The keeper ends when it has finished what it is doing.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.bell.ring();
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn sweep(&self) {
        let known: HashSet<_> = {
            let (_index, table) = self.whole_table();
            let in_files = table
                .blobs()
                .filter(|(_, blob)| matches!(blob.location, Location::File { .. }));
            in_files.map(|(_, blob)| blob.number).collect()
        };
        let leftover = |number: &Number| !self.numbers.has_drawn(*number) && !known.contains(number);
        self.files.sweep(leftover, || self.is_stopped());
        self.volumes.sweep(&self.numbers);
    }

    /// Evicts down to nine tenths of the limit, so that this is not needed for every entry. Entries that are alive take
    /// less than that, so that emptying volumes moves little.
    fn evict_excess(&self) {
        let tenths = |count| self.max_size() / 10 * count;
        if self.is_full() {
            self.evict(Instant::MAX, |_, _| true, || self.alive().saturating_sub(tenths(8)));
        }
        match self.empty_volumes(tenths(9)) {
            // Nothing can be moved: volumes give back their space when all of their content is garbage.
            Err(error) if is_full_disk(&error) && self.is_full() => {
                self.evict(Instant::MAX, |_, _| true, || self.size().saturating_sub(tenths(9)));
            }
            // The problem may be over in a minute.
            Ok(()) | Err(_) => {}
        }
    }

    /// Evicts the entries of each share down to nine tenths of its limit, the longest unused first.
    fn evict_from_shares(&self) {
        let full: Vec<_> = self.table().full_shares().collect();
        for (mark, share) in full {
            let has_mark = |table: &Table, entry: &Entry| {
                let mut blobs = entry.blobs.iter().filter_map(|slot| table.blob(*slot));
                blobs.any(|blob| blob.digest == mark)
            };
            let held = || self.table().share_of(&mark).map_or(0, |share| share.held);
            self.evict(Instant::MAX, has_mark, || held().saturating_sub(share.most / 10 * 9));
        }
    }

    /// Removes those of the `meant` entries that were not used since `oldest`, the longest unused first, while there is an
    /// `excess` of bytes.
    pub fn evict(&self, oldest: Instant, meant: impl Fn(&Table, &Entry) -> bool, excess: impl Fn() -> u64) -> usize {
        let mut unused: Vec<(Instant, EntryRef, u64)> = {
            let (_index, table) = self.whole_table();
            let size = |slot: &Slot| table.blob(*slot).map_or(0, |blob| blob.location.size());
            let is_meant = |entry: &Entry| entry.used() < oldest && meant(&table, entry);
            let unused = table.entries().filter(|(_, entry)| is_meant(entry));
            unused
                .map(|(slot, entry)| {
                    let most = entry.blobs.iter().map(size).sum();
                    (entry.used(), EntryRef::of(slot, entry), most)
                })
                .collect()
        };
        unused.sort_by_key(|(used, ..)| *used);
        let mut evicted = 0;
        let mut rest = &unused[..];
        while !rest.is_empty() && !self.is_stopped() {
            let excess = excess();
            if excess == 0 {
                break;
            }
            let (batch, later) = rest.split_at(count_due(rest, excess));
            evicted += self.remove(&self.still_unused(batch));
            rest = later;
        }
        evicted
    }

    fn still_unused(&self, batch: &[(Instant, EntryRef, u64)]) -> Vec<EntryRef> {
        let table = self.table();
        let now = |entry: &EntryRef| table.entry(entry.slot).map(|entry| entry.used());
        let same = batch.iter().filter(|(used, entry, _)| now(entry) == Some(*used));
        same.map(|(_, entry, _)| *entry).collect()
    }

    fn remove_expired(&self) {
        let mut freed = Vec::new();
        let index = self.index();
        self.change().remove_expired(PATIENCE, &mut freed);
        drop(index);
        self.free(&freed);
    }

    pub fn note_uses(&self) {
        let (mut index, table) = self.whole_table();
        let used = |entry: &Entry| {
            Some(Item::Use {
                id: entry.id,
                used: entry.take_unrecorded_use()?,
            })
        };
        let uses: Vec<_> = table.entries().filter_map(|(_, entry)| used(entry)).collect();
        drop(table);
        drop(index.append(&uses));
    }

    /// Writes the index anew if most of it is out of date.
    pub fn tidy_index(&self) -> io::Result<()> {
        let begun = {
            let (mut index, table) = self.whole_table();
            index.is_long(&table).then(|| index.begin_rewrite(&table))
        };
        let Some(anew) = begun else {
            return Ok(());
        };
        let written = anew.write();
        self.index().end_rewrite(written)
    }
}

/// How many of these entries are evicted at once. A few large ones may be all that there is, so they go one by one. Blobs
/// that other entries need, too, free nothing: the rest of the excess is seen afterwards.
fn count_due(unused: &[(Instant, EntryRef, u64)], excess: u64) -> usize {
    let mut freed = 0;
    let due = unused.iter().take(BATCH).take_while(|(.., most)| {
        let is_due = freed < excess;
        freed += most;
        is_due
    });
    due.count()
}

fn is_full_disk(error: &io::Error) -> bool {
    [libc::ENOSPC, libc::EDQUOT].map(Some).contains(&error.raw_os_error())
}
