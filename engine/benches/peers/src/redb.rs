//! redb.

use std::path::Path;

use redb::{Database, Durability, TableDefinition};

use crate::peer::{is_right, Found, Peer, Visit};
use crate::work::{Item, Key, Outcome};

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("results");
/// How many results are removed together, as in our store.
const BATCH: usize = 64;

pub struct Redb<const SYNCED: bool> {
    database: Database,
}

impl<const SYNCED: bool> Redb<SYNCED> {
    const DURABILITY: Durability = if SYNCED {
        Durability::Immediate
    } else {
        Durability::Eventual
    };

    fn begin(&self) -> Outcome<redb::WriteTransaction> {
        let mut change = self.database.begin_write()?;
        change.set_durability(Self::DURABILITY);
        Ok(change)
    }
}

impl<const SYNCED: bool> Peer for Redb<SYNCED> {
    fn open(folder: &Path) -> Outcome<Self> {
        let database = Database::create(folder.join("redb"))?;
        Ok(Redb { database })
    }

    fn put(&self, item: &Item) -> Outcome<()> {
        let change = self.begin()?;
        {
            let mut table = change.open_table(TABLE)?;
            let mut entry = blake3::hash(&item.entry).as_bytes().to_vec();
            entry.extend_from_slice(&item.entry);
            table.insert(item.key.as_slice(), entry.as_slice())?;
            if let Some((digest, bytes)) = &item.object {
                table.insert(digest.as_slice(), bytes.as_slice())?;
            }
        }
        Ok(change.commit()?)
    }

    fn get(&self, key: &Key, has_object: bool, visit: Visit) -> Outcome<Found> {
        let table = match self.database.begin_read()?.open_table(TABLE) {
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Found::Missing),
            table => table?,
        };
        let Some(found) = table.get(key.as_slice())? else {
            return Ok(Found::Missing);
        };
        let Some((digest, entry)) = found.value().split_at_checked(32) else {
            return Ok(Found::Missing);
        };
        if !is_right(entry, digest) {
            return Ok(Found::Wrong);
        }
        if !has_object {
            visit(entry, None);
            return Ok(Found::Right);
        }
        let Some(object) = table.get(&entry[..32])? else {
            return Ok(Found::Missing);
        };
        if !is_right(object.value(), &entry[..32]) {
            return Ok(Found::Wrong);
        }
        visit(entry, Some(object.value()));
        Ok(Found::Right)
    }

    /// Compaction makes the file smaller. It needs exclusive access.
    fn evict(&mut self, oldest: &[(Key, Option<Key>)]) -> Outcome<()> {
        for batch in oldest.chunks(BATCH) {
            let change = self.begin()?;
            {
                let mut table = change.open_table(TABLE)?;
                for (key, object) in batch {
                    table.remove(key.as_slice())?;
                    if let Some(digest) = object {
                        table.remove(digest.as_slice())?;
                    }
                }
            }
            change.commit()?;
        }
        // Each call moves some pages, and returns whether it has moved any.
        while self.database.compact()? {}
        Ok(())
    }
}
