//! A blob for exchange: packed if that pays, and checked against its digest when it is unpacked.

use crate::bytes::digest::Digest;
use crate::cache::store::{unpack, Compression, LARGEST};

const PLAIN: u8 = 0;
const ZSTD: u8 = 1;
/// Larger blobs are not exchanged, because they would be held in memory as a whole.
pub const LARGEST_BLOB: usize = LARGEST;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrapped {
    pub coding: u8,
    pub bytes: Vec<u8>,
}

impl Wrapped {
    pub fn of(bytes: Vec<u8>) -> Wrapped {
        match Compression::Auto.pack(&bytes) {
            Some(bytes) => Wrapped { coding: ZSTD, bytes },
            None => Wrapped { coding: PLAIN, bytes },
        }
    }

    /// The content. `None` unless it has this digest.
    pub fn open(&self, digest: &Digest) -> Option<Vec<u8>> {
        let bytes = match self.coding {
            PLAIN => self.bytes.clone(),
            ZSTD => unpack(&self.bytes)?,
            _ => return None,
        };
        (Digest::of(&bytes) == *digest).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapped_blob_opens_only_with_its_digest() {
        for bytes in [b"short".to_vec(), b"a line\n".repeat(10_000)] {
            let wrapped = Wrapped::of(bytes.clone());
            assert_eq!(wrapped.open(&Digest::of(&bytes)), Some(bytes));
            assert_eq!(wrapped.open(&Digest::of(b"other")), None);
        }
        let unknown = Wrapped {
            coding: 7,
            bytes: b"x".to_vec(),
        };
        assert_eq!(unknown.open(&Digest::of(b"x")), None);
    }

    #[test]
    fn damage_is_found() {
        let bytes = b"a line\n".repeat(10_000);
        let digest = Digest::of(&bytes);
        let whole = Wrapped::of(bytes.clone());
        for at in 0..whole.bytes.len() {
            let mut damaged = whole.clone();
            damaged.bytes[at] ^= 1;
            let opened = damaged.open(&digest);
            // zstd ignores some bits of its own frames.
            assert!(opened.is_none() || opened.as_ref() == Some(&bytes), "{at}");
        }
    }
}
