//! What a store must do to take part.

use std::fs::File;
use std::path::Path;

use crate::work::{Any, Item, Key};

/// Gets an entry and its object, whose bytes are the store's own where it can lend them.
pub type See<'s> = &'s mut dyn FnMut(&[u8], Option<&[u8]>);

/// What came of looking for a result.
#[derive(PartialEq, Eq)]
pub enum Found {
    Right,
    /// The store says that it is not there.
    Missing,
    /// The store gave other bytes than it was given, which only their digest tells.
    Wrong,
}

pub trait Peer: Sized {
    /// Makes the folder's store if there is none.
    fn open(folder: &Path) -> Any<Self>;

    /// Stores a result. It is to survive `kill -9` when this returns.
    fn put(&self, item: &Item) -> Any<()>;

    /// Finds a result, and holds its bytes against their digests. An error is the store's own.
    fn get(&self, key: &Key, has_object: bool, see: See) -> Any<Found>;

    /// Writes a result's object into an empty file.
    fn restore(&self, key: &Key, target: &File) -> Any<()>;

    /// Gives a result's object one more name instead of writing it. `None` for what cannot.
    fn link(&self, key: &Key, target: &Path) -> Option<Any<()>>;

    /// Removes these results, which are the older half, and gives their room back to the disk as far as the store can.
    fn evict(&mut self, oldest: &[(Key, Option<Key>)]) -> Any<()>;
}

/// The digests of what neither LMDB nor redb checks: a store for the engine must look.
pub fn is_right(bytes: &[u8], digest: &[u8]) -> bool {
    *blake3::hash(bytes).as_bytes() == digest
}
