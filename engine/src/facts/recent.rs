//! A map with a limited size, which keeps the entries that were used lately.
//!
//! It has two generations instead of a list of uses. A value that is not used while half of the room fills up is dropped.
//! Threads share it: each key belongs to a shard.

use std::hash::{BuildHasher, Hash};
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::{FxBuildHasher, FxHashMap};

const SHARDS: usize = 16;

pub struct Recent<K, V> {
    shards: [Mutex<Generations<K, V>>; SHARDS],
    /// The room of one generation of one shard.
    room: usize,
}

struct Generations<K, V> {
    young: FxHashMap<K, V>,
    old: FxHashMap<K, V>,
}

impl<K: Hash + Eq + Clone, V: Clone> Recent<K, V> {
    pub fn new(room: usize) -> Recent<K, V> {
        let empty = |_| {
            Mutex::new(Generations {
                young: FxHashMap::default(),
                old: FxHashMap::default(),
            })
        };
        Recent {
            shards: std::array::from_fn(empty),
            room: (room / (2 * SHARDS)).max(1),
        }
    }

    fn shard(&self, key: &K) -> MutexGuard<'_, Generations<K, V>> {
        let number = FxBuildHasher.hash_one(key) as usize % SHARDS;
        // A panic leaves no value here half changed.
        self.shards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, key: &K) -> Option<V> {
        let mut shard = self.shard(key);
        if let Some(value) = shard.young.get(key) {
            return Some(value.clone());
        }
        let value = shard.old.remove(key)?;
        shard.put(key.clone(), value.clone(), self.room);
        Some(value)
    }

    pub fn put(&self, key: K, value: V) {
        let mut shard = self.shard(&key);
        shard.old.remove(&key);
        shard.put(key, value, self.room);
    }

    /// Some of the values that fulfil a condition. Looks at all of them.
    pub fn some(&self, most: usize, fulfils: impl Fn(&V) -> bool) -> Vec<V> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let values = shard.young.values().chain(shard.old.values());
            let more = values.filter(|value| fulfils(value)).take(most - found.len());
            found.extend(more.cloned());
        }
        found
    }

    pub fn remove(&self, key: &K) {
        let mut shard = self.shard(key);
        shard.young.remove(key);
        shard.old.remove(key);
    }

    /// All values, in no order.
    pub fn values(&self) -> Vec<V> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(shard.young.values().chain(shard.old.values()).cloned());
        }
        all
    }

    pub fn len(&self) -> usize {
        let size = |shard: &Mutex<Generations<K, V>>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.young.len() + shard.old.len()
        };
        self.shards.iter().map(size).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Hash + Eq, V> Generations<K, V> {
    fn put(&mut self, key: K, value: V, room: usize) {
        if self.young.len() >= room {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_holds_more_than_its_room() {
        let recent = Recent::new(320);
        (0..10_000).for_each(|i| recent.put(i, i));
        assert!(recent.len() <= 320, "{}", recent.len());
    }

    #[test]
    fn an_entry_in_use_stays() {
        let recent = Recent::new(320);
        recent.put(-1, 7);
        for i in 0..10_000 {
            recent.put(i, i);
            assert_eq!(recent.get(&-1), Some(7), "{i}");
        }
        assert_eq!(recent.get(&0), None);
    }

    #[test]
    fn the_last_value_counts_until_it_is_removed() {
        let recent = Recent::new(8);
        recent.put(1, 1);
        recent.put(1, 2);
        assert_eq!(recent.get(&1), Some(2));
        recent.remove(&1);
        assert!(recent.is_empty());
    }
}
