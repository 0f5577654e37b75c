//! Stores that machines share: what the cache asks when its own store has nothing, and gives what it stores.
//!
//! ```text
//! a miss ─► tiers ─► window of the first ─► its workers ─► tier ─► shelf ─► again ─► facts, digests, the own store
//!                └─► of the next, if that has nothing, or does not answer
//! an entry ─► uploads ─► tier
//! ```
//!
//! Whoever asks waits in no thread: it is called when the answer is there, or when there will be none. A tier is code that
//! may block; `window` sees to it that nobody waits longer than was agreed, `breaker` that this happens once. Nothing that comes from a
//! tier is trusted: the cache holds blobs against their digests, and facts against the world.

pub mod address;
pub mod breaker;
pub mod counts;
pub mod pulse;
mod redis;
pub mod shelf;
mod stream;
mod tiers;
mod uploads;
mod values;
mod window;
pub mod wrapped;

use crate::cache::digest::Digest;
use address::{Address, Scheme};
use counts::Counts;
use pulse::Pulse;
use shelf::Shelf;
use std::sync::Arc;
use wrapped::Wrapped;

pub use tiers::{Findings, Tiers};
pub use uploads::{Load, Offer};

/// Why a tier gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It is silent: in words, what was waited for.
    Silent(String),
    /// It answered by an error, or what is no answer.
    Failed(String),
}

impl Fault {
    pub fn words(&self) -> &str {
        let (Fault::Silent(words) | Fault::Failed(words)) = self;
        words
    }
}

/// How many ask it at once, and for how many keys each.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub workers: usize,
    pub batch: usize,
}

/// A store that machines share. Every call may block, and ends by the limits that its pulse knows.
pub trait Tier: Send + Sync {
    fn shape(&self) -> Shape;

    /// What there is of each key; nothing is an empty shelf.
    fn find(&self, keys: &[Digest], pulse: &Arc<Pulse>) -> Result<Vec<Shelf>, Fault>;

    /// Blobs that did not come along, in this order.
    fn fetch(&self, wanted: &[Digest], pulse: &Arc<Pulse>) -> Result<Vec<Option<Wrapped>>, Fault>;

    /// Stores an entry with its blobs, which `load` has.
    fn offer(&self, offer: &Offer, load: &Load, pulse: &Arc<Pulse>) -> Result<(), Fault>;
}

/// Connects to nothing yet.
fn open(address: &Address, counts: &Arc<Counts>) -> Result<Box<dyn Tier>, String> {
    match address.scheme {
        Scheme::Redis => Ok(Box::new(values::Shelves::new(
            redis::Redis::new(address)?,
            counts.clone(),
        ))),
        _ => Err(format!("{address}: this engine does not speak that yet")),
    }
}
