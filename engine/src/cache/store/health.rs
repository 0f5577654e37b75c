//! Checks whether what is open is still what the store's path names, and repairs it if not.
//!
//! ```text
//! heal ─► the folders and the lock are those that were opened ─► the index is, too ─► volumes that vanished are forgotten
//!                        └─► no: all is opened anew                └─► no: it is written anew, from memory
//! ```
//!
//! People remove stores, move them, and put others in their place while an engine runs. A process that has the old folder
//! open would write to it until it ends. So each request checks this, at most once a second.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::inside::Inside;
use super::location::Location;
use super::volumes::FolderState;
use super::{Open, Settings, Store, BLOBS, FOLDER, LOCK, VOLUMES};

/// How often this is checked, while there are requests.
const OFTEN: Duration = Duration::from_secs(1);

pub struct Health {
    began: Instant,
    /// When the last check was, in milliseconds after that.
    looked: AtomicU64,
    state: Mutex<State>,
    /// How often the store was opened.
    openings: AtomicU64,
    /// The last opening after which the store was never found in its place.
    failed_reopenings: AtomicU32,
}

#[derive(Default)]
struct State {
    /// The last problem, so that it is not logged again and again.
    logged: Option<String>,
    /// The state of the folder of volumes when all of them were there.
    volumes: Option<FolderState>,
}

impl Default for Health {
    fn default() -> Health {
        Health {
            began: Instant::now(),
            looked: AtomicU64::new(0),
            state: Mutex::default(),
            openings: AtomicU64::new(1),
            failed_reopenings: AtomicU32::new(0),
        }
    }
}

impl Health {
    fn is_due(&self) -> bool {
        let now = self.began.elapsed().as_millis() as u64;
        let last = self.looked.load(Ordering::Relaxed);
        // If a file system numbers its files anew, each check finds another store.
        let patience = OFTEN * (1 << self.failed_reopenings.load(Ordering::Relaxed).min(6));
        let is_due = now.saturating_sub(last) >= patience.as_millis() as u64;
        is_due
            && self
                .looked
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

impl State {
    /// Logs a problem that is new, and its end.
    fn log_change(&mut self, trouble: Option<String>) {
        if self.logged != trouble {
            match &trouble {
                Some(words) => log::warn!("nothing is stored: {words}"),
                None => log::warn!("the store works again"),
            }
        }
        self.logged = trouble;
    }
}

impl Store {
    /// Checks whether the store is where it was opened, unless that was just done, and repairs what is not.
    pub fn heal(&self) {
        if !self.health.is_due() {
            return;
        }
        let mut state = match self.health.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread is checking.
            Err(TryLockError::WouldBlock) => return,
        };
        let inside = self.inside();
        let mended = match inside.is_in_place() {
            true => {
                self.health.failed_reopenings.store(0, Ordering::Relaxed);
                inside.mend(&mut state.volumes)
            }
            false => {
                state.volumes = None;
                self.reopen(&inside)
            }
        };
        state.log_change(mended.err().map(|error| error.to_string()));
    }

    /// How often the store was opened. Counters and entries begin anew each time.
    pub fn openings(&self) -> u64 {
        self.health.openings.load(Ordering::Relaxed)
    }

    fn reopen(&self, old: &Arc<Inside>) -> io::Result<()> {
        // From now on nothing more is written to the old place.
        old.retire();
        let settings = Settings {
            max_size: old.max_size(),
            compression: old.compression,
        };
        let new = Open::at(&self.cache, settings, Some(&old.lock))?;
        let is_plain = old.is_plain.load(Ordering::Relaxed);
        new.inside.is_plain.store(is_plain, Ordering::Relaxed);
        let index = new.inside.index();
        let shares: Vec<_> = old.table().shares().collect();
        for (mark, share) in shares {
            new.inside.change().share(mark, share.most);
        }
        drop(index);
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let former = std::mem::replace(&mut *open, new);
        drop(open);
        // Its keeper ends by itself, when it has finished what it is doing.
        former.inside.stop();
        self.health.openings.fetch_add(1, Ordering::Relaxed);
        self.health.failed_reopenings.fetch_add(1, Ordering::Relaxed);
        log::warn!(
            "the store {} was removed or replaced: it is opened anew",
            self.cache.display()
        );
        Ok(())
    }
}

impl Inside {
    /// Whether the folders and the lock that the path names are those that are open.
    fn is_in_place(&self) -> bool {
        let folder = self.cache.join(FOLDER);
        is_at(&self.lock, &folder.join(LOCK))
            && is_at(self.files.folder(), &folder.join(BLOBS))
            && is_at(self.volumes.folder(), &folder.join(VOLUMES))
    }

    /// Writes down everything, so that the next process that opens the store finds it.
    pub fn end(&self) {
        if self.is_in_place() {
            if let Err(error) = self.mend_index() {
                log::warn!("write the index of the store {}: {error}", self.cache.display());
            }
        }
    }

    fn mend(&self, before: &mut Option<FolderState>) -> io::Result<()> {
        self.mend_index()?;
        let now = self.volumes.folder_state()?;
        if before.as_ref().is_some_and(|before| before.is_same(&now)) {
            return Ok(());
        }
        self.forget_vanished();
        *before = Some(now);
        Ok(())
    }

    /// Writes an index anew that was removed, cut or replaced: everything in it is in memory.
    fn mend_index(&self) -> io::Result<()> {
        let anew = {
            let (mut index, table) = self.whole_table();
            match index.is_sound() || index.is_being_written() {
                true => return Ok(()),
                false => index.begin_rewrite(&table),
            }
        };
        log::warn!(
            "the index of the store {} was removed or cut: it is written anew",
            self.cache.display()
        );
        let written = anew.write();
        self.index().end_rewrite(written)
    }

    /// Drops blobs whose volume was removed. Its open file can still be read, but would be gone after this process.
    fn forget_vanished(&self) {
        let gone = self.volumes.vanished();
        if gone.is_empty() {
            return;
        }
        let places: Vec<_> = {
            let table = self.table();
            let is_gone = |location: &Location| match location {
                Location::Piece(piece) => gone.iter().any(|volume| Arc::ptr_eq(volume, &piece.volume)),
                Location::File { .. } => false,
            };
            let slots = table.blobs().filter(|(_, blob)| is_gone(&blob.location));
            slots.filter_map(|(slot, _)| self.place_of(&table, slot)).collect()
        };
        log::warn!(
            "{} volumes of the store {} were removed",
            gone.len(),
            self.cache.display()
        );
        for place in places {
            self.lose(&place);
        }
    }
}

/// Whether the path names what is open.
pub fn is_at(open: &impl AsFd, path: &Path) -> bool {
    let (Ok(open), Ok(found)) = (rustix::fs::fstat(open), rustix::fs::stat(path)) else {
        return false;
    };
    (open.st_dev, open.st_ino) == (found.st_dev, found.st_ino)
}
