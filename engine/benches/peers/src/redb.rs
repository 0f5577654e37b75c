//! redb.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use redb::{Database, Durability, TableDefinition};

use crate::peer::{is_right, Found, Peer, See};
use crate::work::{Any, Item, Key};

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("results");
/// Results that are removed at once, as many as ours.
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

    fn begin(&self) -> Any<redb::WriteTransaction> {
        let mut change = self.database.begin_write()?;
        change.set_durability(Self::DURABILITY);
        Ok(change)
    }
}

impl<const SYNCED: bool> Peer for Redb<SYNCED> {
    fn open(folder: &Path) -> Any<Self> {
        let database = Database::create(folder.join("redb"))?;
        Ok(Redb { database })
    }

    fn put(&self, item: &Item) -> Any<()> {
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

    fn get(&self, key: &Key, has_object: bool, see: See) -> Any<Found> {
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
            see(entry, None);
            return Ok(Found::Right);
        }
        let Some(object) = table.get(&entry[..32])? else {
            return Ok(Found::Missing);
        };
        if !is_right(object.value(), &entry[..32]) {
            return Ok(Found::Wrong);
        }
        see(entry, Some(object.value()));
        Ok(Found::Right)
    }

    fn restore(&self, key: &Key, mut target: &File) -> Any<()> {
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

    fn link(&self, _key: &Key, _target: &Path) -> Option<Any<()>> {
        None
    }

    /// Its file becomes smaller when it is compacted, which nothing else may happen beside.
    fn evict(&mut self, oldest: &[(Key, Option<Key>)]) -> Any<()> {
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
        // Each call moves some pages, and tells whether it has.
        while self.database.compact()? {}
        Ok(())
    }
}
