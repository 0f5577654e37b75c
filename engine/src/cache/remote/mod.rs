//! What the cache knows of stores that machines share: what it may ask them (`Remote`), the texts that are handed round,
//! and what may be taken of them. It does not know where such stores are, nor how they are spoken to: `tier` does.

pub mod bundle;
pub mod foreign;
pub mod wrapped;

use std::sync::Arc;

use crate::bytes::digest::Digest;
use bundle::Bundle;
use wrapped::Wrapped;

/// What other stores have of a key.
#[derive(Default)]
pub struct Findings {
    pub bundle: Bundle,
    /// Which has it, by its number.
    pub tier: Option<usize>,
    /// Of each that has nothing, in words.
    pub words: Vec<String>,
}

/// An entry that was stored here, for others.
#[derive(Clone)]
pub struct Offer {
    pub key: Digest,
    pub entry: Arc<[u8]>,
    pub needs: Vec<Digest>,
}

/// A blob, if it is still there, and not too large.
pub type Load = dyn Fn(&Digest) -> Option<Wrapped> + Send + Sync;
/// Is called once, when there is an answer, or when there will be none.
pub type Again<T> = Box<dyn FnOnce(T) + Send>;
/// Takes over what was counted, by its name.
pub type Count = Box<dyn Fn(&str, u64) + Send + Sync>;
/// Opens the stores that a setting names; `None` where it names none.
pub type Open = dyn Fn(&str, Count, Arc<Load>) -> Result<Option<Arc<dyn Remote>>, String> + Send + Sync;

/// Stores that machines share, in the order in which they are asked. No call here waits for one of them.
pub trait Remote: Send + Sync {
    /// Whether there is one from this number on that would be asked.
    fn are_there(&self, from: usize) -> bool;

    fn name(&self, number: usize) -> &str;

    /// Asks one after the other, from this number on, until one has something. `words` tell of those before.
    fn find(self: Arc<Self>, key: Digest, from: usize, words: Vec<String>, again: Again<Findings>);

    /// Blobs of what this one has; none if it gives none.
    fn fetch(&self, tier: usize, wanted: Vec<Digest>, again: Again<Vec<(Digest, Wrapped)>>);

    /// To those before this number.
    fn offer(&self, offer: &Offer, end: usize);

    /// Whether one before this number would take an offer.
    fn take_offers(&self, end: usize) -> bool;

    /// Each with how it does, in words.
    fn describe(&self) -> Vec<(String, String)>;

    /// Nobody waits any more; uploads are given a short time.
    fn close(&self);
}
