//! What happened, counted by name: in memory first, so that no command waits for a disk to be counted.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::audit::Unaudited;
use super::remote::foreign::Refusal;
use super::store::Store;
use crate::wire::{MissReason, UncachedReason, UnstoredReason};

/// A count is on disk no later than this and one request.
const OFTEN: Duration = Duration::from_secs(1);

/// What the cache itself counts. Tiers count under names of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counter {
    Hit,
    Miss(MissReason),
    Uncached(UncachedReason),
    Unstored(UnstoredReason),
    Audited,
    Different,
    Unaudited(Unaudited),
    RemoteHit,
    RemoteMiss,
    RemoteRefused(Refusal),
    /// Of this tier, with what was wrong.
    RemoteError(String, String),
    UploadTooLarge,
    UploadUnsigned,
}

impl Counter {
    /// As it is kept in the store.
    pub fn name(&self) -> String {
        match self {
            Counter::Hit => "hits".to_owned(),
            Counter::Miss(why) => format!("misses/{}", why.name()),
            Counter::Uncached(why) => format!("uncached/{}", why.name()),
            Counter::Unstored(why) => format!("not stored/{}", why.name()),
            Counter::Audited => "audited".to_owned(),
            Counter::Different => "different".to_owned(),
            Counter::Unaudited(why) => format!("not audited/{}", why.name()),
            Counter::RemoteHit => "remote hits".to_owned(),
            Counter::RemoteMiss => "remote misses".to_owned(),
            Counter::RemoteRefused(why) => format!("remote refused/{}", why.name()),
            Counter::RemoteError(tier, why) => format!("remote errors/{tier}: {why}"),
            Counter::UploadTooLarge => "uploads dropped/too large".to_owned(),
            Counter::UploadUnsigned => "uploads dropped/the signing key cannot be used".to_owned(),
        }
    }
}

struct Pending {
    counts: BTreeMap<String, u64>,
    since: Instant,
}

pub struct Tally {
    pending: Mutex<Pending>,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            pending: Mutex::new(Pending {
                counts: BTreeMap::new(),
                since: Instant::now(),
            }),
        }
    }
}

impl Tally {
    pub fn add(&self, name: impl Into<String>, n: u64) {
        let mut pending = self.pending();
        *pending.counts.entry(name.into()).or_default() += n;
    }

    /// Whether it is time to write it down, told to one who asks.
    pub fn is_due(&self) -> bool {
        let mut pending = self.pending();
        let is_due = !pending.counts.is_empty() && pending.since.elapsed() >= OFTEN;
        if is_due {
            pending.since = Instant::now();
        }
        is_due
    }

    /// Has all that was counted on disk. What cannot be written, on a full disk, is counted still, and written later.
    pub fn flush(&self, store: &Store) -> io::Result<()> {
        let mut pending = self.pending();
        let counts = std::mem::take(&mut pending.counts);
        pending.since = Instant::now();
        drop(pending);
        let written = write(store, &counts);
        if written.is_err() {
            let mut pending = self.pending();
            for (name, n) in counts {
                *pending.counts.entry(name).or_default() += n;
            }
        }
        written
    }

    /// Forgets what is not on disk yet.
    pub fn clear(&self) {
        self.pending().counts.clear();
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All counts, also those that are not on disk yet; waits for no disk.
    pub fn look(&self, store: &Store) -> BTreeMap<String, u64> {
        let mut all = store.counters();
        let pending = self.pending();
        for (name, n) in &pending.counts {
            *all.entry(name.clone()).or_default() += n;
        }
        all
    }
}

fn write(store: &Store, counts: &BTreeMap<String, u64>) -> io::Result<()> {
    let counts: Vec<_> = counts.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    if counts.is_empty() {
        return Ok(());
    }
    store.count(&counts)
}
