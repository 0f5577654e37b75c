//! What is said in each protocol, and where the frames of an answer end.
//!
//! Pure. A *request* is what is timed; in our own protocol it takes two exchanges to store a value, or to get a large one.

use std::collections::HashMap;
use std::io::{self, Error, IoSlice};
use std::ops::Range;

use wafengine::bytes::digest::Digest;
use wafengine::room::{Begun, Coding, Hello, Request, VERSION};

use super::value::{Values, STAMP};

/// As our engine asks: what is not larger comes along.
const INLINE: u32 = 256 << 10;
/// The length and the kind of a frame.
const ROOM_HEAD: usize = 5;
const FACTS: &[u8; 1024] = &[b'f'; 1024];

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Put,
    Get,
}

pub enum Language {
    Http { host: String },
    Redis,
    Room { digests: HashMap<u64, Digest> },
}

pub struct Speech {
    language: Language,
    values: Values,
}

/// What is written in one go.
#[derive(Default)]
pub struct Message {
    head: Vec<u8>,
    /// The number of the value between head and tail, if there is one.
    value: Option<u64>,
    tail: &'static [u8],
}

/// A part of an answer that tells its own length.
pub struct Frame {
    pub length: usize,
    pub is_last: bool,
}

impl Message {
    fn plain(head: Vec<u8>) -> Message {
        Message {
            head,
            ..Message::default()
        }
    }

    pub fn length(&self, speech: &Speech) -> usize {
        self.head.len() + self.value.map_or(0, |_| speech.values.size()) + self.tail.len()
    }

    /// What is left of it when so much was written, handed to a writer.
    pub fn write<T>(&self, speech: &Speech, written: usize, write: impl FnOnce(&[IoSlice<'_>]) -> T) -> T {
        let stamp = self.value.map(Values::stamp);
        let parts = [
            &self.head[..],
            stamp.as_ref().map_or(&[], |stamp| &stamp[..]),
            self.value.map_or(&[], |number| speech.values.rest(number)),
            self.tail,
        ];
        let mut skip = written;
        let left = parts.map(|part| {
            let gone = skip.min(part.len());
            skip -= gone;
            IoSlice::new(&part[gone..])
        });
        write(&left)
    }
}

impl Speech {
    pub fn new(language: &str, host: &str, size: usize, numbers: Range<u64>) -> Option<Speech> {
        let values = Values::new(size);
        let language = match language {
            "http" => Language::Http { host: host.to_owned() },
            "redis" => Language::Redis,
            "room" => Language::Room {
                digests: numbers.map(|number| (number, digest(&values, number))).collect(),
            },
            _ => return None,
        };
        Some(Speech { language, values })
    }

    /// What has to be said before anything else.
    pub fn greeting(&self) -> Option<Message> {
        let Language::Room { .. } = self.language else {
            return None;
        };
        let hello = Request::Hello(Hello {
            lowest: VERSION,
            highest: VERSION,
            token: b"",
            namespace: b"",
            name: b"load_server",
        });
        Some(Message::plain(encoded(&hello)))
    }

    /// What is said for a request after so many exchanges; nothing when it is done.
    pub fn message(&self, act: Act, number: u64, exchanges: usize) -> Option<Message> {
        match (&self.language, exchanges) {
            (Language::Http { host }, 0) => Some(self.http(host, act, number)),
            (Language::Redis, 0) => Some(self.redis(act, number)),
            (Language::Room { digests }, _) => self.room(digests[&number], act, number, exchanges),
            _ => None,
        }
    }

    fn http(&self, host: &str, act: Act, number: u64) -> Message {
        let size = self.values.size();
        match act {
            Act::Get => Message::plain(format!("GET /{number:08x} HTTP/1.1\r\nHost: {host}\r\n\r\n").into()),
            Act::Put => Message {
                head: format!("PUT /{number:08x} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {size}\r\n\r\n").into(),
                value: Some(number),
                tail: b"",
            },
        }
    }

    fn redis(&self, act: Act, number: u64) -> Message {
        let size = self.values.size();
        match act {
            Act::Get => Message::plain(format!("*2\r\n$3\r\nGET\r\n$8\r\n{number:08x}\r\n").into()),
            Act::Put => Message {
                head: format!("*3\r\n$3\r\nSET\r\n$8\r\n{number:08x}\r\n${size}\r\n").into(),
                value: Some(number),
                tail: b"\r\n",
            },
        }
    }

    fn room(&self, digest: Digest, act: Act, number: u64, exchanges: usize) -> Option<Message> {
        let key = Digest::of(&number.to_le_bytes());
        let (id, inline) = (1, INLINE);
        let is_large = self.values.size() > INLINE as usize;
        let request = match (act, exchanges) {
            (Act::Put, 0) => return Some(self.blob(digest, number)),
            (Act::Put, 1) => Request::Entry {
                id,
                key,
                needs: vec![digest],
                bytes: FACTS,
            },
            (Act::Get, 0) => Request::Find {
                id,
                inline,
                keys: vec![key],
            },
            (Act::Get, 1) if is_large => Request::Get {
                id,
                digests: vec![digest],
            },
            _ => return None,
        };
        Some(Message::plain(encoded(&request)))
    }

    fn blob(&self, digest: Digest, number: u64) -> Message {
        let size = self.values.size();
        let begun = Begun {
            digest,
            coding: Coding::Plain,
            size: size as u64,
            first: b"",
        };
        let mut head = encoded(&Request::Blob { id: 1, begun });
        let length = (head.len() - 4 + size) as u32;
        head[..4].copy_from_slice(&length.to_le_bytes());
        Message {
            head,
            value: Some(number),
            tail: b"",
        }
    }

    /// The frame that an answer goes on with, as soon as enough of it is there, when so many frames came before it.
    pub fn frame(&self, act: Act, number: u64, beginning: &[u8], frames: usize) -> io::Result<Option<Frame>> {
        match self.language {
            Language::Http { .. } => self.http_frame(act, number, beginning),
            Language::Redis => self.redis_frame(act, number, beginning),
            Language::Room { .. } => room_frame(beginning, frames),
        }
    }

    fn http_frame(&self, act: Act, number: u64, beginning: &[u8]) -> io::Result<Option<Frame>> {
        let Some(head) = end_of(beginning, b"\r\n\r\n") else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&beginning[..head]).to_ascii_lowercase();
        let told = text.lines().find_map(|line| line.strip_prefix("content-length:"));
        let size = told.and_then(|size| size.trim().parse::<usize>().ok()).unwrap_or(0);
        if !text.starts_with("http/1.1 20") || (act == Act::Get && size != self.values.size()) {
            return Err(Error::other(format!(
                "it answered {}",
                text.lines().next().unwrap_or("nothing")
            )));
        }
        self.valued(act, number, beginning, head, head + size)
    }

    fn redis_frame(&self, act: Act, number: u64, beginning: &[u8]) -> io::Result<Option<Frame>> {
        let Some(head) = end_of(beginning, b"\r\n") else {
            return Ok(None);
        };
        let size = self.values.size();
        let (wanted, length) = match act {
            Act::Put => ("+OK\r\n".to_owned(), head),
            Act::Get => (format!("${size}\r\n"), head + size + 2),
        };
        if beginning[..head] != *wanted.as_bytes() {
            return Err(Error::other(format!(
                "it answered {}",
                String::from_utf8_lossy(&beginning[..head])
            )));
        }
        self.valued(act, number, beginning, head, length)
    }

    /// An answer that is one frame, with the value behind its head: the right one, as its stamp tells.
    fn valued(&self, act: Act, number: u64, beginning: &[u8], head: usize, length: usize) -> io::Result<Option<Frame>> {
        if act == Act::Get {
            match beginning.get(head..head + STAMP) {
                None => return Ok(None),
                Some(stamp) if stamp == Values::stamp(number) => {}
                Some(_) => return Err(Error::other("it answered with another value")),
            }
        }
        Ok(Some(Frame { length, is_last: true }))
    }
}

fn room_frame(beginning: &[u8], frames: usize) -> io::Result<Option<Frame>> {
    let Some(head) = beginning.first_chunk::<ROOM_HEAD>() else {
        return Ok(None);
    };
    let length = 4 + u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    match (head[4], frames) {
        // welcome, kept, and the end behind what was found or fetched
        (0x81 | 0x89, 0) | (0x84, 1..) => Ok(Some(Frame { length, is_last: true })),
        (0x83 | 0x85 | 0x86, _) => Ok(Some(Frame { length, is_last: false })),
        (kind, _) => Err(Error::other(format!("it answered with a frame of kind {kind:#x}"))),
    }
}

fn digest(values: &Values, number: u64) -> Digest {
    Digest::of(&[&Values::stamp(number)[..], values.rest(number)].concat())
}

fn encoded(request: &Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.encode(&mut bytes);
    bytes
}

fn end_of(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    let at = bytes.windows(mark.len()).position(|window| window == mark)?;
    Some(at + mark.len())
}
