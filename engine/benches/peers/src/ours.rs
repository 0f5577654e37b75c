//! The engine's own store.

use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use wafengine::bytes::digest::Digest;
use wafengine::cache::store::{Blob, Compression, Parcel, Settings, Store};

use crate::peer::{Found, Peer, Visit};
use crate::work::{Item, Key, Outcome};

/// How long an eviction, which a thread of the store does, may take.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(2);
/// An eviction is over when the size was constant for this long. The measured time includes this.
const SETTLED: Duration = Duration::from_millis(50);

pub struct Ours {
    store: Store,
}

impl Ours {
    fn object(&self, key: &Key) -> Outcome<Blob> {
        let digest = self.entry(key).and_then(|entry| digest_in(&entry));
        let blob = digest.and_then(|digest| self.store.open_blob(&digest));
        blob.ok_or_else(|| "the object is not there".into())
    }

    fn entry(&self, key: &Key) -> Option<Vec<u8>> {
        self.store.read(self.store.find(&Digest(*key)).first()?)
    }
}

fn digest_in(entry: &[u8]) -> Option<Digest> {
    Some(Digest(entry.get(..32)?.try_into().ok()?))
}

impl Peer for Ours {
    fn open(folder: &Path) -> Outcome<Ours> {
        let settings = Settings {
            max_size: u64::MAX,
            compression: Compression::Off,
        };
        let store = Store::open(folder, settings)?;
        Ok(Ours { store })
    }

    fn put(&self, item: &Item) -> Outcome<()> {
        let parcel = item.object.as_ref().map(|(_, bytes)| Parcel::of(bytes));
        let needs: Vec<Digest> = parcel.iter().map(|parcel| parcel.digest).collect();
        let parcels = parcel.into_iter().collect();
        self.store
            .put_entry_with(&Digest(item.key), &item.entry, &needs, parcels)?;
        Ok(())
    }

    fn get(&self, key: &Key, has_object: bool, visit: Visit) -> Outcome<Found> {
        let Some(entry) = self.entry(key) else {
            return Ok(Found::Missing);
        };
        if !has_object {
            visit(&entry, None);
            return Ok(Found::Right);
        }
        let blob = digest_in(&entry).and_then(|digest| self.store.open_blob(&digest));
        let object = blob.and_then(Blob::into_bytes);
        object.iter().for_each(|object| visit(&entry, Some(object)));
        Ok(object.map_or(Found::Missing, |_| Found::Right))
    }

    fn restore(&self, key: &Key, target: &File) -> Outcome<()> {
        Ok(self.object(key)?.write_to(target)?)
    }

    fn link(&self, key: &Key, target: &Path) -> Option<Outcome<()>> {
        let linked = self.object(key).and_then(|blob| Ok(blob.link_to(target, 0o444)?));
        Some(linked)
    }

    /// Sets a limit. The store then removes the least recently used results until eight tenths of the limit are left, which
    /// is half of all.
    fn evict(&mut self, _oldest: &[(Key, Option<Key>)]) -> Outcome<()> {
        let limit = self.store.usage().size / 8 * 5;
        let start = Instant::now();
        self.store.set_max_size(limit);
        let (mut size, mut changed) = (u64::MAX, start);
        while size > limit / 10 * 9 || changed.elapsed() < SETTLED {
            if start.elapsed() > PATIENCE {
                return Err("nothing is evicted".into());
            }
            thread::sleep(PAUSE);
            let now = self.store.usage().size;
            if now != size {
                (size, changed) = (now, Instant::now());
            }
        }
        Ok(())
    }
}
