//! Frames of the local socket: requests, replies, and streams of them.

#![no_main]

use fuzzed::{encoded, frame_seeds, fuzz_frames};
use wafengine::wire::{
    Caching, Execute, Form, Hello, MissReason, Outcome, Policy, Reply, Request, Stdio, Strings, Told, UnstoredReason,
    Why, FRAME_CAP,
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
            outputs: strings(&["x.o", "/p/x.d"]),
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
            memory: Some(4 << 30),
        }),
        Request::Caching(Caching {
            bases: strings(&["/p"]),
            export: Some(b"/p/e".to_vec()),
            remote: Some(b"redis://h".to_vec()),
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
            told: Told::Miss {
                why: MissReason::New,
                words: "new".to_owned(),
                unstored: Some(UnstoredReason::CommandFailed.into()),
                saved: 1,
            },
        },
        Reply::Inputs {
            id: 1,
            first: 0,
            new: strings(&["a", "b"]),
            result: [7; 32],
            numbers: vec![1, 0],
        },
    ];
    let requests = requests.iter().map(|request| encoded(|to| request.encode(to)));
    let replies = replies.iter().map(|reply| encoded(|to| reply.encode(to)));
    frame_seeds(requests.chain(replies).collect())
}

fuzz_frames!(seeds(), Request, Reply, FRAME_CAP);
