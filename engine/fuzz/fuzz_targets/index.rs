//! The index of the store: frames with items for blobs, pieces of volumes and entries.

#![no_main]

use fuzzed::{seed, within};
use libfuzzer_sys::fuzz_target;
use wafengine::cache::store::item::{frame, Frames, Items};

fn seeds() -> Vec<Vec<u8>> {
    // One of each kind, as docs/store-format.md has them.
    let payloads = [
        [&b"b"[..], &[1; 32], &[2; 8], &[3; 4]].concat(),
        [&b"p"[..], &[1; 32], &[2; 8], &[3; 8], &[4; 4], &[5, 0, 0, 0]].concat(),
        [&b"e"[..], &[1; 4], &[2; 32], &[3; 8], &[2, 0], &[4; 16]].concat(),
        b"d\x01\0\0\0u\x01\0\0\0\x07\0\0\0\0\0\0\0c\x03hit\x01\0\0\0\0\0\0\0zx".to_vec(),
    ];
    let mut all = payloads.to_vec();
    let mut framed = Vec::new();
    payloads.iter().for_each(|payload| frame(payload, &mut framed));
    all.push(framed);
    all
}

fuzz_target!(init: seed(seeds()), |data: &[u8]| {
    within(2 * data.len() + 1024, || Items(data).for_each(drop));
    let items: Vec<_> = Items(data).collect();
    let mut again = Vec::new();
    items.iter().for_each(|item| item.write(&mut again));
    assert_eq!(Items(&again).collect::<Vec<_>>(), items);
    // A frame is found between any other bytes.
    let mut framed = data.to_vec();
    frame(&again, &mut framed);
    let length = framed.len();
    framed.extend_from_slice(data);
    let mut frames = Frames::new(&framed);
    let found: Vec<_> = frames.by_ref().collect();
    assert!(again.len() > 1 << 20 || found.contains(&&again[..]) || is_swallowed(&framed[..length], &found));
});

/// Whether another frame, which begins in the bytes before, contains it.
fn is_swallowed(before: &[u8], found: &[&[u8]]) -> bool {
    found.iter().any(|payload| payload.len() > before.len() / 2)
}
