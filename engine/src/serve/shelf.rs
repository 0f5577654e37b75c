//! The store behind all dialects, and the memory before it.
//!
//! What it gives was held against its digest, when it came from the disk or from whoever sent it. Knows namespaces only as a
//! part of keys: contents are known by their digests alone.

use std::fs::File;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

use super::hot::{Coded, Form, Hot};
use super::limits::{Budget, Share};
use super::outbox::Body;
use super::upload::{Material, SMALL};
use crate::cache::digest::Digest;
use crate::cache::store::{unpack, Blob, Compression, EntryRef, Store};
use crate::room::{Coding, NotKept};

/// The bytes of an entry that only names a blob.
const VALUE: &[u8] = b"a value of wafd serve\n";
/// Packed, this much is as much as can be taken into memory.
const MOST_PACKED: u64 = 64 << 20;

pub struct Shelf {
    pub store: Store,
    pub hot: Hot,
    /// Memory of large contents that are being sent.
    pub downloads: Budget,
    /// Whoever replaces a value has the turn of its key: else two would remove each other's.
    pub turns: [Mutex<()>; 16],
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

impl Shelf {
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
        if let Some(coded) = self.hot.get(&body, Form::Plain) {
            return Some((coded, blobs));
        }
        let (coding, bytes) = (Coding::Plain, self.store.read(entry)?);
        let coded = Arc::new(Coded { coding, bytes });
        self.hot.put(&body, Form::Plain, &coded);
        Some((coded, blobs))
    }

    pub fn keep_entry(&self, key: &Digest, bytes: &[u8], needs: &[Digest]) -> Result<(), NotStored> {
        self.store.put_entry(key, bytes, needs)?;
        Ok(())
    }

    /// A blob that somebody says has this digest.
    pub fn keep_blob(&self, digest: &Digest, coding: Coding, material: (Material, Share)) -> Result<(), NotStored> {
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
        let found = match &content {
            Material::Bytes(bytes) => Digest::of(bytes),
            Material::File(file) => digest_of(file)?,
        };
        if found != *digest {
            return Err(NotStored::new(NotKept::Digest, format!("it has the digest {found}")));
        }
        let (_, bytes) = self.put(content)?;
        // As it came: whoever sent it has thought of what is shortest.
        if let Some(bytes) = packed.or(bytes).filter(|bytes| bytes.len() <= SMALL) {
            self.heat(digest, Form::Short, coding, bytes);
        }
        Ok(())
    }

    /// Its digest, and its bytes if they were in memory.
    fn put(&self, content: Material) -> Result<(Digest, Option<Vec<u8>>), NotStored> {
        match content {
            Material::Bytes(bytes) => Ok((self.store.put_blob(&bytes)?, Some(bytes))),
            Material::File(file) => Ok((self.store.put_file(&file)?, None)),
        }
    }

    /// What a name stands for from now on.
    pub fn keep_value(&self, key: &Digest, content: (Material, Share)) -> Result<(), NotStored> {
        let (content, _share) = content;
        let (digest, bytes) = self.put(content)?;
        if let Some(bytes) = bytes {
            self.heat(&digest, Form::Plain, Coding::Plain, bytes);
        }
        let turn = &self.turns[usize::from(key.0[0]) % self.turns.len()];
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = self.store.put_entry(key, VALUE, &[digest])?;
        let others = self.store.find(key).into_iter().filter(|entry| *entry != kept);
        others.for_each(|entry| self.store.remove_entry(&entry));
        Ok(())
    }

    /// The content that a name stands for.
    pub fn value(&self, key: &Digest) -> Option<Digest> {
        let entry = *self.store.find(key).first()?;
        self.store.touch(&entry);
        self.store.blobs_of(&entry)?.get(1).copied()
    }

    pub fn remove_value(&self, key: &Digest) -> bool {
        let found = self.store.find(key);
        found.iter().for_each(|entry| self.store.remove_entry(entry));
        !found.is_empty()
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
