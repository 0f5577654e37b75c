//! Output that waits to be sent: bytes, and contents that are read only when the peer takes them.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::limits::Share;
use super::memory_cache::Encoded;
use crate::room::{put_data_head, Coding, Reply};

/// With more unsent bytes than this, no further request is answered.
const CLOGGED: usize = 256 << 10;
/// Contents are read in pieces of this size.
const PIECE: usize = 64 << 10;
/// How many bytes stay allocated when nothing is to be sent.
const KEPT: usize = 1 << 10;

/// A content, in memory or in a file.
#[derive(Debug, Clone)]
pub enum Body {
    Memory(Arc<Encoded>),
    /// In memory that counts against a budget.
    Shared(Coding, Arc<(Vec<u8>, Share)>),
    File(Arc<File>, u64),
}

impl Body {
    pub fn length(&self) -> u64 {
        match self {
            Body::Memory(encoded) => encoded.bytes.len() as u64,
            Body::Shared(_, shared) => shared.0.len() as u64,
            Body::File(_, length) => *length,
        }
    }

    pub fn coding(&self) -> Coding {
        match self {
            Body::Memory(encoded) => encoded.coding,
            Body::Shared(coding, _) => *coding,
            Body::File(..) => Coding::Plain,
        }
    }

    fn read(&self, at: u64, size: usize, to: &mut Vec<u8>) -> io::Result<()> {
        let slice = |bytes: &[u8], to: &mut Vec<u8>| to.extend_from_slice(&bytes[at as usize..at as usize + size]);
        match self {
            Body::Memory(encoded) => slice(&encoded.bytes, to),
            Body::Shared(_, shared) => slice(&shared.0, to),
            Body::File(file, _) => {
                let start = to.len();
                to.resize(start + size, 0);
                file.read_exact_at(&mut to[start..], at)?;
            }
        }
        Ok(())
    }
}

/// How the pieces of a content are framed.
#[derive(Debug, Clone, Copy)]
pub enum Wrapping {
    Bare,
    /// In frames of the room's protocol, for this request.
    Data(u32),
}

#[derive(Debug)]
enum Part {
    Bytes(Vec<u8>),
    Content { body: Body, at: u64, wrapping: Wrapping },
}

#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
    parts: VecDeque<Part>,
}

impl Outbox {
    /// Where the next bytes go.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        if self.parts.is_empty() {
            return &mut self.bytes;
        }
        if !matches!(self.parts.back(), Some(Part::Bytes(_))) {
            self.parts.push_back(Part::Bytes(Vec::new()));
        }
        match self.parts.back_mut() {
            Some(Part::Bytes(bytes)) => bytes,
            _ => &mut self.bytes,
        }
    }

    pub fn reply(&mut self, reply: &Reply<'_>) {
        reply.encode(self.bytes());
    }

    /// Adds a content, from this position on.
    pub fn content(&mut self, body: Body, at: u64, wrapping: Wrapping) {
        let is_short = body.length() - at <= PIECE as u64 && !matches!(body, Body::File(..));
        match (&body, wrapping) {
            (Body::Memory(encoded), Wrapping::Bare) if is_short => {
                self.bytes().extend_from_slice(&encoded.bytes[at as usize..]);
            }
            _ if at < body.length() => self.parts.push_back(Part::Content { body, at, wrapping }),
            _ => {}
        }
    }

    /// The bytes that can be sent now.
    pub fn unsent(&mut self) -> io::Result<&[u8]> {
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        }
        while self.bytes.len() - self.sent < PIECE {
            match self.parts.front_mut() {
                None => break,
                Some(Part::Bytes(bytes)) => {
                    self.bytes.append(bytes);
                    self.parts.pop_front();
                }
                Some(Part::Content { body, at, wrapping }) => {
                    let size = (body.length() - *at).min(PIECE as u64) as usize;
                    if let Wrapping::Data(id) = wrapping {
                        put_data_head(&mut self.bytes, *id, size);
                    }
                    body.read(*at, size, &mut self.bytes)?;
                    *at += size as u64;
                    if *at == body.length() {
                        self.parts.pop_front();
                    }
                }
            }
        }
        Ok(&self.bytes[self.sent..])
    }

    /// This many of the unsent bytes were sent.
    pub fn advance(&mut self, n: usize) {
        self.sent += n;
    }

    /// Gives memory back when nothing is to be sent.
    pub fn trim(&mut self) {
        if self.is_empty() && self.bytes.capacity() > KEPT {
            self.bytes = Vec::new();
            self.parts = VecDeque::new();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.sent == self.bytes.len() && self.parts.is_empty()
    }

    pub fn is_clogged(&self) -> bool {
        !self.parts.is_empty() || self.bytes.len() - self.sent > CLOGGED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::frame::Inbox;
    use crate::room::FRAME_CAP;

    fn memory(bytes: Vec<u8>) -> Body {
        let coding = Coding::Plain;
        Body::Memory(Arc::new(Encoded { coding, bytes }))
    }

    fn drain(outbox: &mut Outbox) -> Vec<u8> {
        let mut all = Vec::new();
        while !outbox.is_empty() {
            let n = outbox.unsent().unwrap().len().min(10_001);
            all.extend_from_slice(&outbox.unsent().unwrap()[..n]);
            outbox.advance(n);
        }
        all
    }

    #[test]
    fn output_is_sent_in_order() {
        let long: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
        let mut outbox = Outbox::default();
        outbox.bytes().extend(b"head ");
        outbox.content(memory(b"short ".to_vec()), 0, Wrapping::Bare);
        outbox.content(memory(long.clone()), 7, Wrapping::Bare);
        outbox.bytes().extend(b"tail");
        assert!(outbox.is_clogged());
        let expected = [b"head short ", &long[7..], b"tail"].concat();
        assert_eq!(drain(&mut outbox), expected);
        outbox.trim();
        assert_eq!(outbox.bytes.capacity(), 0);
    }

    #[test]
    fn pieces_of_a_blob_are_frames() {
        let long = vec![9; 150_000];
        let mut outbox = Outbox::default();
        outbox.content(memory(long.clone()), 0, Wrapping::Data(5));
        outbox.reply(&Reply::End { id: 5 });
        let mut inbox = Inbox::new(FRAME_CAP);
        inbox.push(&drain(&mut outbox));
        let mut all = Vec::new();
        while let Some(frame) = inbox.take().unwrap() {
            match Reply::decode(frame).unwrap() {
                Reply::Data { id: 5, bytes } => all.extend_from_slice(bytes),
                reply => assert_eq!(reply, Reply::End { id: 5 }),
            }
        }
        assert_eq!(all, long);
        assert!(!inbox.is_partial());
    }
}
