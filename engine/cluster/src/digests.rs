//! Digests of the Remote Execution API: SHA-256, with the size of the content.

use bytes::Bytes;
use prost::Message;
use sha2::{Digest as _, Sha256};

use crate::reapi;

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Digest {
    pub hash: [u8; 32],
    pub size: u64,
}

impl Digest {
    pub fn of(bytes: &[u8]) -> Digest {
        Digest {
            hash: Sha256::digest(bytes).into(),
            size: bytes.len() as u64,
        }
    }

    /// The digest of a message, and the bytes that have it.
    pub fn of_message(message: &impl Message) -> (Digest, Bytes) {
        let bytes = Bytes::from(message.encode_to_vec());
        (Digest::of(&bytes), bytes)
    }

    pub fn to_message(&self) -> reapi::Digest {
        reapi::Digest {
            hash: self.name(),
            size_bytes: self.size as i64,
        }
    }

    /// None if it is no digest of SHA-256, or has no possible size.
    pub fn from_message(message: &reapi::Digest) -> Option<Digest> {
        let digits = message.hash.as_bytes();
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut hash = [0; 32];
        if digits.len() != 2 * hash.len() {
            return None;
        }
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        let size = u64::try_from(message.size_bytes).ok()?;
        Some(Digest { hash, size })
    }

    /// The hash in hexadecimal digits.
    pub fn name(&self) -> String {
        self.hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// As names of resources have it.
    pub fn resource(&self) -> String {
        format!("{}/{}", self.name(), self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_was_written() {
        let digest = Digest::of(b"abc");
        assert_eq!(
            digest.resource(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad/3"
        );
        assert_eq!(Digest::from_message(&digest.to_message()), Some(digest));
    }

    #[test]
    fn what_is_no_digest_is_refused() {
        let good = Digest::of(b"").to_message();
        let with = |hash: &str, size_bytes| {
            Digest::from_message(&reapi::Digest {
                hash: hash.to_owned(),
                size_bytes,
            })
        };
        assert!(with(&good.hash, 0).is_some());
        assert_eq!(with(&good.hash, -1), None);
        assert_eq!(with(&good.hash[1..], 0), None);
        assert_eq!(with(&good.hash.to_uppercase(), 0), None);
        assert_eq!(with(&"é".repeat(32), 0), None);
    }
}
