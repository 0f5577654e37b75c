//! The cache: what commands depended on, and their results.
//!
//! ```text
//! execute ─► action ─► entries of its key ─► facts that hold ─► restore ─► outcome
//!               │                └─► none: run it observed ─► accesses ─► facts ─► entry ─► store
//!               └─► not cacheable: a named reason
//! ```
//!
//! The files here are the steps of one object, `Cache`: `answer` looks a command up and puts its outputs in place, `search`
//! asks the stores that machines share, `keep` stores results, `rerun` runs commands again when there is time: for `audit`,
//! which compares hits, for `prepare`, which reads headers once, and for `by_text`, which compares what the preprocessor
//! leaves. `away` has commands run on a cluster, for which `foresee` says what they will read. `explain` and `request` answer
//! questions, `export` gives entries away. `cache_threads` has the threads that do this. The folders are rooms of their own,
//! and none of them knows
//! `Cache`.
//!
//! The cache knows nothing of sockets, slots and connections. It reaches the stores of other machines through the trait
//! `Remote`. Nothing here can fail a build: in case of doubt there is a named reason, and the real command runs.

pub mod answer;
pub mod audit;
pub mod away;
mod by_text;
pub mod cache_threads;
pub mod checkout;
pub mod compiler;
mod explain;
mod export;
mod failure;
pub mod foresee;
pub mod journal;
pub mod keep;
pub mod lookup;
pub mod preamble;
mod prepare;
mod rehearsal;
pub mod remote;
pub mod request;
pub mod rerun;
mod search;
mod share;
pub mod store;
pub mod story;
pub mod tally;
#[cfg(test)]
mod test_support;
mod toolchains;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use answer::{Question, Wishes};
use audit::Audit;
use checkout::Checkouts;
use compiler::action::Action;
use compiler::outputs::Role;
use journal::Journal;
use lookup::flight::Flights;
use preamble::alike::Alike;
use preamble::table::Table;
use remote::named::NamedStores;
use remote::Remote;
use store::Store;
use tally::{Counter, Tally};
use toolchains::Toolchains;

use crate::facts::world::{self, World};
use crate::observe::access::Bytes;
use crate::trust::signature::{self, Signer, Trust};

#[derive(Default)]
struct Keys {
    /// The keys whose entries are accepted from other stores.
    trust: Arc<Trust>,
    /// The key with which our own entries are signed, or the reason why it cannot be used.
    signer: Option<Result<Arc<Signer>, String>>,
}

/// One store, with everything that the engine keeps about it in memory.
pub struct Cache {
    folder: PathBuf,
    store: Arc<Store>,
    /// The store's number of openings when the counters were started.
    openings: AtomicU64,
    world: World,
    flights: Arc<Flights<Question>>,
    checkouts: Checkouts,
    journal: Journal,
    tally: Arc<Tally>,
    /// Held while the journal and the counters are written.
    writing: Mutex<()>,
    audit: Audit,
    preambles: Table,
    /// What sources include.
    scans: foresee::Scans,
    /// What compilers have read of themselves.
    toolchains: Toolchains,
    /// Which sources begin alike.
    alike: Mutex<Alike>,
    /// Whether what the preprocessor leaves is compared.
    compares_texts: AtomicBool,
    leaves_out_comments: AtomicBool,
    caches_failures: AtomicBool,
    /// How many texts are to be kept when there is time.
    texts_waiting: Arc<AtomicU64>,
    /// Whether commands that ask for the time are run a second time, and of which further programs.
    proves_commands: AtomicBool,
    proved_programs: RwLock<Arc<[Bytes]>>,
    rehearsals_waiting: Arc<AtomicU64>,
    /// Whether outputs are restored as links into the store.
    links: AtomicBool,
    /// The stores that machines share.
    tiers: NamedStores,
    keys: RwLock<Keys>,
    /// Sends a question back to the cache threads.
    ask_again: Arc<dyn Fn(Question) + Send + Sync>,
}

impl Cache {
    /// `ask_again` receives the questions that have waited for another request's command, or for a tier.
    pub fn new(
        folder: PathBuf,
        store: Store,
        ask_again: impl Fn(Question) + Send + Sync + 'static,
        open_tiers: Box<remote::Open>,
    ) -> Cache {
        let journal = Journal::new(folder.join(store::FOLDER).join("journal"));
        let ask_again: Arc<dyn Fn(Question) + Send + Sync> = Arc::new(ask_again);
        let after_flights = ask_again.clone();
        let preambles = Table::new(folder.join(store::FOLDER).join("preambles"));
        let openings = AtomicU64::new(store.openings());
        let (store, tally) = (Arc::new(store), Arc::<Tally>::default());
        let (counted, loaded) = (tally.clone(), Arc::downgrade(&store));
        let open = move |text: &str| {
            let tally = counted.clone();
            let count = move |name: &str, n: u64| tally.add(name, n);
            open_tiers(text, Box::new(count), search::load(&loaded))
        };
        let cache = Cache {
            folder,
            preambles,
            scans: foresee::Scans::default(),
            toolchains: Toolchains::default(),
            alike: Mutex::default(),
            openings,
            store,
            world: World::new(world::Capacity::default()),
            flights: Flights::new(move |question| after_flights(question)),
            checkouts: Checkouts::default(),
            journal,
            tally,
            writing: Mutex::default(),
            audit: Audit::default(),
            compares_texts: AtomicBool::new(false),
            leaves_out_comments: AtomicBool::new(false),
            caches_failures: AtomicBool::new(false),
            texts_waiting: Arc::default(),
            proves_commands: AtomicBool::new(false),
            proved_programs: RwLock::new(Arc::new([])),
            rehearsals_waiting: Arc::default(),
            links: AtomicBool::new(false),
            tiers: NamedStores::new(Box::new(open)),
            keys: RwLock::default(),
            ask_again,
        };
        cache.begin_counts();
        [false, true]
            .into_iter()
            .for_each(|is_urgent| cache.remove_rerun_folder(is_urgent));
        cache
    }

    /// Sets the percentage of hits that are compiled again.
    pub fn set_audit(&self, percent: f64) {
        self.audit.set(percent);
    }

    /// Sets the number of hits that wait to be compiled again, for the statistics.
    pub fn set_audits_waiting(&self, count: usize) {
        self.audit.set_waiting(count);
    }

    fn alike(&self) -> MutexGuard<'_, Alike> {
        self.alike.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how many bytes of disk preambles may use: `None` if there are to be none, 0 for a part of what is free.
    pub fn set_preambles(&self, limit: Option<u64>) {
        self.preambles.set_limit(limit);
    }

    /// Sets whether outputs are restored as read-only links into the store.
    pub fn set_links(&self, are_wanted: bool) {
        self.links.store(are_wanted, Ordering::Relaxed);
        self.store.set_plain(are_wanted);
    }

    fn are_linked(&self) -> bool {
        self.links.load(Ordering::Relaxed)
    }

    /// Removes the main output if it is a link into the store. Otherwise the command would write into the store.
    fn remove_link_to_store(&self, question: &Question, action: &Action) {
        let folder = Path::new(OsStr::from_bytes(&question.folder));
        let mut outputs = action.knows.outputs.iter();
        let main = outputs.find(|output| output.role == Role::Main);
        if let Some(main) = main.filter(|_| self.are_linked()) {
            lookup::restore::make_way(&folder.join(OsStr::from_bytes(&main.path)));
        }
    }

    /// Checks whether the store is still in its place. If another one is opened, the counters start again.
    fn heal(&self) {
        self.store.heal();
        let openings = self.store.openings();
        if self.openings.swap(openings, Ordering::Relaxed) != openings {
            self.begin_counts();
        }
    }

    /// Counts a miss that could have become a hit.
    fn count_miss(&self, ticket: &answer::Ticket) {
        self.count(&Counter::Miss(ticket.why));
        if tally::is_of_configure(&ticket.question.folder, &ticket.question.argv) {
            self.count(&Counter::OfConfigure(crate::wire::Known::Miss));
        }
    }

    fn count(&self, what: &Counter) {
        self.tally.add(what.name(), 1);
    }

    /// Sets the stores that are asked for what is not in this one.
    pub fn set_remote(&self, text: &str) -> Result<(), String> {
        self.tiers.set(text)
    }

    /// Sets the keys of which one must have signed an entry from another store. If the text has a mistake, nothing is
    /// taken from other stores.
    pub fn set_trusted_keys(&self, text: &str) -> Result<(), String> {
        let trust = Trust::load(text);
        let done = match &trust {
            Trust::Nobody(why) => Err(why.clone()),
            _ => Ok(()),
        };
        self.keys.write().unwrap_or_else(PoisonError::into_inner).trust = Arc::new(trust);
        done
    }

    /// Sets the file with the key that signs uploads. If the key cannot be used, nothing is uploaded.
    pub fn set_signing_key(&self, path: &str) -> Result<(), String> {
        let load = || signature::check_place(path).and_then(|()| Signer::load(Path::new(path)).map(Arc::new));
        let signer = (!path.is_empty()).then(load);
        let done = signer.clone().map_or(Ok(()), |loaded| loaded.map(drop));
        self.keys.write().unwrap_or_else(PoisonError::into_inner).signer = signer;
        done
    }

    fn trust(&self) -> Arc<Trust> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).trust.clone()
    }

    fn signer(&self) -> Option<Result<Arc<Signer>, String>> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).signer.clone()
    }

    /// The shared stores for commands of a client.
    fn tiers(&self, wishes: &Wishes) -> Option<Arc<dyn Remote>> {
        self.tiers.find(wishes.remote.as_ref())
    }

    /// Closes the shared stores. Uploads get a short time to finish.
    pub fn close_tiers(&self) {
        self.tiers.close();
    }

    /// Whether it is time to write the journal and the counters. A disk may block, so only a thread that owes no answer
    /// may write them.
    pub fn is_writing_due(&self) -> bool {
        // If another thread is writing, it may be blocked: one blocked thread is enough.
        // Both are asked (`|`, not `||`), because each starts its interval again when it is due.
        self.writing.try_lock().is_ok() && (self.journal.is_due() | self.tally.is_due())
    }

    /// Writes the journal and the counters to the disk.
    pub fn flush(&self) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.journal.flush();
        if let Err(error) = self.tally.flush(&self.store) {
            log::warn!("count in the store: {error}");
        }
    }
}
