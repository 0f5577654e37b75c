//! Values of a store that machines share: shelves, blobs, and what is packed in them.

#![no_main]

use fuzzed::{seed, within};
use libfuzzer_sys::fuzz_target;
use wafengine::bytes::digest::Digest;
use wafengine::cache::lookup::entry::Entry;
use wafengine::cache::remote::shelf::{decode_blob, encode_blob, Shelf};
use wafengine::cache::remote::wrapped::Wrapped;

const MAGIC: &[u8] = b"wfs\x01";
const CHECK: usize = 16;

fn key() -> Digest {
    Digest::of(b"key")
}

fn seeds() -> Vec<Vec<u8>> {
    let blob = |bytes: Vec<u8>| (Digest::of(&bytes), Wrapped::of(bytes));
    let shelf = Shelf {
        entries: vec![
            Entry::default().encode(),
            [&b"wfg\x01"[..], &[7; 96], &Entry::default().encode()].concat(),
            b"another".to_vec(),
        ],
        blobs: [blob(b"small".to_vec()), blob(vec![7; 10_000])].into(),
    };
    let body = shelf.encode(&key())[MAGIC.len() + CHECK..].to_vec();
    vec![body, encode_blob(&Wrapped::of(b"small".to_vec()))]
}

/// With the right check: else nothing would come further.
fn signed(body: &[u8]) -> Vec<u8> {
    let check = blake3::keyed_hash(&key().0, body);
    [MAGIC, &check.as_bytes()[..CHECK], body].concat()
}

fuzz_target!(init: seed(seeds()), |data: &[u8]| {
    let most = 16 * data.len() + 4096;
    assert_eq!(within(most, || Shelf::decode(&key(), data)), None, "it has no check");
    let value = signed(data);
    if let Some(shelf) = within(most, || Shelf::decode(&key(), &value)) {
        assert_eq!(Shelf::decode(&key(), &shelf.encode(&key())), Some(shelf.clone()));
        // Entries that are none of ours go, and all that stays is what was there.
        let known = shelf.entries.clone();
        let arranged = shelf.with(Entry::default().encode(), Vec::new());
        let others = arranged.shelf.entries.iter().skip(1);
        assert!(others.into_iter().all(|entry| known.contains(entry)));
    }
    if let Some(blob) = within(most, || decode_blob(data)) {
        assert_eq!(encode_blob(&blob), data);
        if let Some(bytes) = blob.open(&Digest::of(&blob.bytes)) {
            assert_eq!(bytes, blob.bytes);
        }
    }
});
