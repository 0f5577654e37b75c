//! Counts the questions and answers of tiers, until the statistics take the counts over.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Passes numbers to the statistics.
type Keep = dyn Fn(&str, u64) + Send + Sync;

pub struct Counts {
    keep: Box<Keep>,
    /// The tiers whose first error was logged, so that each is logged once.
    told: Mutex<BTreeSet<String>>,
}

impl Counts {
    pub fn new(keep: impl Fn(&str, u64) + Send + Sync + 'static) -> Counts {
        Counts {
            keep: Box::new(keep),
            told: Mutex::default(),
        }
    }

    pub fn add(&self, name: &str, n: u64) {
        if n > 0 {
            (self.keep)(name, n);
        }
    }

    pub fn came_in(&self, bytes: usize) {
        self.add("remote bytes in", bytes as u64);
    }

    pub fn went_out(&self, bytes: usize) {
        self.add("remote bytes out", bytes as u64);
    }

    pub fn error(&self, tier: &str, words: &str) {
        self.add(&format!("remote errors/{tier}: {words}"), 1);
        let is_new = self.told().insert(format!("{tier} {words}"));
        if is_new {
            log::warn!("{tier}: {words}");
        }
    }

    /// A tier answers again, so its next error is logged.
    pub fn forget(&self, tier: &str) {
        let name = format!("{tier} ");
        self.told().retain(|told| !told.starts_with(&name));
    }

    fn told(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
