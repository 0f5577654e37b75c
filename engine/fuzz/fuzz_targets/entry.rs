//! Entries from a store or from another machine, with signatures and marks of their origin.

#![no_main]

use fuzzed::{seed, within};
use libfuzzer_sys::fuzz_target;
use wafengine::bytes::digest::Digest;
use wafengine::cache::lookup::entry::{Content, Entry, Output, Print};
use wafengine::cache::remote::foreign::{is_calm, Origin, Stored};
use wafengine::facts::fact::{Fact, Kind};
use wafengine::facts::path::{Path, Root};
use wafengine::facts::status::Stamp;
use wafengine::trust::signature::{PublicKey, Sealed, Trust};

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
            path: path(Root::Base(0), "l"),
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
        dated: Some(Stamp {
            seconds: 1,
            nanoseconds: 2,
        }),
    };
    let entry = Entry {
        facts,
        outputs: vec![output],
        stderr: Print::Inline(b"a warning".to_vec()),
        ..Entry::default()
    };
    let signed = [&b"wfg\x01"[..], &[7; 96], &entry.encode()].concat();
    let foreign = Stored::encode_foreign(Some(PublicKey([7; 32])), &entry.encode());
    let text = b"a.c:1: \x1b[01;35m\x1b[Kwarning\x1b[m \x1b]8;;https://x/y\x07-W\x1b]8;;\x07\n".to_vec();
    vec![entry.encode(), Entry::default().encode(), signed, foreign, text]
}

fuzz_target!(init: seed(seeds()), |data: &[u8]| {
    // A path is encoded by its difference from the previous one, so decoding may need much memory.
    if let Ok(entry) = within(1024 * data.len() + (40 << 20), || Entry::decode(data)) {
        assert_eq!(Entry::decode(&entry.encode()).ok(), Some(entry));
    }
    let sealed = within(4096, || Sealed::read(data));
    assert!(data.ends_with(sealed.entry));
    let key = Digest::of(b"key");
    let trust = Trust::Keys(sealed.signer().into_iter().collect());
    assert!(trust.check(&key, &sealed).is_err(), "nobody has signed that");
    if let Some(stored) = within(1024 * data.len() + (40 << 20), || Stored::decode(data)) {
        let entry = stored.entry.encode();
        let again = match stored.origin {
            Origin::Own => entry,
            Origin::Foreign(signer) => Stored::encode_foreign(signer, &entry),
        };
        let again = Stored::decode(&again).expect("what was encoded");
        assert_eq!((again.origin, again.entry), (stored.origin, stored.entry));
    }
    if within(4096, || is_calm(data)) {
        let others = data.windows(2).filter(|pair| pair[0] == 0x1b);
        assert!(others.into_iter().all(|pair| b"[]\\".contains(&pair[1])));
        assert!(!data.iter().any(|byte| matches!(byte, 0..=6 | 8 | 0x0b | 0x0e..=0x1a | 0x7f)));
    }
});
