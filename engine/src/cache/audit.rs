//! Which hits are compiled again, to be compared with what would have been given: an even share of them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Parts of a whole.
const WHOLE: u64 = 1_000_000;

#[derive(Default)]
pub struct Audit {
    share: AtomicU64,
    /// Grows by the share with each hit; whenever it passes a whole, one is due.
    sum: AtomicU64,
}

impl Audit {
    pub fn set(&self, percent: f64) {
        let share = (percent.clamp(0.0, 100.0) / 100.0 * WHOLE as f64) as u64;
        self.share.store(share, Ordering::Relaxed);
    }

    pub fn is_due(&self) -> bool {
        let share = self.share.load(Ordering::Relaxed);
        let before = self.sum.fetch_add(share, Ordering::Relaxed);
        before / WHOLE != before.wrapping_add(share) / WHOLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_due() {
        let audit = Audit::default();
        for (percent, wanted) in [(0.0, 0), (100.0, 1000), (2.5, 25), (300.0, 1000)] {
            audit.set(percent);
            let found = (0..1000).filter(|_| audit.is_due()).count();
            assert!(found.abs_diff(wanted) <= 1, "{percent}: {found}");
        }
    }
}
