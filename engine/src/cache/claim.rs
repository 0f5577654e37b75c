//! Who decides what becomes of a command: the clerk that has an answer for it, or whoever has waited for that for long enough.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;

const OPEN: u8 = 0;
const ANSWERED: u8 = 1;
const GIVEN_UP: u8 = 2;

/// Shared by both sides; the first one has it.
#[derive(Debug, Clone, Default)]
pub struct Claim(Arc<AtomicU8>);

impl Claim {
    /// For the clerk, before anything is done that would show: false if nobody waits any more.
    pub fn answer(&self) -> bool {
        let was = self
            .0
            .compare_exchange(OPEN, ANSWERED, Ordering::AcqRel, Ordering::Acquire);
        was != Err(GIVEN_UP)
    }

    /// For who waits: false if the answer is about to come.
    pub fn give_up(&self) -> bool {
        let was = self
            .0
            .compare_exchange(OPEN, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire);
        was != Err(ANSWERED)
    }

    pub fn is_given_up(&self) -> bool {
        self.0.load(Ordering::Acquire) == GIVEN_UP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_one_has_it() {
        let claim = Claim::default();
        let clerk = claim.clone();
        assert!(clerk.answer() && clerk.answer() && !claim.give_up());
        let claim = Claim::default();
        let clerk = claim.clone();
        assert!(claim.give_up() && !clerk.answer() && clerk.is_given_up());
    }
}
