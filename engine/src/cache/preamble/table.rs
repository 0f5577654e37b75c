//! The preambles that there are, and the sources that have none for a reason. The files of all of them have a limit:
//! those that were not used for the longest time go first.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{json, Value};

use super::{Preamble, Refusal};
use crate::bytes::digest::Digest;
use crate::observe::access::Bytes;

/// What an automatic limit allows, and which part of the disk's free space.
const MOST: u64 = 2 << 30;
const PART_OF_FREE: u64 = 8;
/// More refusals are forgotten, and these sources are tried again.
const MOST_REFUSALS: usize = 10_000;

/// A source with the command line that compiles it, in a folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Spot {
    pub key: Digest,
    pub folder: Bytes,
    /// Their names may be left out of the key.
    pub known_folders: Vec<Bytes>,
}

/// A folder that is removed with its value.
#[derive(Debug)]
pub struct OwnFolder(PathBuf);

impl OwnFolder {
    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn name(&self, name: &str) -> Bytes {
        self.0.join(name).as_os_str().as_bytes().to_vec()
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Held {
    preamble: Arc<Preamble>,
    /// When it was used last, as a number that grows.
    used: u64,
}

#[derive(Default)]
struct State {
    limit: Option<u64>,
    held: HashMap<Spot, Held>,
    /// With the state of source and headers for which it counts.
    refused: HashMap<Spot, (Digest, Refusal)>,
    turns: u64,
}

pub struct Table {
    folder: PathBuf,
    /// The folders that were made.
    count: AtomicU64,
    state: Mutex<State>,
}

impl Table {
    /// Removes the preambles of an earlier engine, because their facts are lost.
    pub fn new(folder: PathBuf) -> Table {
        let _ = fs::remove_dir_all(&folder);
        Table {
            folder,
            count: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if there are to be no preambles, 0 for a part of the disk's free space.
    pub fn set_limit(&self, limit: Option<u64>) {
        let bytes = match limit {
            Some(0) => Some(self.automatic_limit()),
            limit => limit,
        };
        let mut state = self.state();
        state.limit = bytes;
        let gone = state.shrink(bytes.unwrap_or(0));
        drop(state);
        drop(gone);
    }

    fn automatic_limit(&self) -> u64 {
        let parent = self.folder.parent().unwrap_or(&self.folder);
        let free = rustix::fs::statvfs(parent).map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize));
        MOST.min(free / PART_OF_FREE)
    }

    pub fn is_on(&self) -> bool {
        self.state().limit.is_some()
    }

    /// A new folder, for a preamble or for the outputs of one compile.
    pub fn make_folder(&self) -> io::Result<OwnFolder> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let folder = OwnFolder(self.folder.join(number.to_string()));
        fs::create_dir_all(folder.path())?;
        Ok(folder)
    }

    pub fn find(&self, spot: &Spot) -> Option<Arc<Preamble>> {
        let mut state = self.state();
        state.turns += 1;
        let turn = state.turns;
        let held = state.held.get_mut(spot)?;
        held.used = turn;
        Some(held.preamble.clone())
    }

    /// Adds a preamble. Others go if there is no room for all. Whether it fits at all.
    pub fn put(&self, spot: Spot, preamble: Preamble) -> bool {
        let mut state = self.state();
        let Some(limit) = state.limit.filter(|limit| preamble.size <= *limit) else {
            return false;
        };
        state.turns += 1;
        let (used, preamble) = (state.turns, Arc::new(preamble));
        let room = limit - preamble.size;
        let old = state.held.remove(&spot);
        let gone = state.shrink(room);
        state.refused.remove(&spot);
        state.held.insert(spot, Held { preamble, used });
        drop(state);
        // Their files are removed without the lock.
        drop((old, gone));
        true
    }

    /// Notes that this source has no preamble, until its beginning or a header changes.
    pub fn refuse(&self, spot: Spot, inputs: Digest, why: Refusal) {
        let mut state = self.state();
        if state.refused.len() >= MOST_REFUSALS {
            state.refused.clear();
        }
        let gone = state.held.remove(&spot);
        state.refused.insert(spot, (inputs, why));
        drop(state);
        drop(gone);
    }

    pub fn is_refused(&self, spot: &Spot, inputs: &Digest) -> bool {
        let state = self.state();
        state.refused.get(spot).is_some_and(|(refused, _)| refused == inputs)
    }

    /// Why a source has none, if that is known.
    pub fn refusal(&self, spot: &Spot) -> Option<Refusal> {
        self.state().refused.get(spot).map(|(_, why)| *why)
    }

    /// For `wafd status`.
    pub fn describe(&self) -> Value {
        let state = self.state();
        json!({
            "limit": state.limit,
            "count": state.held.len(),
            "bytes": state.size(),
            "refused": state.refused.len(),
        })
    }
}

impl State {
    fn size(&self) -> u64 {
        self.held.values().map(|held| held.preamble.size).sum()
    }

    /// Removes those that were not used for the longest time, until the rest fits.
    fn shrink(&mut self, room: u64) -> Vec<Held> {
        let mut gone = Vec::new();
        let mut size = self.size();
        while size > room {
            let oldest = self.held.iter().min_by_key(|(_, held)| held.used);
            let Some(spot) = oldest.map(|(spot, _)| spot.clone()) else {
                break;
            };
            if let Some(held) = self.held.remove(&spot) {
                size -= held.preamble.size;
                gone.push(held);
            }
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::compiler::Compiler;
    use crate::cache::lookup::entry::Entry;
    use crate::cache::test_support::TestFolder;

    fn spot(name: &str) -> Spot {
        Spot {
            key: Digest::of(name.as_bytes()),
            folder: b"/f".to_vec(),
            known_folders: Vec::new(),
        }
    }

    fn preamble(table: &Table, size: u64) -> Preamble {
        Preamble {
            compiler: Compiler::Gcc,
            text: Digest::of(b"text"),
            inputs: Digest::of(b"inputs"),
            folder: table.make_folder().unwrap(),
            name: Vec::new(),
            dependencies: Vec::new(),
            basis: Entry::default(),
            accesses: Vec::new(),
            size,
            plain: 0,
        }
    }

    #[test]
    fn the_one_that_was_not_used_for_the_longest_time_goes() {
        let folder = TestFolder::new();
        let table = Table::new(folder.path("preambles"));
        assert!(!table.is_on() && !table.put(spot("a"), preamble(&table, 1)));
        table.set_limit(Some(10));
        assert!(table.put(spot("a"), preamble(&table, 4)) && table.put(spot("b"), preamble(&table, 4)));
        assert!(table.find(&spot("a")).is_some());
        assert!(table.put(spot("c"), preamble(&table, 5)) && !table.put(spot("d"), preamble(&table, 11)));
        let has = |name| table.find(&spot(name)).is_some();
        assert!(has("a") && !has("b") && has("c") && !has("d"));
        assert_eq!(fs::read_dir(folder.path("preambles")).unwrap().count(), 2);
        let used = table.find(&spot("a"));
        table.set_limit(None);
        assert!(!has("a") && used.as_ref().is_some_and(|used| used.folder.path().is_dir()));
        drop(used);
        assert_eq!(fs::read_dir(folder.path("preambles")).unwrap().count(), 0);
    }

    #[test]
    fn a_refusal_counts_for_one_state_of_the_inputs() {
        let folder = TestFolder::new();
        let table = Table::new(folder.path("preambles"));
        table.set_limit(Some(10));
        table.refuse(spot("a"), Digest::of(b"1"), Refusal::Different);
        assert!(table.is_refused(&spot("a"), &Digest::of(b"1")) && !table.is_refused(&spot("a"), &Digest::of(b"2")));
        assert!(table.put(spot("a"), preamble(&table, 1)));
        assert!(!table.is_refused(&spot("a"), &Digest::of(b"1")));
    }
}
