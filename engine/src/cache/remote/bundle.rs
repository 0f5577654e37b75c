//! All that a store of plain values holds under one key: entries, the newest first, and some of their blobs. Its form as
//! bytes is in `docs/tiers.md`.
//!
//! Pure. The bundle has the blobs of the newest entry as far as they fit, and few of older ones, because a lookup reads all
//! of it. The other blobs are values of their own.

use std::collections::HashMap;

use super::wrapped::Wrapped;
use crate::bytes::digest::Digest;
use crate::bytes::fields::{put_text, Malformed, Reader};
use crate::cache::lookup::entry::Entry;
use crate::trust::signature::Sealed;

const MAGIC: &[u8; 4] = b"wfs\x01";
const BLOB: &[u8; 4] = b"wfb\x01";
const CHECK: usize = 16;
/// How many entries of one command a store keeps.
pub const MOST_ENTRIES: usize = 16;
const MOST_BLOBS: usize = 4096;
/// Limits for the blobs of the newest entry, for those of the others, and for all entries without blobs.
const ROOM: usize = 1 << 20;
const ROOM_FOR_OLD: usize = 256 << 10;
const ROOM_FOR_ENTRIES: usize = 512 << 10;
/// No value with a bundle is larger. One entry may exceed the limits above.
pub const LARGEST_BUNDLE: usize = 16 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bundle {
    pub entries: Vec<Vec<u8>>,
    pub blobs: HashMap<Digest, Wrapped>,
}

/// A bundle, and the blobs to be stored beside it.
pub struct Arranged {
    pub bundle: Bundle,
    pub beside: Vec<(Digest, Wrapped)>,
}

impl Bundle {
    /// Adds an entry in front.
    pub fn with(self, entry: Vec<u8>, blobs: Vec<(Digest, Wrapped)>) -> Arranged {
        let mut at_hand = self.blobs;
        at_hand.extend(blobs);
        let old = self.entries.into_iter().filter(|old| *old != entry).collect::<Vec<_>>();
        let mut bundle = Bundle::default();
        let mut beside = Vec::new();
        let (mut entries, mut used) = (0, 0);
        for (number, bytes) in std::iter::once(entry).chain(old).take(MOST_ENTRIES).enumerate() {
            entries += bytes.len();
            if number > 0 && entries > ROOM_FOR_ENTRIES {
                break;
            }
            let Ok(entry) = Entry::decode(Sealed::read(&bytes).entry) else {
                continue;
            };
            used += bytes.len();
            let room = if number == 0 { ROOM } else { ROOM_FOR_OLD };
            for digest in entry.blobs() {
                // A blob that is not at hand is already stored beside the bundle.
                let Some(blob) = at_hand.remove(&digest) else { continue };
                if used + blob.bytes.len() <= room {
                    used += blob.bytes.len();
                    bundle.blobs.insert(digest, blob);
                } else {
                    beside.push((digest, blob));
                }
            }
            bundle.entries.push(bytes);
        }
        Arranged { bundle, beside }
    }

    pub fn encode(&self, key: &Digest) -> Vec<u8> {
        let mut body = vec![self.entries.len() as u8];
        for entry in &self.entries {
            put_text(&mut body, entry);
        }
        body.extend((self.blobs.len() as u16).to_le_bytes());
        let mut blobs: Vec<_> = self.blobs.iter().collect();
        blobs.sort_unstable_by_key(|(digest, _)| **digest);
        for (digest, blob) in blobs {
            body.extend(digest.0);
            body.push(blob.coding);
            put_text(&mut body, &blob.bytes);
        }
        [&MAGIC[..], &check(key, &body), &body].concat()
    }

    /// `None` if the bytes are no bundle of this key.
    pub fn decode(key: &Digest, bytes: &[u8]) -> Option<Bundle> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (found, rest) = rest.split_at_checked(CHECK)?;
        if found != check(key, rest) {
            return None;
        }
        let mut from = Reader(rest);
        let bundle = read(&mut from).ok()?;
        from.rest().is_empty().then_some(bundle)
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

fn read(from: &mut Reader<'_>) -> Result<Bundle, Malformed> {
    let too_many = Err(Malformed("more than a bundle holds"));
    let mut bundle = Bundle::default();
    let count = usize::from(from.u8()?);
    if count > MOST_ENTRIES {
        return too_many;
    }
    for _ in 0..count {
        bundle.entries.push(from.text()?.to_vec());
    }
    let count = usize::from(from.u16()?);
    if count > MOST_BLOBS {
        return too_many;
    }
    for _ in 0..count {
        let (digest, coding) = (Digest(from.array()?), from.u8()?);
        let bytes = from.text()?.to_vec();
        bundle.blobs.insert(digest, Wrapped { coding, bytes });
    }
    Ok(bundle)
}

/// A blob that is a value of its own.
pub fn encode_blob(blob: &Wrapped) -> Vec<u8> {
    [&BLOB[..], &[blob.coding], &blob.bytes].concat()
}

pub fn decode_blob(bytes: &[u8]) -> Option<Wrapped> {
    let (coding, bytes) = bytes.strip_prefix(BLOB)?.split_first()?;
    Some(Wrapped {
        coding: *coding,
        bytes: bytes.to_vec(),
    })
}

/// Keyed with the purpose of the value: a value that was moved or cut does not match.
fn check(key: &Digest, body: &[u8]) -> [u8; CHECK] {
    let digest = blake3::keyed_hash(&key.0, body);
    std::array::from_fn(|at| digest.as_bytes()[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::lookup::entry::{Content, Output, Print};
    use crate::facts::path::Path;

    /// An entry with one output, and that output.
    fn made(size: usize, seed: u8) -> (Vec<u8>, (Digest, Wrapped)) {
        let mut bytes = vec![0; size];
        blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut bytes);
        let digest = Digest::of(&bytes);
        let content = Content::File {
            digest,
            size: size as u64,
            is_program: false,
        };
        let output = Output {
            path: Path::here(),
            number: Some(0),
            content,
            dated: None,
        };
        let entry = Entry {
            outputs: vec![output],
            stderr: Print::Inline(vec![seed]),
            ..Entry::default()
        };
        (entry.encode(), (digest, Wrapped::of(bytes)))
    }

    fn key() -> Digest {
        Digest::of(b"key")
    }

    fn filled(count: u8, size: usize) -> (Bundle, Vec<(Digest, Wrapped)>) {
        let mut beside = Vec::new();
        let bundle = (0..count).fold(Bundle::default(), |bundle, seed| {
            let (entry, blob) = made(size, seed);
            let arranged = bundle.with(entry, vec![blob]);
            beside.extend(arranged.beside);
            arranged.bundle
        });
        (bundle, beside)
    }

    #[test]
    fn the_newest_comes_first_and_sixteen_stay() {
        let (bundle, beside) = filled(20, 10);
        assert_eq!(bundle.entries.len(), MOST_ENTRIES);
        assert_eq!(bundle.entries[0], made(10, 19).0);
        assert_eq!(bundle.blobs.len(), MOST_ENTRIES, "no blob of a dropped entry stays");
        assert!(beside.is_empty());
        let again = bundle.clone().with(made(10, 10).0, vec![]).bundle;
        assert_eq!(again.entries.len(), MOST_ENTRIES);
        assert_eq!(again.entries[0], made(10, 10).0);
    }

    #[test]
    fn blobs_that_do_not_fit_become_values_of_their_own() {
        let (bundle, beside) = filled(4, 200_000);
        assert_eq!(bundle.entries.len(), 4);
        assert_eq!(
            bundle.blobs.len(),
            1,
            "a second blob would exceed the room for old entries"
        );
        assert!(bundle.blobs.contains_key(&made(200_000, 3).1 .0));
        assert_eq!(beside.len(), 3);
        let (entry, blob) = made(2 << 20, 9);
        let arranged = bundle.with(entry, vec![blob.clone()]);
        assert_eq!(arranged.beside[0], blob);
        assert!(arranged.bundle.encode(&key()).len() < ROOM + 1000);
    }

    #[test]
    fn a_bundle_is_read_as_it_was_written_and_only_with_its_key() {
        let (bundle, _) = filled(3, 5000);
        let bytes = bundle.encode(&key());
        assert_eq!(Bundle::decode(&key(), &bytes), Some(bundle));
        assert_eq!(Bundle::decode(&Digest::of(b"other"), &bytes), None);
        assert_eq!(Bundle::decode(&key(), b""), None);
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let bytes = filled(2, 100).0.encode(&key());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x41;
            assert_eq!(Bundle::decode(&key(), &damaged), None, "{at}");
            assert_eq!(Bundle::decode(&key(), &bytes[..at]), None, "{at}");
        }
    }

    #[test]
    fn wrong_lengths_are_refused() {
        let signed = |body: &[u8]| [&MAGIC[..], &check(&key(), body), body].concat();
        for body in [&[1, 255, 255, 255, 255][..], &[17], &[0, 255, 255], &[0, 0, 0, 0], &[]] {
            assert_eq!(Bundle::decode(&key(), &signed(body)), None, "{body:?}");
        }
        assert_eq!(Bundle::decode(&key(), &signed(&[0, 0, 0])), Some(Bundle::default()));
    }

    #[test]
    fn a_blob_is_read_as_it_was_written() {
        let (_, (digest, blob)) = made(100, 1);
        let read = decode_blob(&encode_blob(&blob)).unwrap();
        assert!(read.open(&digest).is_some());
        assert_eq!(decode_blob(b"wfb\x01"), None);
        assert_eq!(decode_blob(b"nonsense"), None);
    }
}
