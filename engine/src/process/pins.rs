//! Selects the processor of a pinned command: the one with the fewest commands.
//!
//! Pure.

use std::collections::HashMap;

#[derive(Debug, Default)]
pub struct Pins {
    counts: HashMap<usize, usize>,
}

impl Pins {
    /// Takes the processor with the fewest commands of those that the command may use.
    pub fn take(&mut self, allowed: &[usize]) -> Option<usize> {
        let count = |p: &usize| self.counts.get(p).copied().unwrap_or(0);
        let freest = *allowed.iter().min_by_key(|p| count(p))?;
        *self.counts.entry(freest).or_default() += 1;
        Some(freest)
    }

    pub fn give_back(&mut self, processor: usize) {
        if let Some(count) = self.counts.get_mut(&processor) {
            *count -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_spread_over_the_processors_they_may_use() {
        let mut pins = Pins::default();
        assert_eq!(pins.take(&[2, 3]), Some(2));
        assert_eq!(pins.take(&[2, 3]), Some(3));
        assert_eq!(pins.take(&[2]), Some(2));
        assert_eq!(pins.take(&[2, 3]), Some(3));
        pins.give_back(2);
        assert_eq!(pins.take(&[2, 3]), Some(2));
        assert_eq!(pins.take(&[]), None);
    }
}
