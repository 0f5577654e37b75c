//! Contents in memory: what was asked for lately, and what came lately and may be asked for soon, up to a number of bytes.
//! What is in here was held against its digest.
//!
//! What nobody has asked for yet has a part of the room only, so that it never drives out much of what somebody did ask for.
//! In shards, so that threads seldom wait for each other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;

use crate::bytes::digest::Digest;
use crate::room::Coding;

const SHARDS: usize = 16;
/// What one costs beside its bytes, roughly.
const OVERHEAD: usize = 200;
/// What nobody has asked for takes at most this part of the room.
const FRESH: usize = 2;

/// A content as it is sent.
#[derive(Debug)]
pub struct Coded {
    pub coding: Coding,
    pub bytes: Vec<u8>,
}

/// A content is asked for as it is, or in whatever coding is shortest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    Plain,
    Short,
}

type Key = (Digest, Form);

#[derive(Default)]
struct Shard {
    asked: Ring,
    fresh: Ring,
}

/// Contents in the order in which they were used, and how large they are together.
struct Ring {
    contents: LruCache<Key, Arc<Coded>, rustc_hash::FxBuildHasher>,
    size: usize,
}

impl Default for Ring {
    fn default() -> Ring {
        Ring {
            contents: LruCache::unbounded_with_hasher(rustc_hash::FxBuildHasher),
            size: 0,
        }
    }
}

impl Ring {
    fn put(&mut self, key: Key, coded: Arc<Coded>) {
        self.size += cost(&coded);
        if let Some((_, old)) = self.contents.push(key, coded) {
            self.size -= cost(&old);
        }
    }

    fn take(&mut self, key: &Key) -> Option<Arc<Coded>> {
        let taken = self.contents.pop(key)?;
        self.size -= cost(&taken);
        Some(taken)
    }

    /// Lets go of what was not used longest until the rest is no larger than that.
    fn shrink(&mut self, most: usize) {
        while self.size > most {
            match self.contents.pop_lru() {
                Some((_, old)) => self.size -= cost(&old),
                None => break,
            }
        }
    }
}

fn cost(coded: &Coded) -> usize {
    coded.bytes.capacity() + OVERHEAD
}

pub struct Hot {
    shards: [Mutex<Shard>; SHARDS],
    /// Of one shard.
    room: usize,
    pub hits: AtomicU64,
    pub misses: AtomicU64,
}

impl Hot {
    pub fn new(size: usize) -> Hot {
        Hot {
            shards: std::array::from_fn(|_| Mutex::default()),
            room: size / SHARDS,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    fn shard(&self, digest: &Digest) -> std::sync::MutexGuard<'_, Shard> {
        let number = usize::from(digest.0[0]) % SHARDS;
        self.shards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, digest: &Digest, form: Form) -> Option<Arc<Coded>> {
        let found = self.shard(digest).get(&(*digest, form));
        let count = if found.is_some() { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Somebody asks for it.
    pub fn put(&self, digest: &Digest, form: Form, coded: &Arc<Coded>) {
        if !self.is_too_large(coded) {
            let mut shard = self.shard(digest);
            shard.asked.put((*digest, form), coded.clone());
            shard.shrink(self.room);
        }
    }

    /// It has just come, and nobody has asked for it.
    pub fn welcome(&self, digest: &Digest, form: Form, coded: &Arc<Coded>) {
        let mut shard = self.shard(digest);
        let key = (*digest, form);
        if !self.is_too_large(coded) && !shard.asked.contents.contains(&key) {
            shard.fresh.put(key, coded.clone());
            shard.shrink(self.room);
        }
    }

    /// What is larger than an eighth of its shard would drive out too many others.
    fn is_too_large(&self, coded: &Coded) -> bool {
        cost(coded) > self.room / 8
    }

    pub fn size(&self) -> usize {
        let size = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.asked.size + shard.fresh.size
        };
        self.shards.iter().map(size).sum()
    }
}

impl Shard {
    fn get(&mut self, key: &Key) -> Option<Arc<Coded>> {
        if let Some(coded) = self.asked.contents.get(key) {
            return Some(coded.clone());
        }
        let coded = self.fresh.take(key)?;
        self.asked.put(*key, coded.clone());
        Some(coded)
    }

    fn shrink(&mut self, room: usize) {
        self.fresh.shrink(room / FRESH);
        self.asked.shrink(room - self.fresh.size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coded(size: usize) -> Arc<Coded> {
        let (coding, bytes) = (Coding::Plain, vec![7; size]);
        Arc::new(Coded { coding, bytes })
    }

    /// All in one shard.
    fn digest(number: u8) -> Digest {
        let mut digest = Digest([0; 32]);
        digest.0[1] = number;
        digest
    }

    #[test]
    fn what_was_not_asked_for_longest_goes_first() {
        let hot = Hot::new(SHARDS * 10_000);
        (0..9).for_each(|number| hot.put(&digest(number), Form::Plain, &coded(800)));
        assert!(hot.get(&digest(0), Form::Plain).is_some());
        hot.put(&digest(9), Form::Plain, &coded(800));
        hot.put(&digest(10), Form::Plain, &coded(800));
        assert!(hot.get(&digest(0), Form::Plain).is_some());
        assert!(hot.get(&digest(1), Form::Plain).is_none());
        assert!(hot.size() <= 10_000);
    }

    #[test]
    fn what_is_put_twice_counts_once() {
        let hot = Hot::new(SHARDS * 10_000);
        (0..100).for_each(|_| hot.put(&digest(1), Form::Short, &coded(800)));
        assert_eq!(hot.size(), 800 + OVERHEAD);
        assert!(hot.get(&digest(1), Form::Plain).is_none());
    }

    #[test]
    fn what_nobody_asks_for_drives_out_half_of_the_rest_at_most() {
        let hot = Hot::new(SHARDS * 10_000);
        (0..10).for_each(|number| hot.put(&digest(number), Form::Plain, &coded(800)));
        (10..200).for_each(|number| hot.welcome(&digest(number), Form::Plain, &coded(800)));
        assert!(hot.size() <= 10_000);
        let is_here = |number: &u8| hot.get(&digest(*number), Form::Plain).is_some();
        assert_eq!((5..10).filter(is_here).count(), 5);
        assert_eq!((10..200).filter(is_here).count(), 5);
    }

    #[test]
    fn what_is_large_is_not_kept() {
        let hot = Hot::new(SHARDS * 10_000);
        hot.put(&digest(1), Form::Plain, &coded(2_000));
        assert_eq!(hot.size(), 0);
    }
}
