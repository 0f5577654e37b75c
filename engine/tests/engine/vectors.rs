//! `tests/vectors/protocol.json`, which the Python tests use, too: bytes and their values, in both directions.

use std::fmt::Debug;

use serde_json::Value;
use wafengine::bytes::frame::Inbox;
use wafengine::wire::{
    Caching, Elsewhere, Execute, Form, Hello, Known, Malformed, MissReason, Outcome, Policy, Reply, Request, Size,
    Stdio, Step, Strings, Told, UncachedReason, Unkept, UnstoredReason, Verdict, Why, FRAME_CAP,
};

fn vectors() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/protocol.json");
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap()
}

/// The vectors of one group and sender. An empty group is an error, since it would test nothing.
fn select(group: &str, sender: &str) -> Vec<Value> {
    let all = vectors();
    let all = all[group].as_array().unwrap();
    let found: Vec<_> = all.iter().filter(|v| v["sender"] == sender).cloned().collect();
    assert!(!found.is_empty(), "no {group} vectors of {sender}");
    found
}

fn unhex(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap_or_else(|| panic!("not hexadecimal: {value}"));
    assert!(text.len() % 2 == 0, "{text}");
    let byte = |i| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

fn number<T: TryFrom<u64>>(value: &Value) -> T {
    let wide = value.as_u64().unwrap_or_else(|| panic!("not a number: {value}"));
    T::try_from(wide).unwrap_or_else(|_| panic!("out of range: {value}"))
}

fn strings(value: &Value) -> Strings {
    value.as_array().unwrap().iter().map(unhex).collect()
}

fn stdio(value: &Value) -> Stdio {
    match number::<u8>(value) {
        0 => Stdio::Null,
        1 => Stdio::Pipe,
        2 => Stdio::Descriptor,
        3 => Stdio::SameAsStdout,
        other => panic!("stdio {other}"),
    }
}

fn request(vector: &Value) -> Request {
    let f = &vector["fields"];
    match vector["frame"].as_str().unwrap() {
        "hello" => Request::Hello(Hello {
            lowest: number(&f["lowest"]),
            highest: number(&f["highest"]),
            session: unhex(&f["session"]).try_into().unwrap(),
            jobs: number(&f["jobs"]),
            wishes: number(&f["wishes"]),
            pid: number(&f["pid"]),
            token: unhex(&f["token"]),
            name: unhex(&f["name"]),
        }),
        "environment" => Request::Environment {
            env: number(&f["env"]),
            entries: strings(&f["entries"]),
        },
        "execute" => Request::Execute(Box::new(Execute {
            id: number(&f["id"]),
            env: number(&f["env"]),
            new_session: number::<u8>(&f["flags"]) & 1 != 0,
            cached: number::<u8>(&f["flags"]) & 2 != 0,
            by_facts: number::<u8>(&f["flags"]) & 4 != 0,
            inputs: number::<u8>(&f["flags"]) & 8 != 0,
            stdio: [stdio(&f["stdin"]), stdio(&f["stdout"]), stdio(&f["stderr"])],
            timeout: number(&f["timeout"]),
            cwd: unhex(&f["cwd"]),
            argv: strings(&f["argv"]),
            input: unhex(&f["input"]),
            outputs: f.get("outputs").map(strings).unwrap_or_default(),
        })),
        "cancel" => Request::Cancel { id: number(&f["id"]) },
        "status" => Request::Status,
        "stop" => Request::Stop {
            now: number::<u8>(&f["how"]) == 1,
        },
        "listen" => Request::Listen,
        "policy" => {
            let flags = number::<u8>(&f["flags"]);
            Request::Policy(Policy {
                no_brake: flags & 1 != 0,
                tokens: flags & 2 != 0,
                serve: match flags & 12 {
                    0 => None,
                    4 => Some(Form::Pipe),
                    8 => Some(Form::Fifo),
                    _ => panic!("flags {flags}"),
                },
                load: number(&f["load"]),
                memory: (flags & 16 != 0).then(|| number(&f["memory"])),
            })
        }
        "caching" => Request::Caching(Caching {
            read_only: number::<u8>(&f["flags"]) & 1 != 0,
            recache: number::<u8>(&f["flags"]) & 2 != 0,
            share_checkouts: number::<u8>(&f["flags"]) & 8 != 0,
            bases: strings(&f["bases"]),
            namespace: unhex(&f["namespace"]),
            store: unhex(&f["store"]),
            export: (number::<u8>(&f["flags"]) & 16 != 0).then(|| unhex(&f["export"])),
            remote: (number::<u8>(&f["flags"]) & 32 != 0).then(|| unhex(&f["remote"])),
            terminal: (number::<u8>(&f["flags"]) & 4 != 0).then(|| Size {
                columns: number(&f["columns"]),
                rows: number(&f["rows"]),
            }),
        }),
        "cache" => Request::Cache {
            question: unhex(&f["question"]),
        },
        other => panic!("frame {other} of a client"),
    }
}

fn outcome(f: &Value) -> Outcome {
    let verdicts = [Verdict::Ran, Verdict::NotStarted, Verdict::TimedOut, Verdict::Cancelled];
    let steps = [Step::None, Step::Command, Step::Folder, Step::Engine, Step::Parked];
    Outcome {
        id: number(&f["id"]),
        verdict: verdicts[number::<usize>(&f["verdict"])],
        step: steps[number::<usize>(&f["step"])],
        code: f["code"].as_i64().unwrap().try_into().unwrap(),
        queued: number(&f["queued"]),
        wall: number(&f["wall"]),
        user: number(&f["user"]),
        system: number(&f["system"]),
        peak: number(&f["peak"]),
    }
}

fn reply(vector: &Value) -> Reply {
    let f = &vector["fields"];
    match vector["frame"].as_str().unwrap() {
        "welcome" => Reply::Welcome {
            version: number(&f["version"]),
            pid: number(&f["pid"]),
            slots: number(&f["slots"]),
            engine: unhex(&f["engine"]),
        },
        "refused" => Reply::Refused {
            why: Why::ALL[number::<usize>(&f["why"]) - 1],
            reason: unhex(&f["reason"]),
        },
        "output" => Reply::Output {
            id: number(&f["id"]),
            stream: number(&f["stream"]),
            data: unhex(&f["data"]),
        },
        "outcome" => Reply::Outcome(outcome(f)),
        "report" => Reply::Report {
            json: unhex(&f["json"]),
        },
        "listening" => Reply::Listening {
            port: number(&f["port"]),
        },
        "told" => Reply::Told {
            id: number(&f["id"]),
            told: told(f),
        },
        "inputs" => Reply::Inputs {
            id: number(&f["id"]),
            first: number(&f["first"]),
            new: strings(&f["new"]),
            result: unhex(&f["result"]).try_into().unwrap(),
            numbers: f["numbers"].as_array().unwrap().iter().map(number).collect(),
        },
        "elsewhere" => Reply::Elsewhere {
            id: number(&f["id"]),
            elsewhere: Elsewhere {
                after: number(&f["after"]),
                there: number(&f["there"]),
                here: number(&f["here"]),
                address: words(&f["address"]),
                words: words(&f["words"]),
            },
        },
        other => panic!("frame {other} of an engine"),
    }
}

fn words(value: &Value) -> String {
    String::from_utf8(unhex(value)).unwrap()
}

fn told(f: &Value) -> Told {
    let words = |name: &str| words(&f[name]);
    match Known::ALL[number::<usize>(&f["known"])] {
        Known::Hit => Told::Hit {
            processor: number(&f["processor"]),
        },
        Known::Uncached => Told::Uncached {
            why: UncachedReason::from_number(number(&f["why"])).unwrap(),
            words: words("words"),
        },
        Known::Miss => Told::Miss {
            why: MissReason::from_number(number(&f["why"])).unwrap(),
            words: words("words"),
            unstored: UnstoredReason::from_number(number(&f["unstored"]))
                .map(|why| Unkept::new(why, words("unstored_words"))),
            saved: number(&f["saved"]),
        },
    }
}

/// The values that these bytes decode to, frame by frame. Bytes that are left over are an error.
fn decode<T>(bytes: &[u8], decoder: impl Fn(&[u8]) -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
    let mut inbox = Inbox::new(FRAME_CAP);
    inbox.push(bytes);
    let mut found = Vec::new();
    while let Some(frame) = inbox.take()? {
        found.push(decoder(frame)?);
    }
    match inbox.is_partial() {
        true => Err(Malformed("a frame that does not end")),
        false => Ok(found),
    }
}

/// A frame decodes to this value, and the value encodes to the frame.
#[track_caller]
fn is_the_same<T: PartialEq + Debug>(
    vector: &Value,
    value: &T,
    decoder: impl Fn(&[u8]) -> Result<T, Malformed>,
    encoder: impl Fn(&T, &mut Vec<u8>),
) {
    let (name, bytes) = (&vector["name"], unhex(&vector["hex"]));
    assert_eq!(
        decode(&bytes, decoder).as_deref(),
        Ok(std::slice::from_ref(value)),
        "{name}"
    );
    let mut encoded = Vec::new();
    encoder(value, &mut encoded);
    assert_eq!(encoded, bytes, "{name}");
}

/// Every frame of a client decodes to its fields, and they encode to the frame.
#[test]
fn requests_are_what_the_vectors_say() {
    for vector in select("good", "client") {
        is_the_same(&vector, &request(&vector), Request::decode, Request::encode);
    }
}

/// Every frame of an engine decodes to its fields, and they encode to the frame.
#[test]
fn replies_are_what_the_vectors_say() {
    for vector in select("good", "engine") {
        is_the_same(&vector, &reply(&vector), Reply::decode, Reply::encode);
    }
}

/// The vectors have every kind of frame.
#[test]
fn every_kind_of_frame_has_a_vector() {
    for (sender, kinds) in [("client", 0x01..=0x09u8), ("engine", 0x81..=0x89)] {
        let bytes: Vec<_> = select("good", sender).iter().map(|v| unhex(&v["hex"])).collect();
        for kind in kinds {
            assert!(
                bytes.iter().any(|b| b[4] == kind),
                "no frame of kind {kind:#x} of {sender}"
            );
        }
    }
}

/// Every broken frame is refused: one above the limit after its length, all others when they are complete.
#[test]
fn broken_frames_are_refused() {
    for vector in vectors()["broken"].as_array().unwrap() {
        let (name, bytes) = (&vector["name"], unhex(&vector["hex"]));
        let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
        if length == 0 || length > FRAME_CAP {
            let mut inbox = Inbox::new(FRAME_CAP);
            inbox.push(&bytes[..4]);
            assert!(inbox.take().is_err(), "{name}: its length alone is wrong");
            continue;
        }
        assert_eq!(
            length,
            bytes.len() - 4,
            "{name}: a broken frame must be whole to be refused for what it holds"
        );
        match vector["sender"].as_str().unwrap() {
            "client" => assert!(Request::decode(&bytes[4..]).is_err(), "{name}"),
            _ => assert!(Reply::decode(&bytes[4..]).is_err(), "{name}"),
        }
    }
}

/// No valid frame decodes with a byte missing or added at its end.
#[test]
fn a_frame_has_no_slack() {
    for (sender, is_client) in [("client", true), ("engine", false)] {
        let decodes = |body: &[u8]| match is_client {
            true => Request::decode(body).is_ok(),
            false => Reply::decode(body).is_ok(),
        };
        for vector in select("good", sender) {
            let body = &unhex(&vector["hex"])[4..];
            for cut in 0..body.len() {
                assert!(!decodes(&body[..cut]), "{}: cut at {cut}", vector["name"]);
            }
            let longer = [body, b"\0"].concat();
            assert!(!decodes(&longer), "{}: one byte more", vector["name"]);
        }
    }
}
