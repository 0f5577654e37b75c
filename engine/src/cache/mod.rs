//! The cache: what commands depended on, and what came of them.
//!
//! ```text
//! execute ─► action ─► entries of its key ─► facts that hold ─► restore ─► outcome
//!               │                └─► none: run it observed ─► accesses ─► facts ─► entry ─► store
//!               └─► not cacheable: a named reason
//! ```
//!
//! The files here are the steps of one object, `Cache`: `answer` looks a command up and puts its outputs in place, `search`
//! asks other stores, `keep` stores, `audit` compiles hits again, `explain` and `request` answer questions; `cache_threads` are the
//! threads that do so. The folders are rooms of their own, of which none knows `Cache`.
//!
//! Knows nothing of sockets, slots and connections; what other machines have it is told by a `Remote`. Nothing here can fail a build: whoever is in doubt says why, and the
//! real command runs.

pub mod answer;
pub mod audit;
pub mod cache_threads;
pub mod compiler;
mod explain;
pub mod journal;
pub mod keep;
pub mod lookup;
pub mod remote;
pub mod request;
mod search;
pub mod store;
pub mod story;
pub mod tally;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use answer::Question;
use audit::{Audit, Unaudited};
use compiler::action::Action;
use compiler::outputs::Role;
use journal::Journal;
use lookup::flight::Flights;
use remote::Remote;
use store::Store;
use tally::{Counter, Tally};

use crate::facts::world::{self, World};
use crate::trust::signature::{self, Signer, Trust};

struct Keys {
    trust: Arc<Trust>,
    signer: Result<Option<Arc<Signer>>, String>,
}

impl Default for Keys {
    fn default() -> Keys {
        Keys {
            trust: Arc::default(),
            signer: Ok(None),
        }
    }
}

/// One store, and all that is known of it and of the world.
pub struct Cache {
    folder: PathBuf,
    store: Arc<Store>,
    /// How often the store was opened when counts began.
    openings: AtomicU64,
    world: World,
    flights: Arc<Flights<Question>>,
    journal: Journal,
    tally: Arc<Tally>,
    /// Held while both are written.
    writing: Mutex<()>,
    audit: Audit,
    /// Outputs are links into the store.
    links: AtomicBool,
    /// Stores that machines share.
    tiers: RwLock<Option<Arc<dyn Remote>>>,
    /// Opens them anew when they are set.
    open: Box<remote::Open>,
    /// Whose entries are taken from there, and with which key ours are signed.
    keys: RwLock<Keys>,
    /// Takes questions that come again.
    again: Arc<dyn Fn(Question) + Send + Sync>,
}

impl Cache {
    /// `again` takes questions that have waited for somebody else's command; `open` opens stores that machines share.
    pub fn new(
        folder: PathBuf,
        store: Store,
        again: impl Fn(Question) + Send + Sync + 'static,
        open: Box<remote::Open>,
    ) -> Cache {
        let journal = Journal::new(folder.join(store::FOLDER).join("journal"));
        let again: Arc<dyn Fn(Question) + Send + Sync> = Arc::new(again);
        let after_flights = again.clone();
        let cache = Cache {
            folder,
            openings: AtomicU64::new(store.openings()),
            store: Arc::new(store),
            world: World::new(world::Capacity::default()),
            flights: Flights::new(move |question| after_flights(question)),
            journal,
            tally: Arc::default(),
            writing: Mutex::default(),
            audit: Audit::default(),
            links: AtomicBool::new(false),
            tiers: RwLock::new(None),
            open,
            keys: RwLock::default(),
            again,
        };
        cache.begin_counts();
        cache.forget_audits();
        cache
    }

    /// So many percent of hits are compiled again.
    pub fn set_audit(&self, percent: f64) {
        self.audit.set(percent);
    }

    /// So many hits are still to be compiled again.
    pub fn set_audits_waiting(&self, count: usize) {
        self.audit.set_waiting(count);
    }

    /// A hit is not compiled again, for a reason.
    pub fn leave_audit(&self, why: Unaudited) {
        self.count(&Counter::Unaudited(why));
    }

    /// Whether outputs are restored as read-only links to what the store holds.
    pub fn set_links(&self, are_wanted: bool) {
        self.links.store(are_wanted, Ordering::Relaxed);
        self.store.set_plain(are_wanted);
    }

    fn are_linked(&self) -> bool {
        self.links.load(Ordering::Relaxed)
    }

    /// No command writes into the store by a link that was left in its output's place.
    fn make_way(&self, question: &Question, action: &Action) {
        let folder = Path::new(OsStr::from_bytes(&question.folder));
        let mut outputs = action.knows.outputs.iter();
        let main = outputs.find(|output| output.role == Role::Main);
        if let Some(main) = main.filter(|_| self.are_linked()) {
            lookup::restore::make_way(&folder.join(OsStr::from_bytes(&main.path)));
        }
    }

    fn is_due_for_audit(&self) -> bool {
        self.audit.is_due()
    }

    /// Looks whether the store is where it was; counts begin anew with another one.
    fn heal(&self) {
        self.store.heal();
        let openings = self.store.openings();
        if self.openings.swap(openings, Ordering::Relaxed) != openings {
            self.begin_counts();
        }
    }

    fn count(&self, what: &Counter) {
        self.tally.add(what.name(), 1);
    }

    /// From now on these are asked for what is not in the store.
    pub fn set_remote(&self, text: &str) -> Result<(), String> {
        let tally = self.tally.clone();
        let count = move |name: &str, n: u64| tally.add(name, n);
        let tiers = (self.open)(text, Box::new(count), search::load(&self.store))?;
        let mut place = self.tiers.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *place, tiers);
        drop(place);
        if let Some(old) = old {
            old.close();
        }
        Ok(())
    }

    /// From now on only what these keys have signed is taken from other stores. A mistake means that nothing is.
    pub fn set_trusted_keys(&self, text: &str) -> Result<(), String> {
        let trust = Trust::load(text);
        let done = match &trust {
            Trust::Nobody(why) => Err(why.clone()),
            _ => Ok(()),
        };
        self.keys.write().unwrap_or_else(PoisonError::into_inner).trust = Arc::new(trust);
        done
    }

    /// From now on what is uploaded is signed with the key in this file. If it cannot be, nothing is uploaded.
    pub fn set_signing_key(&self, path: &str) -> Result<(), String> {
        let loaded = match path {
            "" => Ok(None),
            path => signature::check_place(path).and_then(|()| Signer::load(Path::new(path)).map(Some)),
        };
        let done = loaded.as_ref().map(drop).map_err(Clone::clone);
        self.keys.write().unwrap_or_else(PoisonError::into_inner).signer = loaded.map(|key| key.map(Arc::new));
        done
    }

    fn trust(&self) -> Arc<Trust> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).trust.clone()
    }

    fn signer(&self) -> Result<Option<Arc<Signer>>, String> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).signer.clone()
    }

    fn tiers(&self) -> Option<Arc<dyn Remote>> {
        self.tiers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Uploads have a short time to end.
    pub fn close_tiers(&self) {
        if let Some(tiers) = self.tiers() {
            tiers.close();
        }
    }

    /// Whether the journal and the counts are to be written. A disk may hang: only who owes no answer may write them.
    pub fn is_writing_due(&self) -> bool {
        // Whoever is at it may hang there, and is enough.
        self.writing.try_lock().is_ok() && self.is_anything_due()
    }

    fn is_anything_due(&self) -> bool {
        // Both are asked: each begins its time anew.
        self.journal.is_due() | self.tally.is_due()
    }

    /// Has all that was counted on disk.
    pub fn flush(&self) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.journal.flush();
        if let Err(error) = self.tally.flush(&self.store) {
            log::warn!("count in the store: {error}");
        }
    }
}
