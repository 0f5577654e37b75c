//! The store that all dialects use, and its cache in memory.
//!
//! Each content was checked against its digest, when it was read from the disk or uploaded. A namespace is only a part of
//! keys; contents are known by their digests alone.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use super::disk_threads::{Done, Job};
use super::limits::{Budget, Share as MemoryShare};
use super::memory_cache::{Encoded, Form, MemoryCache};
use super::outbox::Body;
use super::upload::{Content, SMALL};
use crate::bytes::digest::Digest;
use crate::cache::store::{unpack, Blob, Compression, Draft, EntryRef, Parcel, Share, Store};
use crate::room::{Coding, NotKept};

/// Every entry refers to a blob with this text and the namespace, by which quotas are counted. It is also the content of an
/// entry that only names a blob.
const VALUE: &str = "a value of wafd serve\n";
/// The largest packed blob, because it is unpacked in memory.
const MOST_PACKED: u64 = 64 << 20;

pub struct ValueStore {
    pub store: Store,
    pub cache: MemoryCache,
    /// The memory for large contents that are being sent.
    pub downloads: Budget,
    /// The namespaces that have a quota.
    pub quotas: Vec<String>,
}

/// A name in a namespace.
#[derive(Debug, Clone)]
pub struct NamespacedKey {
    pub digest: Digest,
    mark: String,
}

impl NamespacedKey {
    pub fn of(kind: &str, namespace: &str, name: &[u8]) -> NamespacedKey {
        let (digest, mark) = (key(kind, namespace, name), mark(namespace));
        NamespacedKey { digest, mark }
    }

    /// The entry that gives this name to a content.
    fn draft<'a>(&'a self, content: Digest, parcels: Vec<Parcel<'a>>) -> Draft<'a> {
        Draft {
            key: self.digest,
            bytes: self.mark.as_bytes(),
            needs: vec![content],
            parcels,
        }
    }
}

/// A value in memory that is to be stored.
pub struct Value {
    pub key: NamespacedKey,
    pub bytes: Vec<u8>,
    /// Its share of the memory for uploads.
    pub _share: Option<MemoryShare>,
}

fn mark(namespace: &str) -> String {
    format!("{VALUE}{namespace}")
}

/// The result of a lookup.
pub enum Lookup {
    Missing,
    Found(Body),
    /// The content is large, and this job must read it from the disk.
    OnDisk(Job),
}

/// Why something was not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotStored {
    pub why: NotKept,
    pub words: String,
}

impl NotStored {
    pub fn new(why: NotKept, words: impl Into<String>) -> NotStored {
        let words = words.into();
        NotStored { why, words }
    }
}

impl From<io::Error> for NotStored {
    fn from(error: io::Error) -> NotStored {
        use io::ErrorKind::{InvalidInput, NotFound, StorageFull};
        let why = match error.kind() {
            NotFound => NotKept::Lacks,
            InvalidInput => NotKept::TooLarge,
            StorageFull => NotKept::Full,
            _ => NotKept::Failed,
        };
        NotStored::new(why, error.to_string())
    }
}

/// The key of a name in a namespace, for one kind of names.
pub fn key(kind: &str, namespace: &str, name: &[u8]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for part in [kind.as_bytes(), namespace.as_bytes(), name] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    Digest(*hasher.finalize().as_bytes())
}

/// The job of storing an uploaded value under this key.
pub fn store_job(key: NamespacedKey, content: (Content, MemoryShare)) -> Job {
    match content {
        (Content::Bytes(bytes), share) => Job::Store(Value {
            key,
            bytes,
            _share: Some(share),
        }),
        (Content::File(file), _) => Job::on_disk(move |values| Done::Stored(values.keep_file(&key, &file))),
    }
}

impl ValueStore {
    /// Gets a content, unless that is slow.
    pub fn look_up(&self, digest: &Digest, form: Form) -> Lookup {
        if let Some(encoded) = self.cache.get(digest, form) {
            return Lookup::Found(Body::Memory(encoded));
        }
        let digest = *digest;
        match self.store.size_of(&digest) {
            None => Lookup::Missing,
            Some(size) if size > SMALL as u64 => {
                Lookup::OnDisk(Job::on_disk(move |values| Done::Opened(values.load(&digest, form))))
            }
            Some(_) => self.load(&digest, form).map_or(Lookup::Missing, Lookup::Found),
        }
    }

    /// The same for the content that a key names.
    pub fn look_up_value(&self, key: &Digest) -> Lookup {
        let digest = self.value(key);
        digest.map_or(Lookup::Missing, |digest| self.look_up(&digest, Form::Plain))
    }

    /// Reads a content from the disk.
    pub fn load(&self, digest: &Digest, form: Form) -> Option<Body> {
        let bytes = match self.store.open_blob(digest)? {
            Blob::Large { file, length } => return Some(Body::File(Arc::new(file), length)),
            Blob::Plain { file, bytes } if bytes.len() > SMALL => {
                return Some(Body::File(Arc::new(file), bytes.len() as u64));
            }
            Blob::Plain { bytes, .. } => {
                return Some(Body::Memory(self.keep_in_memory(digest, form, Coding::Plain, bytes)))
            }
            Blob::Bytes(bytes) => bytes,
        };
        let packed = match form {
            Form::Short => Compression::Auto.pack(&bytes),
            Form::Plain => None,
        };
        let (coding, bytes) = match packed {
            Some(packed) => (Coding::Zstd, packed),
            None => (Coding::Plain, bytes),
        };
        if bytes.len() <= SMALL {
            return Some(Body::Memory(self.keep_in_memory(digest, form, coding, bytes)));
        }
        let mut share = self.downloads.share();
        share
            .resize(bytes.len())
            .then(|| Body::Shared(coding, Arc::new((bytes, share))))
    }

    fn keep_in_memory(&self, digest: &Digest, form: Form, coding: Coding, mut bytes: Vec<u8>) -> Arc<Encoded> {
        bytes.shrink_to_fit();
        let encoded = Arc::new(Encoded { coding, bytes });
        self.cache.put(digest, form, &encoded);
        encoded
    }

    /// The entries of a key, each with the blobs that it needs. The most recently used entry comes first.
    pub fn entries(&self, key: &Digest) -> Vec<(Arc<Encoded>, Vec<Digest>)> {
        let found = self.store.find(key);
        // From the last to the first, so that their order does not change.
        found.iter().rev().for_each(|entry| self.store.touch(entry));
        found.iter().filter_map(|entry| self.entry(entry)).collect()
    }

    fn entry(&self, entry: &EntryRef) -> Option<(Arc<Encoded>, Vec<Digest>)> {
        let mut blobs = self.store.blobs_of(entry)?;
        let body = blobs.remove(0);
        // The blob that marks the namespace was not requested.
        blobs.pop();
        if let Some(encoded) = self.cache.get(&body, Form::Plain) {
            return Some((encoded, blobs));
        }
        let bytes = self.store.read(entry)?;
        Some((self.keep_in_memory(&body, Form::Plain, Coding::Plain, bytes), blobs))
    }

    pub fn keep_entry(&self, key: &NamespacedKey, bytes: &[u8], needs: &[Digest]) -> Result<(), NotStored> {
        let mark = Parcel::of(key.mark.as_bytes());
        let sizes = needs.iter().filter_map(|digest| self.store.size_of(digest));
        self.check_quota(&mark.digest, bytes.len() as u64 + sizes.sum::<u64>())?;
        let needs = [needs, &[mark.digest]].concat();
        self.store.put_entry_with(&key.digest, bytes, &needs, vec![mark])?;
        Ok(())
    }

    /// Limits the total size of the entries of a namespace.
    pub fn set_quota(&self, namespace: &str, most: u64) {
        self.store.set_share(&Digest::of(mark(namespace).as_bytes()), most);
    }

    pub fn quota(&self, namespace: &str) -> Option<Share> {
        self.store.share_of(&Digest::of(mark(namespace).as_bytes()))
    }

    /// A value above the quota would evict all others of its namespace, and then itself.
    fn check_quota(&self, mark: &Digest, size: u64) -> Result<(), NotStored> {
        match self.store.share_of(mark) {
            Some(share) if size > share.most => {
                let words = format!("it takes {size} bytes; the quota of its namespace is {}", share.most);
                Err(NotStored::new(NotKept::Full, words))
            }
            _ => Ok(()),
        }
    }

    /// Stores a blob, after checking that it has this digest.
    pub fn keep_blob(
        &self,
        digest: &Digest,
        coding: Coding,
        (uploaded, _share): (Content, MemoryShare),
    ) -> Result<(), NotStored> {
        let (content, packed) = match coding {
            Coding::Plain => (uploaded, None),
            Coding::Zstd => {
                let packed = read_all(uploaded)?;
                let unpacked = unpack(&packed);
                let bytes = unpacked.ok_or_else(|| NotStored::new(NotKept::Malformed, "it cannot be unpacked"))?;
                (Content::Bytes(bytes), Some(packed))
            }
        };
        let bytes = match content {
            Content::Bytes(bytes) => {
                let parcel = Parcel::of(&bytes);
                check(&parcel.digest, digest)?;
                // In the form in which it came: the sender has chosen the shortest.
                let parcel = match &packed {
                    Some(packed) => parcel.packed(packed),
                    None => parcel.bare(),
                };
                self.store.put_blobs(&[parcel])?;
                Some(bytes)
            }
            Content::File(file) => {
                check(&digest_of(&file)?, digest)?;
                self.store.put_file(&file)?;
                None
            }
        };
        if let Some(bytes) = packed.or(bytes).filter(|bytes| bytes.len() <= SMALL) {
            self.keep_in_memory(digest, Form::Short, coding, bytes);
        }
        Ok(())
    }

    /// Stores values that are in memory under their keys. Returns the result of each, in the same order.
    ///
    /// They are not packed: that would take longer than all else, and ccache and sccache have already packed their values.
    pub fn keep_values(&self, values: Vec<Value>) -> Vec<Result<(), NotStored>> {
        let check = |value: &Value| {
            let mark = Digest::of(value.key.mark.as_bytes());
            self.check_quota(&mark, value.bytes.len() as u64)
        };
        let mut done: Vec<_> = values.iter().map(check).collect();
        let parcels: Vec<_> = values.iter().map(|value| Parcel::of(&value.bytes).bare()).collect();
        let digests: Vec<_> = parcels.iter().map(|parcel| parcel.digest).collect();
        let allowed = done
            .iter()
            .zip(values.iter().zip(parcels))
            .filter(|(done, _)| done.is_ok());
        let drafts = allowed.map(|(_, (value, parcel))| value.key.draft(parcel.digest, vec![parcel]));
        let stored = self.store.put_only_entries(&drafts.collect::<Vec<_>>());
        let allowed = done.iter_mut().filter(|done| done.is_ok());
        allowed
            .zip(stored)
            .for_each(|(done, stored)| *done = stored.map(drop).map_err(NotStored::from));
        for (done, (value, digest)) in done.iter().zip(values.into_iter().zip(digests)) {
            if done.is_ok() {
                let (coding, bytes) = (Coding::Plain, value.bytes);
                let encoded = Arc::new(Encoded { coding, bytes });
                self.cache.put_unrequested(&digest, Form::Plain, &encoded);
            }
        }
        done
    }

    /// Stores a value that is in a file.
    pub fn keep_file(&self, key: &NamespacedKey, file: &File) -> Result<(), NotStored> {
        self.check_quota(&Digest::of(key.mark.as_bytes()), file.metadata()?.len())?;
        let digest = self.store.put_file(file)?;
        let stored = self.store.put_only_entries(&[key.draft(digest, Vec::new())]);
        Ok(stored.into_iter().try_for_each(|stored| stored.map(drop))?)
    }

    /// The digest of the content that a key names.
    pub fn value(&self, key: &Digest) -> Option<Digest> {
        loop {
            let found = self.store.find(key);
            if found.is_empty() {
                return None;
            }
            // If another thread has just replaced the entry, the next round finds the new one.
            for entry in found {
                if let Some(blobs) = self.store.blobs_of(&entry) {
                    self.store.touch(&entry);
                    // It is the last one even if it has the same digest as the mark of the namespace.
                    return blobs.last().copied();
                }
            }
        }
    }

    pub fn remove_value(&self, key: &Digest) -> bool {
        let found = self.store.find(key);
        found.iter().for_each(|entry| self.store.remove_entry(entry));
        !found.is_empty()
    }
}

fn check(found: &Digest, told: &Digest) -> Result<(), NotStored> {
    match found == told {
        true => Ok(()),
        false => Err(NotStored::new(NotKept::Digest, format!("it has the digest {found}"))),
    }
}

fn read_all(content: Content) -> Result<Vec<u8>, NotStored> {
    match content {
        Content::Bytes(bytes) => Ok(bytes),
        Content::File(file) => {
            if file.metadata()?.len() > MOST_PACKED {
                return Err(NotStored::new(NotKept::TooLarge, "64 MiB is the most of a packed blob"));
            }
            let mut bytes = Vec::new();
            (&file).read_to_end(&mut bytes)?;
            Ok(bytes)
        }
    }
}

/// The digest of the whole file. Afterwards the file is at its beginning again.
fn digest_of(mut file: &File) -> io::Result<Digest> {
    let digest = Digest::of_file(file)?;
    io::Seek::rewind(&mut file)?;
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::store::Settings;
    use std::path::PathBuf;
    use std::thread;

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn values(name: &str) -> (Folder, ValueStore) {
        let folder = Folder(std::env::temp_dir().join(format!("values-{name}-{}", std::process::id())));
        let settings = Settings {
            max_size: u64::MAX,
            compression: Compression::Auto,
        };
        let values = ValueStore {
            store: Store::open(&folder.0, settings).unwrap(),
            cache: MemoryCache::new(1 << 20),
            downloads: Budget::new(1 << 20),
            quotas: Vec::new(),
        };
        (folder, values)
    }

    fn keep(values: &ValueStore, key: &NamespacedKey, bytes: &[u8]) -> Result<(), NotStored> {
        let value = Value {
            key: key.clone(),
            bytes: bytes.to_vec(),
            _share: None,
        };
        values.keep_values(vec![value]).remove(0)
    }

    fn content(bytes: &[u8]) -> (Content, MemoryShare) {
        (Content::Bytes(bytes.to_vec()), Budget::new(0).share())
    }

    #[test]
    fn a_value_that_many_replace_is_never_gone() {
        let (_folder, values) = values("turns");
        let key = NamespacedKey::of("http", "", b"/x");
        keep(&values, &key, b"the first").unwrap();
        thread::scope(|scope| {
            for number in 0..4u8 {
                let (values, key) = (&values, &key);
                scope.spawn(move || {
                    for round in 0..50 {
                        keep(values, key, &[number, round]).unwrap();
                        assert!(values.value(&key.digest).is_some());
                    }
                });
            }
        });
        assert_eq!(values.store.find(&key.digest).len(), 1);
    }

    #[test]
    fn a_value_may_be_the_same_as_the_mark_of_its_namespace() {
        let (_folder, values) = values("mark");
        let key = NamespacedKey::of("http", "team", b"/x");
        keep(&values, &key, key.mark.as_bytes()).unwrap();
        assert_eq!(values.value(&key.digest), Some(Digest::of(key.mark.as_bytes())));
    }

    /// A blob that does not have its digest leaves nothing behind.
    #[test]
    fn a_blob_must_have_the_given_digest() {
        let (_folder, values) = values("digest");
        let packed = Compression::Auto.pack(&[7; 100_000]).unwrap();
        let digest = Digest::of(&[7; 100_000]);
        let lie = values.keep_blob(&Digest::of(b"other"), Coding::Zstd, content(&packed));
        assert_eq!(lie.unwrap_err().why, NotKept::Digest);
        assert!(!values.store.has_blob(&Digest::of(b"other")));
        values.keep_blob(&digest, Coding::Zstd, content(&packed)).unwrap();
        let Lookup::Found(body) = values.look_up(&digest, Form::Short) else {
            panic!("it is not at hand");
        };
        assert_eq!((body.coding(), body.length()), (Coding::Zstd, packed.len() as u64));
        assert_eq!(values.store.size_of(&digest), Some(packed.len() as u64), "as it came");
        assert_eq!(
            values.store.open_blob(&digest).unwrap().into_bytes(),
            Some(vec![7; 100_000])
        );
    }

    #[test]
    fn kinds_and_namespaces_of_names_are_distinguished() {
        let names = [
            ("a", "b", "c"),
            ("ab", "", "c"),
            ("a", "", "bc"),
            ("a", "bc", ""),
            ("", "ab", "c"),
        ];
        let keys: std::collections::HashSet<_> = names.iter().map(|(a, b, c)| key(a, b, c.as_bytes())).collect();
        assert_eq!(keys.len(), names.len());
    }
}
