//! The thread that keeps the store in order: it sweeps up, evicts, writes down what was used, and keeps the index short.
//!
//! Nobody ever waits for it, except whoever closes the store.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::clock::Instant;
use super::inside::Inside;
use super::item::Item;
use super::{EntryRef, Store, BATCH, PATIENCE};

/// The order in which entries were used may be that old after a crash.
const ROUND: Duration = Duration::from_secs(60);

pub struct Keeper {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl Bell {
    fn ring(&self) {
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
        let bell = Arc::new(Bell::default());
        let (heard, keeper) = (bell.clone(), thread::Builder::new().name("store".into()));
        let thread = keeper.spawn(move || inside.keep(&heard))?;
        Ok(Keeper {
            bell,
            thread: Some(thread),
        })
    }

    pub fn wake(&self) {
        self.bell.ring();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.inside.stopped.store(true, Ordering::Relaxed);
        self.keeper.bell.ring();
        self.keeper.thread.take().map(JoinHandle::join);
        self.inside.note_uses();
    }
}

impl Inside {
    fn keep(&self, bell: &Bell) {
        self.sweep();
        while !self.is_stopped() {
            self.evict_excess();
            self.let_go();
            self.note_uses();
            drop(self.tidy_index());
            bell.wait();
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn sweep(&self) {
        let known: HashSet<_> = self.whole_table().1.blobs().map(|blob| blob.number).collect();
        self.files.sweep(&known, || self.is_stopped());
    }

    /// To nine tenths of the limit, so that it is not called for every entry.
    fn evict_excess(&self) {
        if self.is_full() {
            let enough = self.max_size.load(Ordering::Relaxed) / 10 * 9;
            self.evict(Instant::MAX, |size| size <= enough);
        }
    }

    /// Removes entries that were not used since `oldest`, the longest unused first, until the size is `enough`.
    pub fn evict(&self, oldest: Instant, enough: impl Fn(u64) -> bool) -> usize {
        let mut unused: Vec<(Instant, EntryRef)> = {
            let (_index, table) = self.whole_table();
            let unused = table.entries().filter(|(_, entry)| entry.used() < oldest);
            unused
                .map(|(slot, entry)| {
                    (
                        entry.used(),
                        EntryRef {
                            key: entry.key,
                            slot,
                            id: entry.id,
                        },
                    )
                })
                .collect()
        };
        unused.sort_by_key(|(used, _)| *used);
        let mut evicted = 0;
        for batch in unused.chunks(BATCH) {
            if self.is_stopped() || enough(self.size()) {
                break;
            }
            evicted += self.remove(&self.still_unused(batch));
        }
        evicted
    }

    fn still_unused(&self, batch: &[(Instant, EntryRef)]) -> Vec<EntryRef> {
        let table = self.table();
        let same =
            |(used, entry): &&(Instant, EntryRef)| table.entry(entry.slot).map(|entry| entry.used()) == Some(*used);
        batch.iter().filter(same).map(|(_, entry)| *entry).collect()
    }

    fn let_go(&self) {
        let mut freed = Vec::new();
        let index = self.index();
        self.change().let_go(PATIENCE, &mut freed);
        drop(index);
        self.remove_files(&freed);
    }

    pub fn note_uses(&self) {
        let (mut index, table) = self.whole_table();
        let used = |entry: &super::table::Entry| {
            Some(Item::Use {
                id: entry.id,
                used: entry.settle()?,
            })
        };
        let uses: Vec<_> = table.entries().filter_map(|(_, entry)| used(entry)).collect();
        drop(table);
        drop(index.append(&uses));
    }

    /// Writes the index anew if most of it is past.
    pub fn tidy_index(&self) -> io::Result<()> {
        let begun = {
            let (mut index, table) = self.whole_table();
            index.is_long(&table).then(|| index.begin_anew(&table))
        };
        let Some(anew) = begun else {
            return Ok(());
        };
        let written = anew.write();
        self.index().end_anew(written)
    }
}
