//! Messages of a server in the layout of bazel-remote.

#![no_main]

use fuzzed::{seed, within};
use libfuzzer_sys::fuzz_target;
use wafengine::tier::bazel::{field, hash_of_output, put_field, put_output, STDOUT_RAW};

fn seeds() -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new(), Vec::new()];
    put_field(&mut all[0], STDOUT_RAW, b"shelf");
    put_output(&mut all[1], &"0a".repeat(32), 300);
    all.push(b"\x20\x07\x31\0\0\0\0\0\0\0\0\x3a\x01\x09\x3d\0\0\0\0".to_vec());
    all
}

fuzz_target!(init: seed(seeds()), |data: &[u8]| {
    if let Some(hash) = within(4096, || hash_of_output(data)) {
        let mut again = Vec::new();
        put_output(&mut again, &hash, data.len());
        assert_eq!(hash_of_output(&again), Some(hash));
    }
    if let Some(bytes) = within(0, || field(data, STDOUT_RAW)) {
        let mut again = Vec::new();
        put_field(&mut again, STDOUT_RAW, bytes);
        assert_eq!(field(&again, STDOUT_RAW), Some(bytes));
    }
});
