//! A cache of contents in memory, with a limited size. Each content was checked against its digest before.
//!
//! It keeps contents that were requested lately, and contents that were stored lately and may be requested soon. The latter
//! get only a part of the size, so that they never drive out much of the former. The cache is divided into shards, so that
//! threads seldom wait for each other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;

use crate::bytes::digest::Digest;
use crate::room::Coding;

const SHARDS: usize = 16;
/// Roughly what an entry costs besides its bytes.
const OVERHEAD: usize = 200;
/// Contents that were never requested take at most one part in this many.
const UNREQUESTED: usize = 2;

/// A content in the form in which it is sent.
#[derive(Debug)]
pub struct Encoded {
    pub coding: Coding,
    pub bytes: Vec<u8>,
}

/// A request wants a content as it is, or in the coding that is shortest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    Plain,
    Short,
}

type Key = (Digest, Form);

#[derive(Default)]
struct Shard {
    requested: LruList,
    unrequested: LruList,
}

/// Contents in the order of their last use, and their total size.
struct LruList {
    contents: LruCache<Key, Arc<Encoded>, rustc_hash::FxBuildHasher>,
    size: usize,
}

impl Default for LruList {
    fn default() -> LruList {
        LruList {
            contents: LruCache::unbounded_with_hasher(rustc_hash::FxBuildHasher),
            size: 0,
        }
    }
}

impl LruList {
    fn put(&mut self, key: Key, encoded: Arc<Encoded>) {
        self.size += cost(&encoded);
        if let Some((_, old)) = self.contents.push(key, encoded) {
            self.size -= cost(&old);
        }
    }

    fn take(&mut self, key: &Key) -> Option<Arc<Encoded>> {
        let taken = self.contents.pop(key)?;
        self.size -= cost(&taken);
        Some(taken)
    }

    /// Drops the contents that were not used for longest, until the rest is no larger than this.
    fn shrink(&mut self, most: usize) {
        while self.size > most {
            match self.contents.pop_lru() {
                Some((_, old)) => self.size -= cost(&old),
                None => break,
            }
        }
    }
}

fn cost(encoded: &Encoded) -> usize {
    encoded.bytes.capacity() + OVERHEAD
}

pub struct MemoryCache {
    shards: [Mutex<Shard>; SHARDS],
    /// The limit for one shard.
    shard_size: usize,
    pub hits: AtomicU64,
    pub misses: AtomicU64,
}

impl MemoryCache {
    pub fn new(size: usize) -> MemoryCache {
        MemoryCache {
            shards: std::array::from_fn(|_| Mutex::default()),
            shard_size: size / SHARDS,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    fn shard(&self, digest: &Digest) -> std::sync::MutexGuard<'_, Shard> {
        let number = usize::from(digest.0[0]) % SHARDS;
        self.shards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, digest: &Digest, form: Form) -> Option<Arc<Encoded>> {
        let found = self.shard(digest).get(&(*digest, form));
        let count = if found.is_some() { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Keeps a content that was requested.
    pub fn put(&self, digest: &Digest, form: Form, encoded: &Arc<Encoded>) {
        if !self.is_too_large(encoded) {
            let mut shard = self.shard(digest);
            shard.requested.put((*digest, form), encoded.clone());
            shard.shrink(self.shard_size);
        }
    }

    /// Keeps a content that was just stored, and not requested yet.
    pub fn put_unrequested(&self, digest: &Digest, form: Form, encoded: &Arc<Encoded>) {
        let mut shard = self.shard(digest);
        let key = (*digest, form);
        if !self.is_too_large(encoded) && !shard.requested.contents.contains(&key) {
            shard.unrequested.put(key, encoded.clone());
            shard.shrink(self.shard_size);
        }
    }

    /// A content that is larger than an eighth of its shard would drive out too many others.
    fn is_too_large(&self, encoded: &Encoded) -> bool {
        cost(encoded) > self.shard_size / 8
    }

    pub fn size(&self) -> usize {
        let size = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.requested.size + shard.unrequested.size
        };
        self.shards.iter().map(size).sum()
    }
}

impl Shard {
    fn get(&mut self, key: &Key) -> Option<Arc<Encoded>> {
        if let Some(encoded) = self.requested.contents.get(key) {
            return Some(encoded.clone());
        }
        let encoded = self.unrequested.take(key)?;
        self.requested.put(*key, encoded.clone());
        Some(encoded)
    }

    fn shrink(&mut self, size: usize) {
        self.unrequested.shrink(size / UNREQUESTED);
        self.requested.shrink(size - self.unrequested.size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(size: usize) -> Arc<Encoded> {
        let (coding, bytes) = (Coding::Plain, vec![7; size]);
        Arc::new(Encoded { coding, bytes })
    }

    /// Digests that belong to one shard.
    fn digest(number: u8) -> Digest {
        let mut digest = Digest([0; 32]);
        digest.0[1] = number;
        digest
    }

    #[test]
    fn the_least_recently_requested_goes_first() {
        let cache = MemoryCache::new(SHARDS * 10_000);
        (0..9).for_each(|number| cache.put(&digest(number), Form::Plain, &encoded(800)));
        assert!(cache.get(&digest(0), Form::Plain).is_some());
        cache.put(&digest(9), Form::Plain, &encoded(800));
        cache.put(&digest(10), Form::Plain, &encoded(800));
        assert!(cache.get(&digest(0), Form::Plain).is_some());
        assert!(cache.get(&digest(1), Form::Plain).is_none());
        assert!(cache.size() <= 10_000);
    }

    #[test]
    fn a_content_that_is_put_twice_counts_once() {
        let cache = MemoryCache::new(SHARDS * 10_000);
        (0..100).for_each(|_| cache.put(&digest(1), Form::Short, &encoded(800)));
        assert_eq!(cache.size(), 800 + OVERHEAD);
        assert!(cache.get(&digest(1), Form::Plain).is_none());
    }

    #[test]
    fn unrequested_contents_drive_out_at_most_half() {
        let cache = MemoryCache::new(SHARDS * 10_000);
        (0..10).for_each(|number| cache.put(&digest(number), Form::Plain, &encoded(800)));
        (10..200).for_each(|number| cache.put_unrequested(&digest(number), Form::Plain, &encoded(800)));
        assert!(cache.size() <= 10_000);
        let is_here = |number: &u8| cache.get(&digest(*number), Form::Plain).is_some();
        assert_eq!((5..10).filter(is_here).count(), 5);
        assert_eq!((10..200).filter(is_here).count(), 5);
    }

    #[test]
    fn a_large_content_is_not_kept() {
        let cache = MemoryCache::new(SHARDS * 10_000);
        cache.put(&digest(1), Form::Plain, &encoded(2_000));
        assert_eq!(cache.size(), 0);
    }
}
