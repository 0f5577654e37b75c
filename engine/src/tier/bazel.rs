//! A tier with the layout of bazel-remote: `/ac` has messages of the type ActionResult, `/cas` has contents by their
//! SHA-256.
//!
//! A bundle is the output that an action has printed. A blob is the only output file of an action: one message refers to
//! the content. The server knows these references, so it never keeps the one without the other.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::heartbeat::Heartbeat;
use super::values::{Name, Values};
use super::web::{self, authorization, Web};
use super::{Fault, Shape};
use crate::cache::lookup::packed::{Garbled, Packer, Unpacker};
use crate::settings::address::Address;

/// Limit for a message that refers to a content.
const SMALL: usize = 64 << 10;

// Fields of build.bazel.remote.execution.v2, with the wire type of bytes.
const OUTPUT_FILES: u8 = 2 << 3 | BYTES;
pub const STDOUT_RAW: u8 = 5 << 3 | BYTES;
const PATH: u8 = 1 << 3 | BYTES;
const FILE_DIGEST: u8 = 2 << 3 | BYTES;
const HASH: u8 = 1 << 3 | BYTES;
const SIZE_BYTES: u8 = 2 << 3;
const BYTES: u8 = 2;

pub struct Bazel {
    web: Web,
    root: String,
}

impl Bazel {
    pub fn new(address: &Address) -> Result<Bazel, String> {
        Ok(Bazel {
            web: Web::new(address, address.is_secure, authorization(address)?)?,
            root: address.to_string(),
        })
    }

    fn action(&self, name: &Name) -> String {
        let (Name::Bundle(digest) | Name::Blob(digest)) = name;
        format!("{}/ac/{digest}", self.root)
    }

    fn content(&self, hash: &str) -> String {
        format!("{}/cas/{hash}", self.root)
    }

    fn get_one(&self, name: &Name, largest: usize, heartbeat: &Heartbeat) -> Result<Option<Vec<u8>>, Fault> {
        let largest_message = match name {
            Name::Bundle(_) => largest,
            Name::Blob(_) => SMALL,
        };
        let Some(message) = self.web.get(&self.action(name), largest_message, heartbeat)? else {
            return Ok(None);
        };
        match name {
            Name::Bundle(_) => Ok(field(&message, STDOUT_RAW).map(<[u8]>::to_vec)),
            Name::Blob(_) => match hash_of_output(&message) {
                Some(hash) => self.web.get(&self.content(&hash), largest, heartbeat),
                None => Ok(None),
            },
        }
    }
}

impl Values for Bazel {
    fn shape(&self) -> Shape {
        web::SHAPE
    }

    fn get(&self, names: &[Name], largest: usize, heartbeat: &Arc<Heartbeat>) -> Result<Vec<Option<Vec<u8>>>, Fault> {
        let get = |name| self.get_one(name, largest, heartbeat);
        names.iter().map(get).collect()
    }

    fn has(&self, name: &Name, heartbeat: &Arc<Heartbeat>) -> Result<bool, Fault> {
        self.web.has(&self.action(name), heartbeat)
    }

    fn put(&self, name: &Name, value: &[u8], heartbeat: &Arc<Heartbeat>) -> Result<(), Fault> {
        let mut message = Packer::default();
        match name {
            Name::Bundle(_) => put_field(&mut message, STDOUT_RAW, value),
            Name::Blob(_) => {
                let hash = format!("{:x}", Sha256::digest(value));
                self.web.put(&self.content(&hash), value, heartbeat)?;
                put_output(&mut message, &hash, value.len());
            }
        }
        self.web.put(&self.action(name), &message.finish(), heartbeat)
    }
}

pub fn put_field(to: &mut Packer, tag: u8, bytes: &[u8]) {
    to.byte(tag);
    to.text(bytes);
}

pub fn put_output(to: &mut Packer, hash: &str, size: usize) {
    let mut digest = Packer::default();
    put_field(&mut digest, HASH, hash.as_bytes());
    digest.byte(SIZE_BYTES);
    digest.number(size as u64);
    let mut file = Packer::default();
    put_field(&mut file, PATH, b"blob");
    put_field(&mut file, FILE_DIGEST, &digest.finish());
    put_field(to, OUTPUT_FILES, &file.finish());
}

/// The first field with this tag, in a message that may have others.
pub fn field(message: &[u8], wanted: u8) -> Option<&[u8]> {
    find_field(Unpacker::new(message), u64::from(wanted)).ok()
}

fn find_field(mut message: Unpacker<'_>, wanted: u64) -> Result<&[u8], Garbled> {
    loop {
        let tag = message.number()?;
        let bytes = match tag & 7 {
            0 => {
                message.number()?;
                continue;
            }
            1 => message.raw(8)?,
            2 => message.text()?,
            5 => message.raw(4)?,
            _ => return Err(Garbled),
        };
        if tag == wanted {
            return Ok(bytes);
        }
    }
}

pub fn hash_of_output(message: &[u8]) -> Option<String> {
    let file = field(message, OUTPUT_FILES)?;
    let hash = field(field(file, FILE_DIGEST)?, HASH)?;
    let hash = std::str::from_utf8(hash).ok()?;
    let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| hash.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_message_is_encoded_as_in_the_protocol() {
        let mut packer = Packer::default();
        put_output(&mut packer, EMPTY, 300);
        let message = packer.finish();
        let expected = [
            &[0x12, 77, 0x0a, 4][..],
            b"blob",
            &[0x12, 69, 0x0a, 64],
            EMPTY.as_bytes(),
            &[0x10, 0xac, 0x02],
        ];
        assert_eq!(message, expected.concat());
        assert_eq!(hash_of_output(&message).as_deref(), Some(EMPTY));
        assert_eq!(format!("{:x}", Sha256::digest(b"")), EMPTY);
    }

    #[test]
    fn other_fields_are_skipped_and_damage_is_refused() {
        let mut packer = Packer::default();
        packer.raw(&[0x20, 7, 0x31, 0, 0, 0, 0, 0, 0, 0, 0, 0x3a, 1, 9]);
        put_field(&mut packer, STDOUT_RAW, b"bundle");
        let message = packer.finish();
        assert_eq!(field(&message, STDOUT_RAW), Some(&b"bundle"[..]));
        for end in 0..message.len() {
            assert_eq!(field(&message[..end], STDOUT_RAW), None);
        }
        assert_eq!(
            field(
                &[0x2a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
                STDOUT_RAW
            ),
            None
        );
        assert_eq!(hash_of_output(b"\x12\x02\x12\x00"), None);
    }
}
