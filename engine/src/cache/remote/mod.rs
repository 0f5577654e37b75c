//! What the cache knows of stores that machines share: what it may ask them (`Remote`), the formats that are exchanged, and
//! what may be used of them. It does not know where such stores are, nor their protocols: `tier` does.

pub mod bundle;
pub mod foreign;
pub mod wrapped;

use std::sync::Arc;

use crate::bytes::digest::Digest;
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

    /// Each store with its state.
    fn describe(&self) -> Vec<Tier>;

    /// No request waits any more. Uploads get a short time.
    fn close(&self);
}
