//! The preambles that there are, and the sources that have none for a reason. The files of all of them have a limit:
//! those that were not used for the longest time go first.

use std::collections::{HashMap, HashSet};
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
/// A group is given up if so many of its compiles had to run again, and no fewer than those that went well.
const MOST_FAILED: u64 = 3;

/// A source with the command line that compiles it, in a folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Spot {
    pub key: Digest,
    pub folder: Bytes,
    /// Their names may be left out of the key.
    pub known_folders: Vec<Bytes>,
}

/// Sources that begin alike, and are compiled alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Group {
    /// The digest of what their compiles have in common: the program, its options, and the folders.
    pub compile: Digest,
    /// The digest of the directives with which they begin.
    pub text: Digest,
}

/// Whom a preamble serves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum User {
    Source(Spot),
    Group(Group),
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
    /// How many compiles were put in place, and how many had to run again without it.
    served: u64,
    failed: u64,
}

impl Held {
    fn new(preamble: Preamble, used: u64) -> Held {
        Held {
            preamble: Arc::new(preamble),
            used,
            served: 0,
            failed: 0,
        }
    }
}

#[derive(Default)]
struct State {
    limit: Option<u64>,
    /// Whether sources that begin alike share preambles.
    are_shared: bool,
    held: HashMap<User, Held>,
    /// With the state of source and headers for which it counts.
    refused: HashMap<User, (Digest, Refusal)>,
    /// Groups whose preamble is being made.
    in_work: HashSet<Group>,
    turns: u64,
}

pub struct Table {
    folder: PathBuf,
    /// The folders that were made.
    count: AtomicU64,
    state: Arc<Mutex<State>>,
}

/// The preamble of a group is being made, as long as this exists.
pub struct InWork {
    group: Group,
    state: Arc<Mutex<State>>,
}

impl Drop for InWork {
    fn drop(&mut self) {
        lock(&self.state).in_work.remove(&self.group);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    /// Removes the preambles of an earlier engine, because their facts are lost.
    pub fn new(folder: PathBuf) -> Table {
        let _ = fs::remove_dir_all(&folder);
        Table {
            folder,
            count: AtomicU64::new(0),
            state: Arc::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
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

    /// Whether sources that begin alike share preambles.
    pub fn share(&self, are_shared: bool) {
        let mut state = self.state();
        state.are_shared = are_shared;
        let is_of_group = |user: &User| matches!(user, User::Group(_));
        let of_groups: Vec<User> = state.held.keys().filter(|user| is_of_group(user)).cloned().collect();
        let gone: Vec<_> = match are_shared {
            true => Vec::new(),
            false => of_groups.iter().filter_map(|user| state.held.remove(user)).collect(),
        };
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

    pub fn are_shared(&self) -> bool {
        let state = self.state();
        state.limit.is_some() && state.are_shared
    }

    /// A new folder, for a preamble or for the outputs of one compile.
    pub fn make_folder(&self) -> io::Result<OwnFolder> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let folder = OwnFolder(self.folder.join(number.to_string()));
        fs::create_dir_all(folder.path())?;
        Ok(folder)
    }

    /// Claims the making of a group's preamble. `None` if it is being made.
    pub fn begin(&self, group: Group) -> Option<InWork> {
        let state = self.state.clone();
        let is_first = self.state().in_work.insert(group);
        is_first.then(|| InWork { group, state })
    }

    pub fn find(&self, user: &User) -> Option<Arc<Preamble>> {
        let mut state = self.state();
        state.turns += 1;
        let turn = state.turns;
        let held = state.held.get_mut(user)?;
        held.used = turn;
        Some(held.preamble.clone())
    }

    /// Adds a preamble. Others go if there is no room for all. Whether it fits at all.
    pub fn put(&self, user: User, preamble: Preamble) -> bool {
        let mut state = self.state();
        let Some(limit) = state.limit.filter(|limit| preamble.size <= *limit) else {
            return false;
        };
        state.turns += 1;
        let held = Held::new(preamble, state.turns);
        let old = state.held.remove(&user);
        let gone = state.shrink(limit - held.preamble.size);
        state.refused.remove(&user);
        state.held.insert(user, held);
        drop(state);
        // Their files are removed without the lock.
        drop((old, gone));
        true
    }

    /// A compile that began after this preamble is in place.
    pub fn note_served(&self, user: &User) {
        if let Some(held) = self.state().held.get_mut(user) {
            held.served += 1;
        }
    }

    /// A compile had to run again without this preamble. Returns whether too many have.
    pub fn note_failed(&self, user: &User) -> bool {
        let mut state = self.state();
        let Some(held) = state.held.get_mut(user) else {
            return false;
        };
        held.failed += 1;
        held.failed >= MOST_FAILED && held.failed >= held.served
    }

    /// Notes that there is no preamble here, until the beginning or a header changes.
    pub fn refuse(&self, user: User, inputs: Digest, why: Refusal) {
        let mut state = self.state();
        if state.refused.len() >= MOST_REFUSALS {
            state.refused.clear();
        }
        let gone = state.held.remove(&user);
        state.refused.insert(user, (inputs, why));
        drop(state);
        drop(gone);
    }

    pub fn is_refused(&self, user: &User, inputs: &Digest) -> bool {
        let state = self.state();
        state.refused.get(user).is_some_and(|(refused, _)| refused == inputs)
    }

    /// Why there is none here, if that is known.
    pub fn refusal(&self, user: &User) -> Option<Refusal> {
        self.state().refused.get(user).map(|(_, why)| *why)
    }

    /// For `wafd status`.
    pub fn describe(&self) -> Value {
        let state = self.state();
        let shared = state.held.keys().filter(|user| matches!(user, User::Group(_)));
        json!({
            "limit": state.limit,
            "count": state.held.len(),
            "shared": shared.count(),
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
            let Some(user) = oldest.map(|(user, _)| user.clone()) else {
                break;
            };
            if let Some(held) = self.held.remove(&user) {
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

    fn spot(name: &str) -> User {
        User::Source(Spot {
            key: Digest::of(name.as_bytes()),
            folder: b"/f".to_vec(),
            known_folders: Vec::new(),
        })
    }

    fn group(name: &str) -> Group {
        let text = Digest::of(name.as_bytes());
        Group { compile: text, text }
    }

    fn preamble(table: &Table, size: u64) -> Preamble {
        Preamble {
            compiler: Compiler::Gcc,
            text: Digest::of(b"text"),
            length: 4,
            is_shared: false,
            inputs: Digest::of(b"inputs"),
            folder: table.make_folder().unwrap(),
            name: Vec::new(),
            dependencies: Vec::new(),
            basis: Entry::default(),
            accesses: Vec::new(),
            size,
            gain: 0,
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

    #[test]
    fn a_group_is_given_up_once_most_of_its_compiles_have_failed() {
        let folder = TestFolder::new();
        let table = Table::new(folder.path("preambles"));
        table.set_limit(Some(10));
        let user = User::Group(group("a"));
        assert!(!table.note_failed(&user), "there is none");
        table.put(user.clone(), preamble(&table, 1));
        table.note_served(&user);
        assert_eq!([(); 3].map(|()| table.note_failed(&user)), [false, false, true]);
        table.put(user.clone(), preamble(&table, 1));
        (0..4).for_each(|_| table.note_served(&user));
        assert_eq!([(); 4].map(|()| table.note_failed(&user)), [false, false, false, true]);
    }

    #[test]
    fn what_groups_share_goes_when_nothing_is_to_be_shared() {
        let folder = TestFolder::new();
        let table = Table::new(folder.path("preambles"));
        table.set_limit(Some(10));
        table.share(true);
        let user = User::Group(group("a"));
        table.put(user.clone(), preamble(&table, 1));
        table.put(spot("a"), preamble(&table, 1));
        assert!(table.are_shared() && table.find(&user).is_some());
        table.share(false);
        assert!(!table.are_shared() && table.find(&user).is_none() && table.find(&spot("a")).is_some());
    }

    #[test]
    fn one_at_a_time_makes_the_preamble_of_a_group() {
        let folder = TestFolder::new();
        let table = Table::new(folder.path("preambles"));
        let first = table.begin(group("a"));
        assert!(first.is_some() && table.begin(group("b")).is_some());
        assert!(table.begin(group("a")).is_none() && table.begin(group("a")).is_none());
        drop(first);
        assert!(table.begin(group("a")).is_some());
    }
}
