//! Stores that machines share: the cache asks them when its own store has no entry, and gives them what it stores.
//!
//! ```text
//! a miss ─► tiers ─► window of the first ─► its workers ─► tier ─► bundle ─► again ─► facts, digests, the own store
//!                └─► of the next, if that has nothing, or does not answer
//! an entry ─► uploads ─► tier
//! ```
//!
//! No thread waits for an answer: the caller's function is called when there is an answer, or when there will be none. A
//! tier is code that may block. `window` limits how long callers wait, and `breaker` makes sure that this happens once.
//! Nothing that comes from a tier is trusted: the cache checks blobs against their digests, and facts against the world.

pub mod bazel;
pub mod breaker;
pub mod cluster;
pub mod counts;
mod distrusted;
mod executor;
pub mod heartbeat;
mod line;
mod queue;
mod redis;
mod room;
mod s3;
mod stream;
mod tiers;
mod uploads;
mod values;
pub(crate) mod web;
mod webdav;
mod window;

use crate::bytes::digest::Digest;
use crate::cache::remote::bundle::Bundle;
use crate::cache::remote::wrapped::Wrapped;
use crate::cache::remote::{Count, Load, Offer, Remote};
use crate::settings::address::{self, Address, Layout, Scheme};
use counts::Counts;
use heartbeat::Heartbeat;
use std::sync::Arc;
use tiers::Tiers;
pub use tiers::UPLOAD;
use values::Bundles;

/// Why a tier gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It did not answer in time; the text says for what we waited.
    Silent(String),
    /// It answered with an error, or with something invalid.
    Failed(String),
    /// It works, and refuses what was offered.
    Declined(String),
}

impl Fault {
    pub fn words(&self) -> &str {
        let (Fault::Silent(words) | Fault::Failed(words) | Fault::Declined(words)) = self;
        words
    }

    /// The answer is invalid.
    fn garbled() -> Fault {
        Fault::Failed("its answer is none".to_owned())
    }
}

/// How many questions are asked at once, how many keys each of them has, and how many uploads run at once.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub workers: usize,
    pub batch: usize,
    pub uploads: usize,
}

/// A store that machines share. Every call may block, and ends within the limits of its heartbeat.
pub trait Tier: Send + Sync {
    fn shape(&self) -> Shape;

    /// The entries of each key. An empty bundle means none.
    fn find(&self, keys: &[Digest], heartbeat: &Arc<Heartbeat>) -> Result<Vec<Bundle>, Fault>;

    /// Blobs that did not come with the entries, in this order.
    fn fetch(&self, wanted: &[Digest], heartbeat: &Arc<Heartbeat>) -> Result<Vec<Option<Wrapped>>, Fault>;

    /// Stores an entry with its blobs, which are in `load`.
    fn offer(&self, offer: &Offer, load: &Load, heartbeat: &Arc<Heartbeat>) -> Result<(), Fault>;
}

/// The stores that the setting `remote` names. None if it names none. No connection is made yet.
pub fn open_all(text: &str, count: Count, load: Arc<Load>) -> Result<Option<Arc<dyn Remote>>, String> {
    let addresses = address::parse_all(text)?;
    if addresses.is_empty() {
        return Ok(None);
    }
    Ok(Some(Tiers::open(&addresses, &Arc::new(Counts::new(count)), &load)))
}

/// Makes no connection yet.
fn open(address: &Address, counts: &Arc<Counts>) -> Result<Box<dyn Tier>, String> {
    let counts = counts.clone();
    Ok(match (address.scheme, address.layout) {
        (Scheme::Room | Scheme::Grpc, _) => Box::new(room::Room::new(address, &counts)?),
        (Scheme::Redis, _) => Box::new(Bundles::new(redis::Redis::new(address)?, counts)),
        (Scheme::Http, Layout::WebDav) => Box::new(Bundles::new(webdav::WebDav::new(address)?, counts)),
        (Scheme::Http, Layout::Bazel) => Box::new(Bundles::new(bazel::Bazel::new(address)?, counts)),
        (Scheme::S3, _) => Box::new(Bundles::new(s3::S3::new(address)?, counts)),
    })
}
