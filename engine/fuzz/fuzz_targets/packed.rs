//! Packed blobs, from a store or from another machine.

#![no_main]

use fuzzed::{seed, within};
use libfuzzer_sys::fuzz_target;
use wafengine::cache::store::{unpack, Compression, LARGEST};

fn seeds() -> Vec<Vec<u8>> {
    let packed = |bytes: &[u8]| Compression::Auto.pack(bytes).unwrap();
    vec![
        packed(&[7; 10_000]),
        packed(&b"a line of an object file, so to say\n".repeat(300)),
    ]
}

fuzz_target!(init: seed(seeds()), |data: &[u8]| {
    if let Some(bytes) = within(LARGEST + 4096, || unpack(data)) {
        assert!(bytes.len() <= LARGEST);
    }
    if let Some(packed) = Compression::Auto.pack(data) {
        assert_eq!(unpack(&packed).as_deref(), Some(data));
    }
});
