//! Under which digests a cluster keeps our blobs. We name them by BLAKE3, and a cluster by SHA-256.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use wafengine::bytes::digest::Digest as Name;
use wafengine::room::Coding;

use crate::digests::Digest;

/// When so many names have come, those that came before them are forgotten.
const MOST: usize = 1 << 16;

/// A blob as a cluster keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub digest: Digest,
    pub coding: Coding,
}

/// What action results have told, and what was uploaded.
#[derive(Default)]
pub struct Known(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    young: HashMap<Name, Place>,
    old: HashMap<Name, Place>,
}

impl Known {
    fn generations(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, places: impl IntoIterator<Item = (Name, Place)>) {
        let mut generations = self.generations();
        for (name, place) in places {
            if generations.young.len() >= MOST {
                generations.old = std::mem::take(&mut generations.young);
            }
            generations.young.insert(name, place);
        }
    }

    pub fn get(&self, name: &Name) -> Option<Place> {
        let generations = self.generations();
        let found = generations.young.get(name).or_else(|| generations.old.get(name));
        found.copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_names_are_known() {
        let known = Known::default();
        let name = |number: usize| Name::of(&number.to_le_bytes());
        let place = |number: usize| Place {
            digest: Digest::of(&number.to_le_bytes()),
            coding: Coding::Plain,
        };
        known.add((0..2 * MOST + 1).map(|number| (name(number), place(number))));
        assert_eq!(known.get(&name(0)), None);
        for number in [MOST, 2 * MOST] {
            assert_eq!(known.get(&name(number)), Some(place(number)));
        }
    }
}
