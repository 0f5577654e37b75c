//! Frames of a team's server, both ways.

#![no_main]

use fuzzed::{cut, frames, pieces, seed, within};
use libfuzzer_sys::fuzz_target;
use wafengine::cache::digest::Digest;
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
    let mut all: Vec<Vec<u8>> = Vec::new();
    requests.iter().for_each(|request| {
        all.push(Vec::new());
        request.encode(all.last_mut().unwrap());
    });
    replies.iter().for_each(|reply| {
        all.push(Vec::new());
        reply.encode(all.last_mut().unwrap());
    });
    all.push(all.concat());
    all.iter().map(|bytes| cut(bytes)).collect()
}

fuzz_target!(init: seed(seeds()), |data: &[u8]| {
    let Some((whole, pieces)) = pieces(data) else { return };
    let (found, is_broken) = frames([whole], FRAME_CAP);
    assert_eq!(frames(pieces, FRAME_CAP), (found.clone(), is_broken));
    for frame in &found {
        let most = 4 * frame.len() + 1024;
        if let Ok(request) = within(most, || Request::decode(frame)) {
            let mut again = Vec::new();
            request.encode(&mut again);
            assert_eq!(Request::decode(&again[4..]), Ok(request));
        }
        if let Ok(reply) = within(most, || Reply::decode(frame)) {
            let mut again = Vec::new();
            reply.encode(&mut again);
            assert_eq!(Reply::decode(&again[4..]), Ok(reply));
        }
    }
});
