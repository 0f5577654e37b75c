//! The counters of the cache. They are counted in memory first, so that no command waits for a disk.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::away::NotAway;
use super::preamble::Refusal as Refused;
use super::remote::foreign::Refusal;
use super::rerun::NotCompared;
use super::store::Store;
use crate::wire::{Known, MissReason, Strings, UncachedReason, UnstoredReason};

/// After this time, the next request causes a write to the disk.
const INTERVAL: Duration = Duration::from_secs(1);

/// The events that the cache itself counts. Tiers count under names of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counter {
    Hit,
    /// It is counted as a hit, too.
    TextHit,
    /// There is an entry of a compile's text.
    TextKept,
    /// A second run has made the same as the first one.
    Proved,
    /// It has made something else.
    Refuted,
    /// There was no second run, or nothing could be concluded from it.
    Unproved(NotCompared),
    Miss(MissReason),
    Uncached(UncachedReason),
    Unstored(UnstoredReason),
    /// A command of a configure test. It is counted as a hit, a miss or uncached, too.
    OfConfigure(Known),
    Audited,
    Different,
    Unaudited(NotCompared),
    /// A source's headers were read once, for its next compiles.
    PreambleMade,
    /// A compile began after them.
    PreambleUsed,
    PreambleRefused(Refused),
    /// The plain compile has made the same as one that began after shared headers.
    PreambleProved,
    /// There was no such compile.
    PreambleUnproved,
    RemoteHit,
    RemoteMiss,
    RemoteRefused(Refusal),
    /// The tier's name, and the error.
    RemoteError(String, String),
    UploadTooLarge,
    UploadUnsigned,
    /// A command ran on a cluster.
    Away,
    /// It ran here, though it waited.
    NotAway(NotAway),
    /// The same by the cluster's address. They are counted beside those.
    AwayAt(String),
    NotAwayAt(String, NotAway),
}

impl Counter {
    /// The name of the counter in the store.
    pub fn name(&self) -> String {
        match self {
            Counter::Hit => "hits".to_owned(),
            Counter::TextHit => "text hits".to_owned(),
            Counter::TextKept => "texts kept".to_owned(),
            Counter::Proved => "proved".to_owned(),
            Counter::Refuted => "refuted".to_owned(),
            Counter::Unproved(why) => format!("not proved/{}", why.name()),
            Counter::Miss(why) => format!("misses/{}", why.name()),
            Counter::Uncached(why) => format!("uncached/{}", why.name()),
            Counter::Unstored(why) => format!("not stored/{}", why.name()),
            Counter::OfConfigure(known) => format!("configure/{}", known.name()),
            Counter::Audited => "audited".to_owned(),
            Counter::Different => "different".to_owned(),
            Counter::Unaudited(why) => format!("not audited/{}", why.name()),
            Counter::PreambleMade => "preambles made".to_owned(),
            Counter::PreambleUsed => "preambles used".to_owned(),
            Counter::PreambleRefused(why) => format!("preambles refused/{}", why.name()),
            Counter::PreambleProved => "preambles proved".to_owned(),
            Counter::PreambleUnproved => "preambles unproved".to_owned(),
            Counter::RemoteHit => "remote hits".to_owned(),
            Counter::RemoteMiss => "remote misses".to_owned(),
            Counter::RemoteRefused(why) => format!("remote refused/{}", why.name()),
            Counter::RemoteError(tier, why) => format!("remote errors/{tier}: {why}"),
            Counter::UploadTooLarge => "uploads dropped/too large".to_owned(),
            Counter::UploadUnsigned => "uploads dropped/the signing key cannot be used".to_owned(),
            Counter::Away => "executed elsewhere".to_owned(),
            Counter::NotAway(why) => format!("not elsewhere/{}", why.name()),
            Counter::AwayAt(address) => format!("executed at/{address}"),
            // No address has a space.
            Counter::NotAwayAt(address, why) => format!("not executed at/{address} {}", why.name()),
        }
    }
}

/// Whether a command belongs to a test of autoconf, CMake, Meson or Waf, by the names that these give to sources and folders.
pub fn is_of_configure(folder: &[u8], argv: &Strings) -> bool {
    argv.iter().chain([folder]).any(|word| {
        let mut parts = word.split(|byte| *byte == b'/');
        let mut before: &[u8] = b"";
        parts.any(|part| {
            let is_private = before == b"meson-private" && part.starts_with(b"tmp");
            before = part;
            let folders: [&[u8]; 2] = [b"CMakeTmp", b"CMakeScratch"];
            let starts: [&[u8]; 3] = [b"conftest.", b".conf_check_", b"TryCompile-"];
            is_private || folders.contains(&part) || starts.iter().any(|start| part.starts_with(start))
        })
    })
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

    /// Whether it is time to write the counts. Returns true to one caller per interval.
    pub fn is_due(&self) -> bool {
        let mut pending = self.pending();
        let is_due = !pending.counts.is_empty() && pending.since.elapsed() >= INTERVAL;
        if is_due {
            pending.since = Instant::now();
        }
        is_due
    }

    /// Writes the counts to the store. If that fails, for example on a full disk, they are written later.
    pub fn flush(&self, store: &Store) -> io::Result<()> {
        let mut pending = self.pending();
        let counts = std::mem::take(&mut pending.counts);
        pending.since = Instant::now();
        drop(pending);
        if counts.is_empty() {
            return Ok(());
        }
        let added: Vec<_> = counts.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        let written = store.count(&added);
        if written.is_err() {
            add_all(&mut self.pending().counts, &counts);
        }
        written
    }

    /// Drops the counts that are not in the store yet.
    pub fn clear(&self) {
        self.pending().counts.clear();
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All counts, with those that are not in the store yet. Never waits for a disk.
    pub fn look(&self, store: &Store) -> BTreeMap<String, u64> {
        let mut all = store.counters();
        add_all(&mut all, &self.pending().counts);
        all
    }
}

fn add_all(to: &mut BTreeMap<String, u64>, counts: &BTreeMap<String, u64>) {
    for (name, n) in counts {
        *to.entry(name.clone()).or_default() += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configure_tests_are_known_by_their_names() {
        for (folder, line, is) in [
            ("/p", "gcc -c conftest.c", true),
            ("/p", "gcc -o conftest -O2 conftest.cpp", true),
            ("/p/CMakeFiles/CMakeTmp", "cc -c a.c", true),
            ("/p/CMakeFiles/CMakeScratch/TryCompile-x1", "cc -c a.c", true),
            ("/p/build", "cc -c meson-private/tmpa1/testfile.c", true),
            ("/p/build/.conf_check_1f/testbuild", "gcc ../test.c -c", true),
            ("/p", "gcc -c src/a.c -o a.o", false),
            ("/p/conftests", "gcc -c myconftest.c meson-private/sanity.c", false),
        ] {
            let argv: Strings = line.split(' ').collect();
            assert_eq!(is_of_configure(folder.as_bytes(), &argv), is, "{folder} {line}");
        }
    }
}
