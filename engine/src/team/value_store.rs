//! The store behind all dialects, and the memory before it.
//!
//! What it gives was held against its digest, when it came from the disk or from whoever sent it. Knows namespaces only as a
//! part of keys: contents are known by their digests alone.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use super::disk_threads::{Done, Job};
use super::hot::{Coded, Form, Hot};
use super::limits::{Budget, Share as Taken};
use super::outbox::Body;
use super::upload::{Material, SMALL};
use crate::bytes::digest::Digest;
use crate::cache::store::{unpack, Blob, Compression, Draft, EntryRef, Parcel, Share, Store};
use crate::room::{Coding, NotKept};

/// The bytes of an entry that only names a blob, and that every entry needs: with the namespace, whose they are.
const VALUE: &str = "a value of wafd serve\n";
/// Packed, this much is as much as can be taken into memory.
const MOST_PACKED: u64 = 64 << 20;

pub struct ValueStore {
    pub store: Store,
    pub hot: Hot,
    /// Memory of large contents that are being sent.
    pub downloads: Budget,
    /// The namespaces that have one.
    pub quotas: Vec<String>,
}

/// Where something is kept: what its name means, and whose it is.
#[derive(Debug, Clone)]
pub struct Place {
    pub key: Digest,
    mark: String,
}

impl Place {
    pub fn of(kind: &str, namespace: &str, name: &[u8]) -> Place {
        let (key, mark) = (key(kind, namespace, name), mark(namespace));
        Place { key, mark }
    }

    /// Where its name stands for this content.
    fn draft<'a>(&'a self, content: Digest, parcels: Vec<Parcel<'a>>) -> Draft<'a> {
        Draft {
            key: self.key,
            bytes: self.mark.as_bytes(),
            needs: vec![content],
            parcels,
        }
    }
}

/// A value in memory, and where it is to be kept.
pub struct Value {
    pub place: Place,
    pub bytes: Vec<u8>,
    /// Of the memory for what comes in, until it is stored.
    pub _share: Option<Taken>,
}

fn mark(namespace: &str) -> String {
    format!("{VALUE}{namespace}")
}

/// Where a content is.
#[derive(Debug)]
pub enum Look {
    Missing,
    Here(Body),
    /// On the disk, and large.
    Away,
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

/// What a name means in a namespace, in one kind of names.
pub fn key(kind: &str, namespace: &str, name: &[u8]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for part in [kind.as_bytes(), namespace.as_bytes(), name] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    Digest(*hasher.finalize().as_bytes())
}

/// Keeps what was sent, in memory or in a file, as what this place's name stands for.
pub fn keeping(place: Place, content: (Material, Taken)) -> Job {
    match content {
        (Material::Bytes(bytes), share) => Job::Keep(Value {
            place,
            bytes,
            _share: Some(share),
        }),
        (Material::File(file), _) => Job::carry(move |values| Done::Stored(values.keep_file(&place, &file))),
    }
}

impl ValueStore {
    /// A content, unless it takes a while to get it.
    pub fn look(&self, digest: &Digest, form: Form) -> Look {
        if let Some(coded) = self.hot.get(digest, form) {
            return Look::Here(Body::Memory(coded));
        }
        match self.store.size_of(digest) {
            None => Look::Missing,
            Some(size) if size > SMALL as u64 => Look::Away,
            Some(_) => self.load(digest, form).map_or(Look::Missing, Look::Here),
        }
    }

    /// A content from the disk.
    pub fn load(&self, digest: &Digest, form: Form) -> Option<Body> {
        let bytes = match self.store.open_blob(digest)? {
            Blob::Large { file, length } => return Some(Body::File(Arc::new(file), length)),
            Blob::Plain { file, bytes } if bytes.len() > SMALL => {
                return Some(Body::File(Arc::new(file), bytes.len() as u64));
            }
            Blob::Plain { bytes, .. } => return Some(self.heat(digest, form, Coding::Plain, bytes)),
            Blob::Bytes(bytes) => bytes,
        };
        let packed = match form {
            Form::Short => Compression::Auto.pack(&bytes),
            Form::Plain => None,
        };
        if let Some(packed) = packed {
            return self.offer(digest, form, Coding::Zstd, packed);
        }
        self.offer(digest, form, Coding::Plain, bytes)
    }

    fn heat(&self, digest: &Digest, form: Form, coding: Coding, mut bytes: Vec<u8>) -> Body {
        bytes.shrink_to_fit();
        let coded = Arc::new(Coded { coding, bytes });
        self.hot.put(digest, form, &coded);
        Body::Memory(coded)
    }

    fn offer(&self, digest: &Digest, form: Form, coding: Coding, bytes: Vec<u8>) -> Option<Body> {
        if bytes.len() <= SMALL {
            return Some(self.heat(digest, form, coding, bytes));
        }
        let mut share = self.downloads.share();
        share
            .resize(bytes.len())
            .then(|| Body::Shared(coding, Arc::new((bytes, share))))
    }

    /// Entries of a key with the blobs that each needs, the one that was used last first.
    pub fn entries(&self, key: &Digest) -> Vec<(Arc<Coded>, Vec<Digest>)> {
        let found = self.store.find(key);
        // In this order, so that they stay in it.
        found.iter().rev().for_each(|entry| self.store.touch(entry));
        found.iter().filter_map(|entry| self.entry(entry)).collect()
    }

    fn entry(&self, entry: &EntryRef) -> Option<(Arc<Coded>, Vec<Digest>)> {
        let mut blobs = self.store.blobs_of(entry)?;
        let body = blobs.remove(0);
        // Nobody has asked for what tells whose it is.
        blobs.pop();
        if let Some(coded) = self.hot.get(&body, Form::Plain) {
            return Some((coded, blobs));
        }
        let (coding, bytes) = (Coding::Plain, self.store.read(entry)?);
        let coded = Arc::new(Coded { coding, bytes });
        self.hot.put(&body, Form::Plain, &coded);
        Some((coded, blobs))
    }

    pub fn keep_entry(&self, place: &Place, bytes: &[u8], needs: &[Digest]) -> Result<(), NotStored> {
        let mark = Parcel::of(place.mark.as_bytes());
        let sizes = needs.iter().filter_map(|digest| self.store.size_of(digest));
        self.check_quota(&mark.digest, bytes.len() as u64 + sizes.sum::<u64>())?;
        let needs = [needs, &[mark.digest]].concat();
        self.store.put_entry_with(&place.key, bytes, &needs, vec![mark])?;
        Ok(())
    }

    /// The entries of a namespace hold no more than that together.
    pub fn set_quota(&self, namespace: &str, most: u64) {
        self.store.set_share(&Digest::of(mark(namespace).as_bytes()), most);
    }

    pub fn quota(&self, namespace: &str) -> Option<Share> {
        self.store.share_of(&Digest::of(mark(namespace).as_bytes()))
    }

    /// All else would be evicted for it, and then itself.
    fn check_quota(&self, mark: &Digest, size: u64) -> Result<(), NotStored> {
        match self.store.share_of(mark) {
            Some(share) if size > share.most => {
                let words = format!("it takes {size} bytes; the quota of its namespace is {}", share.most);
                Err(NotStored::new(NotKept::Full, words))
            }
            _ => Ok(()),
        }
    }

    /// A blob that somebody says has this digest.
    pub fn keep_blob(&self, digest: &Digest, coding: Coding, material: (Material, Taken)) -> Result<(), NotStored> {
        let (material, _share) = material;
        let (content, packed) = match coding {
            Coding::Plain => (material, None),
            Coding::Zstd => {
                let packed = all(material)?;
                let unpacked = unpack(&packed);
                let bytes = unpacked.ok_or_else(|| NotStored::new(NotKept::Malformed, "it cannot be unpacked"))?;
                (Material::Bytes(bytes), Some(packed))
            }
        };
        let bytes = match content {
            Material::Bytes(bytes) => {
                let parcel = Parcel::of(&bytes);
                check(&parcel.digest, digest)?;
                // As it came: whoever sent it has thought of what is shortest.
                let parcel = match &packed {
                    Some(packed) => parcel.packed(packed),
                    None => parcel.bare(),
                };
                self.store.put_blobs(&[parcel])?;
                Some(bytes)
            }
            Material::File(file) => {
                check(&digest_of(&file)?, digest)?;
                self.store.put_file(&file)?;
                None
            }
        };
        if let Some(bytes) = packed.or(bytes).filter(|bytes| bytes.len() <= SMALL) {
            self.heat(digest, Form::Short, coding, bytes);
        }
        Ok(())
    }

    /// What names stand for from now on, for values that are in memory. What became of each, in their order.
    ///
    /// They are stored as they are: to pack them would take longer than all else, and ccache and sccache have packed theirs.
    pub fn keep_values(&self, values: Vec<Value>) -> Vec<Result<(), NotStored>> {
        let check = |value: &Value| {
            let mark = Digest::of(value.place.mark.as_bytes());
            self.check_quota(&mark, value.bytes.len() as u64)
        };
        let mut done: Vec<_> = values.iter().map(check).collect();
        let parcels: Vec<_> = values.iter().map(|value| Parcel::of(&value.bytes).bare()).collect();
        let digests: Vec<_> = parcels.iter().map(|parcel| parcel.digest).collect();
        let allowed = done
            .iter()
            .zip(values.iter().zip(parcels))
            .filter(|(done, _)| done.is_ok());
        let drafts = allowed.map(|(_, (value, parcel))| value.place.draft(parcel.digest, vec![parcel]));
        let stored = self.store.put_only_entries(&drafts.collect::<Vec<_>>());
        let allowed = done.iter_mut().filter(|done| done.is_ok());
        allowed
            .zip(stored)
            .for_each(|(done, stored)| *done = stored.map(drop).map_err(NotStored::from));
        for (done, (value, digest)) in done.iter().zip(values.into_iter().zip(digests)) {
            if done.is_ok() {
                let (coding, bytes) = (Coding::Plain, value.bytes);
                self.hot
                    .welcome(&digest, Form::Plain, &Arc::new(Coded { coding, bytes }));
            }
        }
        done
    }

    /// What a name stands for from now on, when it is too large for memory.
    pub fn keep_file(&self, place: &Place, file: &File) -> Result<(), NotStored> {
        self.check_quota(&Digest::of(place.mark.as_bytes()), file.metadata()?.len())?;
        let digest = self.store.put_file(file)?;
        let stored = self.store.put_only_entries(&[place.draft(digest, Vec::new())]);
        Ok(stored.into_iter().try_for_each(|stored| stored.map(drop))?)
    }

    /// The content that a name stands for.
    pub fn value(&self, key: &Digest) -> Option<Digest> {
        loop {
            let found = self.store.find(key);
            if found.is_empty() {
                return None;
            }
            // One that was just replaced is gone, and another is there.
            for entry in found {
                if let Some(blobs) = self.store.blobs_of(&entry) {
                    self.store.touch(&entry);
                    // It may be the same as what tells whose it is.
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

fn all(material: Material) -> Result<Vec<u8>, NotStored> {
    match material {
        Material::Bytes(bytes) => Ok(bytes),
        Material::File(file) => {
            if file.metadata()?.len() > MOST_PACKED {
                return Err(NotStored::new(NotKept::TooLarge, "64 MiB is the most of a packed blob"));
            }
            let mut bytes = Vec::new();
            (&file).read_to_end(&mut bytes)?;
            Ok(bytes)
        }
    }
}

/// Of the whole file, which is at its beginning again afterwards.
fn digest_of(mut file: &File) -> io::Result<Digest> {
    let digest = Digest::of_file(file)?;
    io::Seek::rewind(&mut file)?;
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::super::hot::Hot;
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
            hot: Hot::new(1 << 20),
            downloads: Budget::new(1 << 20),
            quotas: Vec::new(),
        };
        (folder, values)
    }

    fn keep(values: &ValueStore, place: &Place, bytes: &[u8]) -> Result<(), NotStored> {
        let value = Value {
            place: place.clone(),
            bytes: bytes.to_vec(),
            _share: None,
        };
        values.keep_values(vec![value]).remove(0)
    }

    fn material(bytes: &[u8]) -> (Material, Taken) {
        (Material::Bytes(bytes.to_vec()), Budget::new(0).share())
    }

    #[test]
    fn a_value_that_many_replace_is_never_gone() {
        let (_folder, values) = values("turns");
        let place = Place::of("http", "", b"/x");
        keep(&values, &place, b"the first").unwrap();
        thread::scope(|scope| {
            for number in 0..4u8 {
                let (values, place) = (&values, &place);
                scope.spawn(move || {
                    for round in 0..50 {
                        keep(values, place, &[number, round]).unwrap();
                        assert!(values.value(&place.key).is_some());
                    }
                });
            }
        });
        assert_eq!(values.store.find(&place.key).len(), 1);
    }

    #[test]
    fn a_value_may_be_the_same_as_what_tells_whose_it_is() {
        let (_folder, values) = values("mark");
        let place = Place::of("http", "team", b"/x");
        keep(&values, &place, place.mark.as_bytes()).unwrap();
        assert_eq!(values.value(&place.key), Some(Digest::of(place.mark.as_bytes())));
    }

    /// A lie about a content leaves nothing behind that is found.
    #[test]
    fn a_blob_has_the_digest_that_was_told() {
        let (_folder, values) = values("digest");
        let packed = Compression::Auto.pack(&[7; 100_000]).unwrap();
        let digest = Digest::of(&[7; 100_000]);
        let lie = values.keep_blob(&Digest::of(b"other"), Coding::Zstd, material(&packed));
        assert_eq!(lie.unwrap_err().why, NotKept::Digest);
        assert!(!values.store.has_blob(&Digest::of(b"other")));
        values.keep_blob(&digest, Coding::Zstd, material(&packed)).unwrap();
        let Look::Here(body) = values.look(&digest, Form::Short) else {
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
    fn names_of_other_kinds_and_namespaces_are_others() {
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
