//! Decides what happens with a command: either the cache thread that has an answer, or the event loop that has waited for
//! it long enough.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::Arc;

const OPEN: u8 = 0;
const ANSWERED: u8 = 1;
const GIVEN_UP: u8 = 2;

/// Both sides share it. The first one to take it decides.
#[derive(Debug, Clone, Default)]
pub struct Claim(Arc<State>);

#[derive(Debug, Default)]
struct State {
    taken: AtomicU8,
    is_at_work: AtomicBool,
}

/// A thread looks into the store for this command, until this is dropped.
pub struct Work(Claim);

impl Claim {
    /// For the cache thread, before it does anything visible. False if the other side does not wait any more.
    pub fn answer(&self) -> bool {
        self.take(ANSWERED) != Err(GIVEN_UP)
    }

    /// For the side that waits. False if the answer is about to come.
    pub fn give_up(&self) -> bool {
        self.take(GIVEN_UP) != Err(ANSWERED)
    }

    fn take(&self, how: u8) -> Result<u8, u8> {
        let taken = &self.0.taken;
        taken.compare_exchange(OPEN, how, Ordering::AcqRel, Ordering::Acquire)
    }

    pub fn is_given_up(&self) -> bool {
        self.0.taken.load(Ordering::Acquire) == GIVEN_UP
    }

    pub fn begin_work(&self) -> Work {
        self.0.is_at_work.store(true, Ordering::Relaxed);
        Work(self.clone())
    }

    pub fn is_at_work(&self) -> bool {
        self.0.is_at_work.load(Ordering::Relaxed)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0 .0.is_at_work.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_side_decides() {
        let claim = Claim::default();
        let cache = claim.clone();
        assert!(cache.answer() && cache.answer() && !claim.give_up());
        let claim = Claim::default();
        let cache = claim.clone();
        assert!(claim.give_up() && !cache.answer() && cache.is_given_up());
    }

    #[test]
    fn work_is_seen_by_the_other_side() {
        let claim = Claim::default();
        let cache = claim.clone();
        assert!(!claim.is_at_work());
        let work = cache.begin_work();
        assert!(claim.is_at_work());
        drop(work);
        assert!(!claim.is_at_work());
    }
}
