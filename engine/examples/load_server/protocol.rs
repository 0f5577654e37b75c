//! The messages of each protocol, and where the frames of a reply end.
//!
//! Pure. The time of one *request* is measured. In our own protocol, a request to store a value, or to get a large one, takes
//! two exchanges.

use std::collections::HashMap;
use std::io::{self, Error, IoSlice};
use std::ops::Range;

use wafengine::bytes::digest::Digest;
use wafengine::room::{Begun, Coding, Hello, Request, VERSION};

use super::value::{Values, STAMP};

/// The same limit as in our engine: blobs up to this size are sent with the entry.
const INLINE: u32 = 256 << 10;
/// The size of a frame's length and kind.
const ROOM_HEAD: usize = 5;
const FACTS: &[u8; 1024] = &[b'f'; 1024];

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Put,
    Get,
}

pub enum Language {
    Http { host: String },
    Redis,
    Room { digests: HashMap<u64, Digest> },
}

pub struct Protocol {
    language: Language,
    values: Values,
}

/// Bytes that are written together.
#[derive(Default)]
pub struct Message {
    head: Vec<u8>,
    /// The number of the value between head and tail, if there is one.
    value: Option<u64>,
    tail: &'static [u8],
}

/// A part of a reply that has its own length.
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

    pub fn length(&self, protocol: &Protocol) -> usize {
        self.head.len() + self.value.map_or(0, |_| protocol.values.size()) + self.tail.len()
    }

    /// Passes the part to the writer that is not written yet.
    pub fn write<T>(&self, protocol: &Protocol, written: usize, write: impl FnOnce(&[IoSlice<'_>]) -> T) -> T {
        let stamp = self.value.map(Values::stamp);
        let parts = [
            &self.head[..],
            stamp.as_ref().map_or(&[], |stamp| &stamp[..]),
            self.value.map_or(&[], |number| protocol.values.rest(number)),
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

impl Protocol {
    pub fn new(language: &str, host: &str, size: usize, numbers: Range<u64>) -> Option<Protocol> {
        let values = Values::new(size);
        let language = match language {
            "http" => Language::Http { host: host.to_owned() },
            "redis" => Language::Redis,
            "room" => Language::Room {
                digests: numbers.map(|number| (number, digest(&values, number))).collect(),
            },
            _ => return None,
        };
        Some(Protocol { language, values })
    }

    /// The first message of a connection, if the protocol needs one.
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

    /// The next message of a request after this many exchanges. None when the request is done.
    pub fn message(&self, operation: Operation, number: u64, exchanges: usize) -> Option<Message> {
        match (&self.language, exchanges) {
            (Language::Http { host }, 0) => Some(self.http(host, operation, number)),
            (Language::Redis, 0) => Some(self.redis(operation, number)),
            (Language::Room { digests }, _) => self.room(digests[&number], operation, number, exchanges),
            _ => None,
        }
    }

    fn http(&self, host: &str, operation: Operation, number: u64) -> Message {
        let size = self.values.size();
        match operation {
            Operation::Get => Message::plain(format!("GET /{number:08x} HTTP/1.1\r\nHost: {host}\r\n\r\n").into()),
            Operation::Put => Message {
                head: format!("PUT /{number:08x} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {size}\r\n\r\n").into(),
                value: Some(number),
                tail: b"",
            },
        }
    }

    fn redis(&self, operation: Operation, number: u64) -> Message {
        let size = self.values.size();
        match operation {
            Operation::Get => Message::plain(format!("*2\r\n$3\r\nGET\r\n$8\r\n{number:08x}\r\n").into()),
            Operation::Put => Message {
                head: format!("*3\r\n$3\r\nSET\r\n$8\r\n{number:08x}\r\n${size}\r\n").into(),
                value: Some(number),
                tail: b"\r\n",
            },
        }
    }

    fn room(&self, digest: Digest, operation: Operation, number: u64, exchanges: usize) -> Option<Message> {
        let key = Digest::of(&number.to_le_bytes());
        let (id, inline) = (1, INLINE);
        let is_large = self.values.size() > INLINE as usize;
        let request = match (operation, exchanges) {
            (Operation::Put, 0) => return Some(self.blob(digest, number)),
            (Operation::Put, 1) => Request::Entry {
                id,
                key,
                needs: vec![digest],
                bytes: FACTS,
            },
            (Operation::Get, 0) => Request::Find {
                id,
                inline,
                keys: vec![key],
            },
            (Operation::Get, 1) if is_large => Request::Get {
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

    /// The next frame of a reply, after this many others. None if too little of it has come.
    pub fn frame(
        &self,
        operation: Operation,
        number: u64,
        beginning: &[u8],
        frames: usize,
    ) -> io::Result<Option<Frame>> {
        match self.language {
            Language::Http { .. } => self.http_frame(operation, number, beginning),
            Language::Redis => self.redis_frame(operation, number, beginning),
            Language::Room { .. } => room_frame(beginning, frames),
        }
    }

    fn http_frame(&self, operation: Operation, number: u64, beginning: &[u8]) -> io::Result<Option<Frame>> {
        let Some(head) = end_of(beginning, b"\r\n\r\n") else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&beginning[..head]).to_ascii_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
        let size = length.and_then(|size| size.trim().parse::<usize>().ok()).unwrap_or(0);
        if !text.starts_with("http/1.1 20") || (operation == Operation::Get && size != self.values.size()) {
            return Err(Error::other(format!(
                "it answered {}",
                text.lines().next().unwrap_or("nothing")
            )));
        }
        self.check_value(operation, number, beginning, head, head + size)
    }

    fn redis_frame(&self, operation: Operation, number: u64, beginning: &[u8]) -> io::Result<Option<Frame>> {
        let Some(head) = end_of(beginning, b"\r\n") else {
            return Ok(None);
        };
        let size = self.values.size();
        let (wanted, length) = match operation {
            Operation::Put => ("+OK\r\n".to_owned(), head),
            Operation::Get => (format!("${size}\r\n"), head + size + 2),
        };
        if beginning[..head] != *wanted.as_bytes() {
            return Err(Error::other(format!(
                "it answered {}",
                String::from_utf8_lossy(&beginning[..head])
            )));
        }
        self.check_value(operation, number, beginning, head, length)
    }

    /// A reply that is one frame, with a value after its head. Checks that the value is the right one, by its stamp.
    fn check_value(
        &self,
        operation: Operation,
        number: u64,
        beginning: &[u8],
        head: usize,
        length: usize,
    ) -> io::Result<Option<Frame>> {
        if operation == Operation::Get {
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
        // welcome, kept, and the end after entries or blobs
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
