//! Contents in memory: what was asked for lately, up to a number of bytes. What is in here was held against its digest.
//!
//! In shards, so that threads seldom wait for each other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;

use crate::cache::digest::Digest;
use crate::room::Coding;

const SHARDS: usize = 16;
/// What one costs beside its bytes, roughly.
const OVERHEAD: usize = 200;

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

struct Shard {
    contents: LruCache<Key, Arc<Coded>, rustc_hash::FxBuildHasher>,
    size: usize,
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
        let shard = || Shard {
            contents: LruCache::unbounded_with_hasher(rustc_hash::FxBuildHasher),
            size: 0,
        };
        Hot {
            shards: std::array::from_fn(|_| Mutex::new(shard())),
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
        let found = self.shard(digest).contents.get(&(*digest, form)).cloned();
        let count = if found.is_some() { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// What is larger than an eighth of its shard would drive out too many others.
    pub fn put(&self, digest: &Digest, form: Form, coded: &Arc<Coded>) {
        let cost = |coded: &Coded| coded.bytes.capacity() + OVERHEAD;
        if cost(coded) > self.room / 8 {
            return;
        }
        let mut shard = self.shard(digest);
        shard.size += cost(coded);
        if let Some((_, old)) = shard.contents.push((*digest, form), coded.clone()) {
            shard.size -= cost(&old);
        }
        while shard.size > self.room {
            match shard.contents.pop_lru() {
                Some((_, old)) => shard.size -= cost(&old),
                None => break,
            }
        }
    }

    pub fn size(&self) -> usize {
        let size = |shard: &Mutex<Shard>| shard.lock().unwrap_or_else(PoisonError::into_inner).size;
        self.shards.iter().map(size).sum()
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
    fn what_is_large_is_not_kept() {
        let hot = Hot::new(SHARDS * 10_000);
        hot.put(&digest(1), Form::Plain, &coded(2_000));
        assert_eq!(hot.size(), 0);
    }
}
