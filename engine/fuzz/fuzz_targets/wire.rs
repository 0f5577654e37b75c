//! Frames of the local socket: requests, replies, and streams of them.

#![no_main]

use fuzzed::{cut, frames, pieces, seed, within};
use libfuzzer_sys::fuzz_target;
use wafengine::jobserver::Form;
use wafengine::wire::{
    Caching, Execute, Hello, Known, Outcome, Policy, Reply, Request, Stdio, Strings, Why, FRAME_CAP,
};

fn seeds() -> Vec<Vec<u8>> {
    let text = || b"text".to_vec();
    let strings = |words: &[&str]| words.iter().collect::<Strings>();
    let requests = [
        Request::Hello(Hello {
            token: text(),
            name: text(),
            ..Hello::default()
        }),
        Request::Environment {
            env: 3,
            entries: strings(&["A=b", "PATH=/bin"]),
        },
        Request::Execute(Box::new(Execute {
            id: 1,
            env: 3,
            new_session: true,
            cached: true,
            by_facts: false,
            inputs: true,
            stdio: [Stdio::Null, Stdio::Pipe, Stdio::SameAsStdout],
            timeout: 9,
            cwd: b"/p".to_vec(),
            argv: strings(&["cc", "-c", "x.c"]),
            input: text(),
        })),
        Request::Cancel { id: 1 },
        Request::Status,
        Request::Stop { now: true },
        Request::Listen,
        Request::Policy(Policy {
            no_brake: true,
            tokens: true,
            serve: Some(Form::Fifo),
            load: 700,
        }),
        Request::Caching(Caching {
            bases: strings(&["/p"]),
            ..Caching::default()
        }),
        Request::Cache { question: text() },
    ];
    let replies = [
        Reply::Welcome {
            version: 1,
            pid: 2,
            slots: 3,
            engine: text(),
        },
        Reply::Refused {
            why: Why::Place,
            reason: text(),
        },
        Reply::Output {
            id: 1,
            stream: 2,
            data: text(),
        },
        Reply::Outcome(Outcome::default()),
        Reply::Report { json: text() },
        Reply::Listening { port: 7 },
        Reply::Told {
            id: 1,
            known: Known::Hit,
            words: text(),
        },
        Reply::Inputs {
            id: 1,
            first: 0,
            new: strings(&["a", "b"]),
            result: [7; 32],
            numbers: vec![1, 0],
        },
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
