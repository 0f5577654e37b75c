//! A tier on a store that knows only names and values. All entries of a key are in one value, the bundle.
//!
//! If two machines write one bundle at the same time, one of the two entries is lost. Such stores have no locks in common,
//! and the loss costs only a hit.

use std::sync::Arc;

use super::counts::Counts;
use super::heartbeat::Heartbeat;
use super::{Fault, Shape, Tier};
use crate::bytes::digest::Digest;
use crate::cache::remote::bundle::{decode_blob, encode_blob, Bundle, LARGEST_BUNDLE};
use crate::cache::remote::wrapped::{Wrapped, LARGEST_BLOB};
use crate::cache::remote::{Load, Offer};

/// Limit for all blobs of one entry together, in the form in which they come.
const MOST_FETCHED: usize = 320 << 20;

pub enum Name<'a> {
    /// The name of a key's bundle.
    Bundle(&'a Digest),
    Blob(&'a Digest),
}

pub trait Values: Send + Sync {
    fn shape(&self) -> Shape;

    /// Gets values in this order. All of them together must not exceed the limit, and no memory is taken for more.
    fn get(&self, names: &[Name], largest: usize, heartbeat: &Arc<Heartbeat>) -> Result<Vec<Option<Vec<u8>>>, Fault>;

    fn has(&self, name: &Name, heartbeat: &Arc<Heartbeat>) -> Result<bool, Fault>;

    fn put(&self, name: &Name, value: &[u8], heartbeat: &Arc<Heartbeat>) -> Result<(), Fault>;
}

pub struct Bundles<V> {
    values: V,
    counts: Arc<Counts>,
}

impl<V: Values> Bundles<V> {
    pub fn new(values: V, counts: Arc<Counts>) -> Bundles<V> {
        Bundles { values, counts }
    }

    fn put(&self, name: &Name, value: &[u8], heartbeat: &Arc<Heartbeat>) -> Result<(), Fault> {
        self.values.put(name, value, heartbeat)?;
        self.counts.went_out(value.len());
        Ok(())
    }
}

impl<V: Values> Tier for Bundles<V> {
    fn shape(&self) -> Shape {
        self.values.shape()
    }

    fn find(&self, keys: &[Digest], heartbeat: &Arc<Heartbeat>) -> Result<Vec<Bundle>, Fault> {
        let names: Vec<_> = keys.iter().map(Name::Bundle).collect();
        let largest = LARGEST_BUNDLE.max(names.len() << 20);
        let found = self.values.get(&names, largest, heartbeat)?;
        let bundle = |(key, value): (&Digest, Option<Vec<u8>>)| {
            let Some(value) = value else {
                return Bundle::default();
            };
            self.counts.came_in(value.len());
            // A value that is no bundle is overwritten by the next one.
            Bundle::decode(key, &value).unwrap_or_default()
        };
        Ok(keys.iter().zip(found).map(bundle).collect())
    }

    fn fetch(&self, wanted: &[Digest], heartbeat: &Arc<Heartbeat>) -> Result<Vec<Option<Wrapped>>, Fault> {
        let mut fetched = Vec::with_capacity(wanted.len());
        let mut left = MOST_FETCHED;
        // One by one, because each may be as large as the limit.
        for digest in wanted {
            let mut found = self.values.get(&[Name::Blob(digest)], LARGEST_BLOB, heartbeat)?;
            let value = found.pop().flatten();
            let size = value.as_ref().map_or(0, Vec::len);
            self.counts.came_in(size);
            left = left
                .checked_sub(size)
                .ok_or_else(|| Fault::Failed("it gave more than one entry may bring".to_owned()))?;
            fetched.push(value.and_then(|value| decode_blob(&value)));
        }
        Ok(fetched)
    }

    fn offer(&self, offer: &Offer, load: &Load, heartbeat: &Arc<Heartbeat>) -> Result<(), Fault> {
        let old = self.find(&[offer.key], heartbeat)?.pop().unwrap_or_default();
        if old.entries.first().is_some_and(|first| first[..] == offer.entry[..]) {
            return Ok(());
        }
        let mut blobs = Vec::with_capacity(offer.needs.len());
        for digest in &offer.needs {
            if old.blobs.contains_key(digest) {
                continue;
            }
            let blob = load(digest).ok_or_else(|| Fault::Failed("what was to be uploaded is gone".to_owned()))?;
            blobs.push((*digest, blob));
        }
        let arranged = old.with(offer.entry.to_vec(), blobs);
        // First the blobs to which the bundle refers.
        for (digest, blob) in &arranged.beside {
            let name = Name::Blob(digest);
            if !self.values.has(&name, heartbeat)? {
                self.put(&name, &encode_blob(blob), heartbeat)?;
            }
        }
        self.put(
            &Name::Bundle(&offer.key),
            &arranged.bundle.encode(&offer.key),
            heartbeat,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::lookup::entry::{Content, Entry, Output};
    use crate::facts::path::Path;
    use crate::settings::address::Limits;
    use std::collections::HashMap;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Memory(Mutex<HashMap<String, Vec<u8>>>);

    fn told(name: &Name) -> String {
        match name {
            Name::Bundle(key) => format!("s{key}"),
            Name::Blob(digest) => format!("b{digest}"),
        }
    }

    impl Values for Memory {
        fn shape(&self) -> Shape {
            Shape {
                workers: 1,
                batch: 1,
                uploads: 1,
            }
        }

        fn get(&self, names: &[Name], _: usize, _: &Arc<Heartbeat>) -> Result<Vec<Option<Vec<u8>>>, Fault> {
            let all = self.0.lock().unwrap();
            Ok(names.iter().map(|name| all.get(&told(name)).cloned()).collect())
        }

        fn has(&self, name: &Name, _: &Arc<Heartbeat>) -> Result<bool, Fault> {
            Ok(self.0.lock().unwrap().contains_key(&told(name)))
        }

        fn put(&self, name: &Name, value: &[u8], _: &Arc<Heartbeat>) -> Result<(), Fault> {
            self.0.lock().unwrap().insert(told(name), value.to_vec());
            Ok(())
        }
    }

    #[test]
    fn an_offered_entry_is_found_and_its_large_blob_is_fetched() {
        let bundles = Bundles::new(Memory::default(), Arc::new(Counts::new(|_, _| ())));
        let heartbeat = Arc::new(Heartbeat::new(Limits::default()));
        let mut noise = vec![0; 2 << 20];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        let all: HashMap<_, _> = [noise, b"small".to_vec()]
            .map(|bytes| (Digest::of(&bytes), bytes))
            .into();
        let outputs = all.iter().map(|(digest, bytes)| Output {
            path: Path::here(),
            number: None,
            dated: None,
            content: Content::File {
                digest: *digest,
                size: bytes.len() as u64,
                is_program: false,
            },
        });
        let entry = Entry {
            outputs: outputs.collect(),
            ..Entry::default()
        };
        let key = Digest::of(b"key");
        let offer = Offer {
            key,
            entry: entry.encode().into(),
            needs: entry.blobs(),
        };
        let stored = all.clone();
        let load = move |digest: &Digest| stored.get(digest).cloned().map(Wrapped::of);
        assert!(bundles.find(&[key], &heartbeat).unwrap()[0].is_empty());
        bundles.offer(&offer, &load, &heartbeat).unwrap();
        let found = bundles.find(&[key, Digest::of(b"other")], &heartbeat).unwrap();
        assert_eq!(found[0].entries, [entry.encode()]);
        assert!(found[1].is_empty());
        let (beside, inline): (Vec<_>, Vec<_>) = entry
            .blobs()
            .into_iter()
            .partition(|digest| !found[0].blobs.contains_key(digest));
        assert_eq!((beside.len(), inline.len()), (1, 1));
        let fetched = bundles.fetch(&[beside[0], Digest::of(b"none")], &heartbeat).unwrap();
        assert_eq!(
            fetched[0].as_ref().unwrap().open(&beside[0]),
            all.get(&beside[0]).cloned()
        );
        assert_eq!(fetched[1], None);
    }
}
