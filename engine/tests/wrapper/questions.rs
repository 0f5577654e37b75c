//! What `wafcc` asks of an engine about its store, and what it makes of the answer; the engine is the test's own.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;

use crate::support::sandbox::{run, Said, Sandbox};
use crate::support::wrapper;
use wafengine::bytes::frame::Inbox;
use wafengine::report::explanation::Explanation;
use wafengine::report::question::{self, Answer, Question};
use wafengine::report::statistics::Statistics;
use wafengine::wire::{Known, Reply, Request, FRAME_CAP};

/// Serves one client: greets it, answers its question, and tells what that was.
fn serve(sandbox: &Sandbox, answer: Answer) -> JoinHandle<Option<Question>> {
    let listener = UnixListener::bind(sandbox.socket()).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut inbox, mut chunk) = (Inbox::new(FRAME_CAP), [0; 4096]);
        loop {
            while let Some(frame) = inbox.take().unwrap() {
                let mut reply = Vec::new();
                match Request::decode(frame).unwrap() {
                    Request::Hello(_) => welcome().encode(&mut reply),
                    Request::Cache { question } => {
                        Reply::Report { json: answer.encode() }.encode(&mut reply);
                        stream.write_all(&reply).unwrap();
                        return Some(Question::decode(&question).unwrap());
                    }
                    other => panic!("{other:?}"),
                }
                stream.write_all(&reply).unwrap();
            }
            match stream.read(&mut chunk).unwrap() {
                0 => return None,
                n => inbox.push(&chunk[..n]),
            }
        }
    })
}

fn welcome() -> Reply {
    Reply::Welcome {
        version: 1,
        pid: std::process::id(),
        slots: 1,
        engine: b"test".to_vec(),
    }
}

/// What `wafcc` with these options said to this answer, and what it had asked for.
#[track_caller]
fn put(args: &[&str], answer: Answer) -> (question::Request, Said) {
    let sandbox = Sandbox::new();
    let asked = serve(&sandbox, answer);
    let said = run(wrapper::wafcc(&sandbox).args(args).current_dir("/usr"));
    let question = asked.join().unwrap().expect("a question");
    assert_eq!(question.store, sandbox.path("home/.cache/wafcc"));
    std::fs::remove_file(sandbox.socket()).unwrap();
    (question.request, said)
}

fn statistics() -> Statistics {
    Statistics {
        since: 86_400,
        hits: 3,
        misses: [("a header changed".to_owned(), 1)].into(),
        limit: 5_000_000_000,
        ..Statistics::default()
    }
}

/// Statistics come as a table, with reasons on request, and as JSON.
#[test]
fn statistics_are_shown() {
    let answer = || Answer::Statistics(Box::new(statistics()));
    let (request, said) = put(&["-s"], answer());
    assert_eq!(request, question::Request::Statistics);
    assert_eq!(said.succeeded(), statistics().show(false));
    let (_, said) = put(&["--show-stats", "--verbose"], answer());
    assert!(said.succeeded().contains("a header changed"));
    let (_, said) = put(&["--json", "-s"], answer());
    let json: serde_json::Value = serde_json::from_str(&said.succeeded()).unwrap();
    assert_eq!(Statistics::from_json(&json), Ok(statistics()));
}

/// What was removed is said.
#[test]
fn removals_are_told() {
    let answer = || Answer::Removed {
        entries: 2,
        bytes: 1500,
    };
    for (args, request) in [
        (&["--clear"][..], question::Request::Clear),
        (&["-c"], question::Request::CleanUp),
        (
            &["--evict-older-than", "2d"],
            question::Request::Evict { seconds: 172_800 },
        ),
    ] {
        let (asked, said) = put(args, answer());
        assert_eq!(asked, request);
        assert_eq!(said.succeeded(), "Removed 2 entries, 1.5 kB\n");
    }
}

/// An output is asked for by its absolute path, and the explanation printed line by line.
#[test]
fn an_explanation_is_printed() {
    let explanation = Explanation {
        output: "/usr/out/a.o".to_owned(),
        known: Known::Miss,
        why: vec!["/usr/a.h has changed".to_owned(), "so has b.h".to_owned()],
        ..Explanation::default()
    };
    let (request, said) = put(&["--explain", "out/a.o"], Answer::Explanations(vec![explanation]));
    let output = Some("/usr/out/a.o".to_owned());
    assert_eq!(request, question::Request::Explain { output });
    assert_eq!(
        said.succeeded(),
        "/usr/out/a.o: miss: /usr/a.h has changed\n  so has b.h\n"
    );
}

/// An engine that runs is told of a setting that it heeds.
#[test]
fn an_engine_is_told_of_its_settings() {
    let (request, said) = put(&["--max-size", "3G"], Answer::Done);
    let (name, value) = ("max_size".to_owned(), "3G".to_owned());
    assert_eq!(request, question::Request::Set { name, value });
    assert_eq!(said.succeeded(), "");
}

/// A refusal is one line and a status.
#[test]
fn a_refusal_is_told() {
    let (_, said) = put(&["-z"], Answer::Refusal("another store".to_owned()));
    assert_eq!((said.status, &*said.stderr), (Some(1), "wafcc: another store\n"));
}

/// The real engine answers, and goes on to serve.
#[test]
fn a_real_engine_answers() {
    let sandbox = Sandbox::new();
    let said = run(wrapper::wafcc(&sandbox).args(["--clear", "--show-stats"]));
    assert!(said.succeeded().contains("Cacheable calls:"));
    sandbox.serves();
}
