//! Blobs that the engine uploads. They wait here until the entry comes that needs them, because all blobs of an entry go
//! to the cluster together.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use wafengine::bytes::digest::Digest as Name;
use wafengine::cache::remote::wrapped::LARGEST_BLOB;
use wafengine::room::{Begun, Coding, NotKept};

/// Limit for all blobs of a connection that wait. The oldest make way for new ones: no entry has come for them.
const MOST: usize = 512 << 20;
/// How much memory is reserved for bytes that have not come yet.
const RESERVED: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    pub coding: Coding,
    pub bytes: Bytes,
}

#[derive(Default)]
pub struct Incoming {
    /// By the number of the upload: its name, its coding, how many bytes it will have, and those that have come.
    begun: HashMap<u32, (Name, Coding, usize, Vec<u8>)>,
    /// Complete ones, the oldest first. A name may be there twice, for two entries.
    waiting: VecDeque<(Name, Blob)>,
    size: usize,
}

/// Whether an upload is complete. None if more of it must come, or if it was answered already.
pub type Answer = Option<Result<(), NotKept>>;

impl Incoming {
    pub fn begin(&mut self, id: u32, begun: &Begun<'_>) -> Answer {
        let size = usize::try_from(begun.size).ok().filter(|size| *size <= LARGEST_BLOB);
        let Some(size) = size else {
            return Some(Err(NotKept::TooLarge));
        };
        let bytes = Vec::with_capacity(size.min(RESERVED));
        self.begun.insert(id, (begun.digest, begun.coding, size, bytes));
        self.add(id, begun.first)
    }

    pub fn add(&mut self, id: u32, more: &[u8]) -> Answer {
        let (_, _, size, bytes) = self.begun.get_mut(&id)?;
        bytes.extend_from_slice(more);
        if bytes.len() < *size {
            return None;
        }
        let (name, coding, size, bytes) = self.begun.remove(&id)?;
        if bytes.len() > size {
            return Some(Err(NotKept::Malformed));
        }
        let bytes = bytes.into();
        self.waiting.push_back((name, Blob { coding, bytes }));
        self.size += size;
        while self.size > MOST {
            let Some((_, oldest)) = self.waiting.pop_front() else {
                break;
            };
            self.size -= oldest.bytes.len();
        }
        Some(Ok(()))
    }

    pub fn abandon(&mut self, id: u32) {
        self.begun.remove(&id);
    }

    /// The blob of this name, for the entry that needs it.
    pub fn take(&mut self, name: &Name) -> Option<Blob> {
        let at = self.waiting.iter().position(|(waiting, _)| waiting == name)?;
        let (_, blob) = self.waiting.remove(at)?;
        self.size -= blob.bytes.len();
        Some(blob)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun<'a>(name: &str, size: u64, first: &'a [u8]) -> Begun<'a> {
        Begun {
            digest: Name::of(name.as_bytes()),
            coding: Coding::Zstd,
            size,
            first,
        }
    }

    #[test]
    fn a_blob_is_complete_when_all_its_bytes_have_come() {
        let mut incoming = Incoming::default();
        assert_eq!(incoming.begin(1, &begun("a", 4, b"ab")), None);
        assert_eq!(incoming.begin(2, &begun("b", 0, b"")), Some(Ok(())));
        assert_eq!(incoming.take(&Name::of(b"a")), None);
        assert_eq!(incoming.add(1, b"cd"), Some(Ok(())));
        let blob = incoming.take(&Name::of(b"a")).unwrap();
        assert_eq!((blob.coding, &blob.bytes[..]), (Coding::Zstd, &b"abcd"[..]));
        assert_eq!(incoming.take(&Name::of(b"a")), None);
    }

    #[test]
    fn too_many_bytes_and_too_large_blobs_are_refused() {
        let mut incoming = Incoming::default();
        assert_eq!(incoming.begin(1, &begun("a", 4, b"ab")), None);
        assert_eq!(incoming.add(1, b"cde"), Some(Err(NotKept::Malformed)));
        assert_eq!(incoming.add(1, b"more"), None, "it was answered");
        let large = LARGEST_BLOB as u64 + 1;
        assert_eq!(incoming.begin(2, &begun("b", large, b"")), Some(Err(NotKept::TooLarge)));
    }

    #[test]
    fn two_entries_may_need_the_same_blob_and_the_oldest_make_way() {
        let mut incoming = Incoming::default();
        for id in 0..2 {
            assert_eq!(incoming.begin(id, &begun("a", 1, b"x")), Some(Ok(())));
        }
        assert!(incoming.take(&Name::of(b"a")).is_some() && incoming.take(&Name::of(b"a")).is_some());
        let large = vec![0; LARGEST_BLOB];
        for id in 0..9 {
            let name = format!("large {id}");
            assert_eq!(
                incoming.begin(id, &begun(&name, large.len() as u64, &large)),
                Some(Ok(()))
            );
        }
        assert_eq!(incoming.take(&Name::of(b"large 0")), None);
        assert!(incoming.take(&Name::of(b"large 1")).is_some());
    }
}
