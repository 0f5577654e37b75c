//! Messages of a server in the layout of bazel-remote.

#![no_main]

use fuzzed::{seed, within};
use libfuzzer_sys::fuzz_target;
use wafengine::cache::lookup::packed::Packer;
use wafengine::tier::bazel::{field, hash_of_output, put_field, put_output, STDOUT_RAW};

fn message(write: impl FnOnce(&mut Packer)) -> Vec<u8> {
    let mut packer = Packer::default();
    write(&mut packer);
    packer.finish()
}

fn seeds() -> Vec<Vec<u8>> {
    vec![
        message(|to| put_field(to, STDOUT_RAW, b"bundle")),
        message(|to| put_output(to, &"0a".repeat(32), 300)),
        b"\x20\x07\x31\0\0\0\0\0\0\0\x3a\x01\x09\x3d\0\0\0\0".to_vec(),
    ]
}

fuzz_target!(init: seed(seeds()), |data: &[u8]| {
    if let Some(hash) = within(4096, || hash_of_output(data)) {
        let again = message(|to| put_output(to, &hash, data.len()));
        assert_eq!(hash_of_output(&again), Some(hash));
    }
    if let Some(bytes) = within(0, || field(data, STDOUT_RAW)) {
        let again = message(|to| put_field(to, STDOUT_RAW, bytes));
        assert_eq!(field(&again, STDOUT_RAW), Some(bytes));
    }
});
