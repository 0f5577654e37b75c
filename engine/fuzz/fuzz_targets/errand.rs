//! Frames between the engine and `wafd-cluster`, in both directions.

#![no_main]

use fuzzed::{encoded, frame_seeds, frames, pieces, seed, within};
use libfuzzer_sys::fuzz_target;
use wafengine::bytes::digest::Digest;
use wafengine::cluster::message::{Execute, Failure, Reply, Request, FRAME_CAP};

/// An empty word takes four bytes of a frame, and a vector in memory, which is moved when the list of words grows.
const FOR_EACH_BYTE: usize = 32;

fn seeds() -> Vec<Vec<u8>> {
    let words = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let execute = Execute {
        id: 7,
        session: [3; 16],
        time: 600_000,
        argv: words("gcc -c a.c"),
        environment: words("PATH=/bin LANG=C"),
        folder: b"/home/u/p".to_vec(),
        files: words("/home/u/p/a.c /home/u/p/a.h"),
        folders: words("/home/u/p/include"),
        links: vec![(b"/home/u/q".to_vec(), b"p".to_vec())],
        places: words("/home/u/p"),
    };
    let requests = [Request::Execute(Box::new(execute)), Request::Cancel { id: 7 }];
    let key = Digest::of(b"key");
    let why = Failure::NoEntry;
    let replies = [
        Reply::Blob {
            id: 7,
            bytes: b"object",
        },
        Reply::Entry {
            id: 7,
            key,
            bytes: b"facts",
        },
        Reply::Why {
            id: 7,
            why,
            words: b"it failed",
        },
    ];
    let requests = requests.iter().map(|request| encoded(|to| request.encode(to)));
    let replies = replies.iter().map(|reply| encoded(|to| reply.encode(to)));
    frame_seeds(requests.chain(replies).collect())
}

fuzz_target!(init: seed(seeds()), |data: &[u8]| {
    let Some((whole, pieces)) = pieces(data) else { return };
    let (found, is_broken) = frames([whole], FRAME_CAP);
    assert_eq!(frames(pieces, FRAME_CAP), (found.clone(), is_broken));
    for frame in &found {
        let most = FOR_EACH_BYTE * frame.len() + 1024;
        if let Ok(request) = within(most, || Request::decode(frame)) {
            assert_eq!(Request::decode(&encoded(|to| request.encode(to))[4..]), Ok(request));
        }
        if let Ok(reply) = within(most, || Reply::decode(frame)) {
            assert_eq!(Reply::decode(&encoded(|to| reply.encode(to))[4..]), Ok(reply));
        }
    }
});
