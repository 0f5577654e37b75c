//! Questions of `wafcc` to an engine about its store, and how it prints the answers. The test plays the engine.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;

use crate::support::sandbox::{run, ProgramOutput, Sandbox};
use crate::support::wrapper;
use wafengine::bytes::frame::Inbox;
use wafengine::report::explanation::Explanation;
use wafengine::report::question::{self, Answer, Question};
use wafengine::report::statistics::Statistics;
use wafengine::wire::{Known, Reply, Request, FRAME_CAP};

/// Serves one client: greets it, answers its question, and returns the question.
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

/// What `wafcc` prints for these options and this answer, and the request that it sent.
#[track_caller]
fn run_with_answer(args: &[&str], answer: Answer) -> (question::Request, ProgramOutput) {
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

/// Statistics are a table, with all reasons on request, or JSON.
#[test]
fn statistics_are_shown() {
    let answer = || Answer::Statistics(Box::new(statistics()));
    let (request, said) = run_with_answer(&["-s"], answer());
    assert_eq!(request, question::Request::Statistics);
    assert_eq!(said.succeeded(), statistics().show(false));
    let (_, said) = run_with_answer(&["--show-stats", "--verbose"], answer());
    assert!(said.succeeded().contains("a header changed"));
    let (_, said) = run_with_answer(&["--json", "-s"], answer());
    let json: serde_json::Value = serde_json::from_str(&said.succeeded()).unwrap();
    assert_eq!(Statistics::from_json(&json), Ok(statistics()));
}

/// The number of removed entries is printed.
#[test]
fn removals_are_reported() {
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
        let (asked, said) = run_with_answer(args, answer());
        assert_eq!(asked, request);
        assert_eq!(said.succeeded(), "Removed 2 entries, 1.5 kB\n");
    }
}

/// The request has the absolute path of the output. The explanation is printed line by line.
#[test]
fn an_explanation_is_printed() {
    let explanation = Explanation {
        output: "/usr/out/a.o".to_owned(),
        known: Known::Miss,
        why: vec!["/usr/a.h has changed".to_owned(), "so has b.h".to_owned()],
        ..Explanation::default()
    };
    let (request, said) = run_with_answer(&["--explain", "out/a.o"], Answer::Explanations(vec![explanation]));
    let output = Some("/usr/out/a.o".to_owned());
    assert_eq!(request, question::Request::Explain { output });
    assert_eq!(
        said.succeeded(),
        "/usr/out/a.o: miss: /usr/a.h has changed\n  so has b.h\n"
    );
}

/// A running engine gets the new value of its settings.
#[test]
fn a_running_engine_gets_its_new_settings() {
    let (request, said) = run_with_answer(&["--max-size", "3G"], Answer::Done);
    let (name, value) = ("max_size".to_owned(), "3G".to_owned());
    assert_eq!(request, question::Request::Set { name, value });
    assert_eq!(said.succeeded(), "");
}

/// A refusal is one line and an exit status.
#[test]
fn a_refusal_is_reported() {
    let (_, said) = run_with_answer(&["-z"], Answer::Refusal("another store".to_owned()));
    assert_eq!((said.status, &*said.stderr), (Some(1), "wafcc: another store\n"));
}

/// The real engine answers, and goes on serving.
#[test]
fn a_real_engine_answers() {
    let sandbox = Sandbox::new();
    let said = run(wrapper::wafcc(&sandbox).args(["--clear", "--show-stats"]));
    assert!(said.succeeded().contains("Cacheable calls:"));
    sandbox.serves();
}
