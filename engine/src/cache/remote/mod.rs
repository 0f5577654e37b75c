//! What the cache knows of stores that machines share: what it may ask them (`Remote`), the formats that are exchanged, and
//! what may be used of them. It does not know where such stores are, nor their protocols: `tier` does.

pub mod bundle;
pub mod foreign;
pub mod named;
pub mod wrapped;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use std::time::Duration;

use crate::bytes::digest::Digest;
use crate::cluster::message::{Execute, Failure};
use crate::report::remote::Tier;
use bundle::Bundle;
use wrapped::Wrapped;

/// The answer of other stores about a key.
#[derive(Default)]
pub struct Findings {
    pub bundle: Bundle,
    /// The number of the store that has it.
    pub tier: Option<usize>,
    /// For each store that has nothing, the reason in words.
    pub words: Vec<String>,
}

/// An entry that was stored here, to be given to others.
#[derive(Clone)]
pub struct Offer {
    pub key: Digest,
    pub entry: Arc<[u8]>,
    pub needs: Vec<Digest>,
}

/// A blob, if it is still there, and not too large.
pub type Load = dyn Fn(&Digest) -> Option<Wrapped> + Send + Sync;
/// Called once: with the answer, or when there will be none.
pub type Again<T> = Box<dyn FnOnce(T) + Send>;
/// Receives counts, by name.
pub type Count = Box<dyn Fn(&str, u64) + Send + Sync>;
/// Opens the stores that a setting names. `None` if it names none.
pub type Open = dyn Fn(&str, Count, Arc<Load>) -> Result<Option<Arc<dyn Remote>>, String> + Send + Sync;

/// Stores that machines share, in the order in which they are asked. No call here blocks.
pub trait Remote: Send + Sync {
    /// Whether there is a store from this number on that would be asked.
    fn are_there(&self, from: usize) -> bool;

    fn name(&self, number: usize) -> &str;

    /// Asks one store after the other, from this number on, until one has an answer. `words` are the reasons of earlier
    /// ones.
    fn find(self: Arc<Self>, key: Digest, from: usize, words: Vec<String>, again: Again<Findings>);

    /// Fetches blobs from this store. None if it does not give them.
    fn fetch(&self, tier: usize, wanted: Vec<Digest>, again: Again<Vec<(Digest, Wrapped)>>);

    /// Offers an entry to the stores before this number.
    fn offer(&self, offer: &Offer, end: usize);

    /// Whether a store before this number would accept an offer.
    fn take_offers(&self, end: usize) -> bool;

    /// Where commands run elsewhere, if one of the addresses says so.
    fn executor(&self) -> Option<Arc<dyn Executor>>;

    /// Each store with its state.
    fn describe(&self) -> Vec<Tier>;

    /// No request waits any more. Uploads get a short time.
    fn close(&self);
}

/// What a cluster has made of a command. Nothing of it is checked yet.
pub struct Made {
    pub key: Digest,
    pub entry: Vec<u8>,
    pub blobs: Vec<Vec<u8>>,
}

/// Why it has made nothing.
pub struct Unmade {
    pub why: Failure,
    pub words: String,
}

/// A cluster that runs commands. No call here blocks for longer than a local socket does.
pub trait Executor: Send + Sync {
    fn name(&self) -> &str;

    /// How many commands may be there at once.
    fn jobs(&self) -> usize;

    /// Whether it would take a command now. While it is left alone after a fault, it takes none.
    fn may_take(&self) -> bool;

    /// The same for a command that will be sent: after a fault, one tries the cluster for all.
    fn takes(&self) -> bool;

    /// How long it is left alone after a fault until a command tries it; zero while one does. `None` if it takes commands.
    fn left_alone(&self) -> Option<Duration>;

    /// Why it was left alone the last time.
    fn last_fault(&self) -> Option<String>;

    /// Returns the number by which the command can be cancelled. `again` is called once, however it ends.
    fn execute(&self, execute: Execute, again: Again<Result<Made, Unmade>>) -> u32;

    /// The result is not wanted any more.
    fn cancel(&self, id: u32);

    /// It has given a wrong result. From now on it takes nothing, and its store is not used, as long as the engine runs.
    fn distrust(&self);
}

/// A command on its way to a cluster and back, for the side that may call it off.
pub struct Errand {
    pub executor: Arc<dyn Executor>,
    /// Zero until it is sent.
    id: AtomicU32,
    is_off: AtomicBool,
}

impl Errand {
    pub fn new(executor: Arc<dyn Executor>) -> Arc<Errand> {
        Arc::new(Errand {
            executor,
            id: AtomicU32::new(0),
            is_off: AtomicBool::new(false),
        })
    }

    pub fn send(&self, execute: Execute, again: Again<Result<Made, Unmade>>) {
        let id = self.executor.execute(execute, again);
        self.id.store(id, Ordering::SeqCst);
        if self.is_off() {
            self.executor.cancel(id);
        }
    }

    /// Its result is not wanted any more.
    pub fn call_off(&self) {
        self.is_off.store(true, Ordering::SeqCst);
        match self.id.load(Ordering::SeqCst) {
            0 => {}
            id => self.executor.cancel(id),
        }
    }

    pub fn is_off(&self) -> bool {
        self.is_off.load(Ordering::SeqCst)
    }
}
