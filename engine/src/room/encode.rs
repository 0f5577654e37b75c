//! Encodes frames, and appends them to a buffer.
//!
//! This file does not check limits. The sender must keep a frame below `FRAME_CAP`.

use super::{Begun, Content, Reply, Request, MAGIC};
use crate::bytes::digest::Digest;
use crate::bytes::fields::{put_frame, put_head, put_numbered as put, put_text};

fn put_digests(out: &mut Vec<u8>, digests: &[Digest]) {
    out.extend((digests.len() as u16).to_le_bytes());
    digests.iter().for_each(|digest| out.extend(digest.0));
}

fn put_content(out: &mut Vec<u8>, content: &Content<'_>) {
    out.extend(content.digest.0);
    out.push(content.coding as u8);
    put_text(out, content.bytes);
}

fn put_begun(out: &mut Vec<u8>, begun: &Begun<'_>) {
    out.extend(begun.digest.0);
    out.push(begun.coding as u8);
    out.extend(begun.size.to_le_bytes());
    out.extend(begun.first);
}

/// The head of a `data` frame for this request. This many bytes of the blob must follow.
pub fn put_data_head(out: &mut Vec<u8>, id: u32, size: usize) {
    put_head(out, 0x86, size + 4);
    out.extend(id.to_le_bytes());
}

impl Request<'_> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Request::Hello(hello) => put_frame(out, 0x01, |out| {
                out.extend(MAGIC);
                out.extend(hello.lowest.to_le_bytes());
                out.extend(hello.highest.to_le_bytes());
                for text in [hello.token, hello.namespace, hello.name] {
                    put_text(out, text);
                }
            }),
            Request::Find { id, inline, keys } => put(out, 0x02, *id, |out| {
                out.extend(inline.to_le_bytes());
                put_digests(out, keys);
            }),
            Request::Get { id, digests } => put(out, 0x03, *id, |out| put_digests(out, digests)),
            Request::Has { id, digests } => put(out, 0x04, *id, |out| put_digests(out, digests)),
            Request::Blob { id, begun } => put(out, 0x05, *id, |out| put_begun(out, begun)),
            Request::Data { id, bytes } => put(out, 0x06, *id, |out| out.extend(*bytes)),
            Request::Entry { id, key, needs, bytes } => put(out, 0x07, *id, |out| {
                out.extend(key.0);
                put_digests(out, needs);
                out.extend(*bytes);
            }),
            Request::Ping { id } => put(out, 0x08, *id, |_| ()),
            Request::Abandon { id } => put(out, 0x09, *id, |_| ()),
        }
    }
}

impl Reply<'_> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Reply::Welcome {
                version,
                rights,
                largest,
                name,
            } => put_frame(out, 0x81, |out| {
                out.extend(version.to_le_bytes());
                out.push(u8::from(rights.read) | u8::from(rights.write) << 1);
                out.extend(largest.to_le_bytes());
                put_text(out, name);
            }),
            Reply::Refused { why, words } => put_frame(out, 0x82, |out| {
                out.push(*why as u8);
                put_text(out, words);
            }),
            Reply::Found {
                id,
                number,
                entry,
                contents,
            } => put(out, 0x83, *id, |out| {
                out.extend(number.to_le_bytes());
                put_text(out, entry);
                out.extend((contents.len() as u16).to_le_bytes());
                contents.iter().for_each(|content| put_content(out, content));
            }),
            Reply::End { id } => put(out, 0x84, *id, |_| ()),
            Reply::Blob { id, begun } => put(out, 0x85, *id, |out| put_begun(out, begun)),
            Reply::Data { id, bytes } => put(out, 0x86, *id, |out| out.extend(*bytes)),
            Reply::Missing { id, digest } => put(out, 0x87, *id, |out| out.extend(digest.0)),
            Reply::Held { id, bits } => put(out, 0x88, *id, |out| {
                out.extend((bits.count as u16).to_le_bytes());
                out.extend(&bits.bytes);
            }),
            Reply::Kept { id } => put(out, 0x89, *id, |_| ()),
            Reply::NotKept { id, why, words } => put(out, 0x8a, *id, |out| {
                out.push(*why as u8);
                put_text(out, words);
            }),
            Reply::Pong { id } => put(out, 0x8b, *id, |_| ()),
            Reply::Failed { id, how, words } => put(out, 0x8c, *id, |out| {
                out.push(*how as u8);
                put_text(out, words);
            }),
        }
    }
}
