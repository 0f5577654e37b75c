//! Frames of a team's server, in both directions.

#![no_main]

use fuzzed::{encoded, frame_seeds, fuzz_frames};
use wafengine::bytes::digest::Digest;
use wafengine::room::{Begun, Coding, Content, Hello, NotKept, Refusal, Reply, Request, Rights, FRAME_CAP};

fn seeds() -> Vec<Vec<u8>> {
    let digest = Digest::of(b"x");
    let digests = || vec![digest, Digest::of(b"y")];
    let begun = Begun {
        digest,
        coding: Coding::Zstd,
        size: 9,
        first: b"first",
    };
    let requests = [
        Request::Hello(Hello {
            lowest: 1,
            highest: 7,
            token: b"a secret",
            namespace: b"",
            name: b"ci",
        }),
        Request::Find {
            id: 1,
            inline: 65536,
            keys: digests(),
        },
        Request::Get {
            id: 2,
            digests: digests(),
        },
        Request::Has {
            id: 3,
            digests: digests(),
        },
        Request::Blob { id: 4, begun },
        Request::Data { id: 4, bytes: b"then" },
        Request::Entry {
            id: 5,
            key: digest,
            needs: digests(),
            bytes: b"facts",
        },
        Request::Ping { id: 6 },
        Request::Abandon { id: 7 },
    ];
    let replies = [
        Reply::Welcome {
            version: 1,
            rights: Rights::default(),
            largest: 1 << 33,
            name: b"team",
        },
        Reply::Refused {
            why: Refusal::Token,
            words: b"no",
        },
        Reply::Found {
            id: 1,
            number: 2,
            entry: b"facts",
            contents: vec![Content {
                digest,
                coding: Coding::Plain,
                bytes: b"x",
            }],
        },
        Reply::End { id: 1 },
        Reply::Blob { id: 1, begun },
        Reply::Data { id: 1, bytes: b"x" },
        Reply::Missing { id: 1, digest },
        Reply::Held {
            id: 1,
            bits: [true, false, true].into_iter().collect(),
        },
        Reply::Kept { id: 1 },
        Reply::NotKept {
            id: 1,
            why: NotKept::Full,
            words: b"full",
        },
        Reply::Pong { id: 1 },
    ];
    let requests = requests.iter().map(|request| encoded(|to| request.encode(to)));
    let replies = replies.iter().map(|reply| encoded(|to| reply.encode(to)));
    frame_seeds(requests.chain(replies).collect())
}

fuzz_frames!(seeds(), Request, Reply, FRAME_CAP);
