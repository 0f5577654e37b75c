//! The interface of a store in the benchmark.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::work::{Item, Key, Outcome};

/// Is called with an entry and its object. A store that can lend its own bytes does so.
pub type Visit<'s> = &'s mut dyn FnMut(&[u8], Option<&[u8]>);

/// The outcome of a lookup.
#[derive(PartialEq, Eq)]
pub enum Found {
    Right,
    /// The store does not find it.
    Missing,
    /// The store returned other bytes than it was given, as their digest shows.
    Wrong,
}

pub trait Peer: Sized {
    /// Opens the store of a folder, or makes a new one.
    fn open(folder: &Path) -> Outcome<Self>;

    /// Stores a result. It must survive `kill -9` after this returns.
    fn put(&self, item: &Item) -> Outcome<()>;

    /// Gets a result, and checks its bytes against their digests.
    fn get(&self, key: &Key, has_object: bool, visit: Visit) -> Outcome<Found>;

    /// Writes a result's object into an empty file.
    fn restore(&self, key: &Key, mut target: &File) -> Outcome<()> {
        let mut written = Ok(());
        let found = self.get(key, true, &mut |_, object| {
            written = object.map_or(Ok(()), |bytes| target.write_all(bytes));
        })?;
        written?;
        match found {
            Found::Right => Ok(()),
            Found::Missing | Found::Wrong => Err("the object is not there".into()),
        }
    }

    /// Makes a hard link to a result's object. `None` if the store cannot.
    fn link(&self, _key: &Key, _target: &Path) -> Option<Outcome<()>> {
        None
    }

    /// Removes these results, which are the older half, and frees their space on the disk if the store can.
    fn evict(&mut self, oldest: &[(Key, Option<Key>)]) -> Outcome<()>;
}

/// Whether bytes have this digest. LMDB and redb do not check their content, but the engine's store must.
pub fn is_right(bytes: &[u8], digest: &[u8]) -> bool {
    *blake3::hash(bytes).as_bytes() == digest
}
