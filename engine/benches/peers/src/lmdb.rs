//! LMDB, by heed. Without synchronization, a power failure loses the last seconds, as in our store.

use std::path::Path;

use heed::types::Bytes;
use heed::{EnvFlags, EnvOpenOptions};

use crate::peer::{is_right, Found, Peer, Visit};
use crate::work::{Item, Key, Outcome};

/// The maximum size of the file, which must be fixed in advance.
const MAP: usize = 64 << 30;
/// How many results are removed together, as in our store.
const BATCH: usize = 64;

pub struct Lmdb<const SYNCED: bool> {
    environment: heed::Env,
    table: heed::Database<Bytes, Bytes>,
}

impl<const SYNCED: bool> Peer for Lmdb<SYNCED> {
    fn open(folder: &Path) -> Outcome<Self> {
        let flags = if SYNCED { EnvFlags::empty() } else { EnvFlags::NO_SYNC };
        // SAFETY: this process opens the folder once, and nothing else writes into its files.
        let environment = unsafe { EnvOpenOptions::new().map_size(MAP).flags(flags).open(folder)? };
        let mut change = environment.write_txn()?;
        let table = environment.create_database(&mut change, None)?;
        change.commit()?;
        Ok(Lmdb { environment, table })
    }

    fn put(&self, item: &Item) -> Outcome<()> {
        let mut change = self.environment.write_txn()?;
        let mut entry = blake3::hash(&item.entry).as_bytes().to_vec();
        entry.extend_from_slice(&item.entry);
        self.table.put(&mut change, &item.key, &entry)?;
        if let Some((digest, bytes)) = &item.object {
            self.table.put(&mut change, digest, bytes)?;
        }
        Ok(change.commit()?)
    }

    fn get(&self, key: &Key, has_object: bool, visit: Visit) -> Outcome<Found> {
        let look = self.environment.read_txn()?;
        let Some((digest, entry)) = self.table.get(&look, key)?.and_then(|bytes| bytes.split_at_checked(32)) else {
            return Ok(Found::Missing);
        };
        if !is_right(entry, digest) {
            return Ok(Found::Wrong);
        }
        if !has_object {
            visit(entry, None);
            return Ok(Found::Right);
        }
        let Some(object) = self.table.get(&look, &entry[..32])? else {
            return Ok(Found::Missing);
        };
        if !is_right(object, &entry[..32]) {
            return Ok(Found::Wrong);
        }
        visit(entry, Some(object));
        Ok(Found::Right)
    }

    /// The file never becomes smaller.
    fn evict(&mut self, oldest: &[(Key, Option<Key>)]) -> Outcome<()> {
        for batch in oldest.chunks(BATCH) {
            let mut change = self.environment.write_txn()?;
            for (key, object) in batch {
                self.table.delete(&mut change, key)?;
                if let Some(digest) = object {
                    self.table.delete(&mut change, digest)?;
                }
            }
            change.commit()?;
        }
        Ok(())
    }
}
