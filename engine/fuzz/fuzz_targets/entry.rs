//! Entries, which a store or another machine gives.

#![no_main]

use fuzzed::{seed, within};
use libfuzzer_sys::fuzz_target;
use wafengine::cache::digest::Digest;
use wafengine::cache::entry::{Content, Entry, Output, Print};
use wafengine::cache::fact::{Fact, Kind};
use wafengine::cache::path::{Path, Root};

fn seeds() -> Vec<Vec<u8>> {
    let digest = Digest::of(b"x");
    let path = |root, rest: &str| Path {
        root,
        rest: rest.as_bytes().to_vec(),
    };
    let facts = vec![
        Fact::Variable {
            name: b"PATH".to_vec(),
            value: Some(b"/bin".to_vec()),
        },
        Fact::Names { digest },
        Fact::Folder { path: b"/p".to_vec() },
        Fact::File {
            path: path(Root::Absolute, "usr/include/stdio.h"),
            digest,
        },
        Fact::File {
            path: path(Root::Absolute, "usr/include/stdlib.h"),
            digest,
        },
        Fact::There {
            path: path(Root::Folder, "x"),
            kind: Kind::of_number(0).unwrap(),
            follows: true,
            number: 3,
        },
        Fact::Target {
            path: path(Root::Base, "l"),
            text: b"t".to_vec(),
        },
        Fact::Absent {
            path: path(Root::Folder, "y"),
            follows: false,
        },
    ];
    let output = Output {
        path: Path::here(),
        number: Some(0),
        content: Content::File {
            digest,
            size: 700,
            is_program: true,
        },
    };
    let entry = Entry {
        facts,
        outputs: vec![output],
        stderr: Print::Inline(b"a warning".to_vec()),
        ..Entry::default()
    };
    vec![entry.encode(), Entry::default().encode()]
}

fuzz_target!(init: seed(seeds()), |data: &[u8]| {
    // A path is told by what it does not share with the one before it.
    if let Ok(entry) = within(1024 * data.len() + (40 << 20), || Entry::decode(data)) {
        assert_eq!(Entry::decode(&entry.encode()).ok(), Some(entry));
    }
});
