//! Values of a shared store: bundles and blobs.

#![no_main]

use fuzzed::{seed, within};
use libfuzzer_sys::fuzz_target;
use wafengine::bytes::digest::Digest;
use wafengine::cache::lookup::entry::Entry;
use wafengine::cache::remote::bundle::{decode_blob, encode_blob, Bundle};
use wafengine::cache::remote::wrapped::Wrapped;

const MAGIC: &[u8] = b"wfs\x01";
const CHECK: usize = 16;

fn key() -> Digest {
    Digest::of(b"key")
}

fn seeds() -> Vec<Vec<u8>> {
    let blob = |bytes: Vec<u8>| (Digest::of(&bytes), Wrapped::of(bytes));
    let bundle = Bundle {
        entries: vec![
            Entry::default().encode(),
            [&b"wfg\x01"[..], &[7; 96], &Entry::default().encode()].concat(),
            b"another".to_vec(),
        ],
        blobs: [blob(b"small".to_vec()), blob(vec![7; 10_000])].into(),
    };
    let body = bundle.encode(&key())[MAGIC.len() + CHECK..].to_vec();
    vec![body, encode_blob(&Wrapped::of(b"small".to_vec()))]
}

/// Adds the right check, without which nothing else would be decoded.
fn signed(body: &[u8]) -> Vec<u8> {
    let check = blake3::keyed_hash(&key().0, body);
    [MAGIC, &check.as_bytes()[..CHECK], body].concat()
}

fuzz_target!(init: seed(seeds()), |data: &[u8]| {
    let most = 16 * data.len() + 4096;
    assert_eq!(within(most, || Bundle::decode(&key(), data)), None, "it has no check");
    let value = signed(data);
    if let Some(bundle) = within(most, || Bundle::decode(&key(), &value)) {
        assert_eq!(Bundle::decode(&key(), &bundle.encode(&key())), Some(bundle.clone()));
        // Foreign entries may be dropped, and none appears.
        let known = bundle.entries.clone();
        let arranged = bundle.with(Entry::default().encode(), Vec::new());
        let others = arranged.bundle.entries.iter().skip(1);
        assert!(others.into_iter().all(|entry| known.contains(entry)));
    }
    if let Some(blob) = within(most, || decode_blob(data)) {
        assert_eq!(encode_blob(&blob), data);
        if let Some(bytes) = blob.open(&Digest::of(&blob.bytes)) {
            assert_eq!(bytes, blob.bytes);
        }
    }
});
