//! Numbers, texts and paths in few bytes, and how they are read from untrusted bytes.
//!
//! Each path contains only its difference from the previous one, because most paths of a command are in the same few
//! folders.

use crate::bytes::digest::Digest;
use crate::facts::path::{Path, Root, LONGEST};

/// Limit for all paths of one entry together.
const MOST_PATH_BYTES: usize = 64 << 20;

/// The bytes are not in this format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Garbled;

type Result<T> = std::result::Result<T, Garbled>;

#[derive(Default)]
pub struct Packer {
    bytes: Vec<u8>,
    last: Vec<u8>,
}

pub struct Unpacker<'a> {
    bytes: &'a [u8],
    last: Vec<u8>,
    path_bytes: usize,
}

impl Packer {
    pub fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// Seven bits per byte, the lowest first. In the last byte, the high bit is not set.
    pub fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    pub fn signed(&mut self, number: i64) {
        self.number(((number << 1) ^ (number >> 63)) as u64);
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub fn text(&mut self, text: &[u8]) {
        self.number(text.len() as u64);
        self.raw(text);
    }

    pub fn digest(&mut self, digest: &Digest) {
        self.raw(&digest.0);
    }

    pub fn path(&mut self, path: &Path) {
        let mut whole = Vec::with_capacity(1 + path.rest.len());
        whole.push(path.root.number());
        whole.extend_from_slice(&path.rest);
        let shared = whole.iter().zip(&self.last).take_while(|(a, b)| a == b).count();
        self.number(shared as u64);
        self.text(&whole[shared..]);
        self.last = whole;
    }

    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

impl<'a> Unpacker<'a> {
    pub fn new(bytes: &'a [u8]) -> Unpacker<'a> {
        Unpacker {
            bytes,
            last: Vec::new(),
            path_bytes: 0,
        }
    }

    pub fn raw(&mut self, size: usize) -> Result<&'a [u8]> {
        let (found, rest) = self.bytes.split_at_checked(size).ok_or(Garbled)?;
        self.bytes = rest;
        Ok(found)
    }

    pub fn byte(&mut self) -> Result<u8> {
        Ok(self.raw(1)?[0])
    }

    pub fn number(&mut self) -> Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Garbled);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Garbled)
    }

    pub fn signed(&mut self) -> Result<i64> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    pub fn small<T: TryFrom<u64>>(&mut self) -> Result<T> {
        T::try_from(self.number()?).map_err(|_| Garbled)
    }

    pub fn flag(&mut self) -> Result<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbled),
        }
    }

    /// A number of things that follow, each of which takes at least one byte.
    pub fn count(&mut self) -> Result<usize> {
        let count = self.small()?;
        if count > self.bytes.len() {
            return Err(Garbled);
        }
        Ok(count)
    }

    pub fn text(&mut self) -> Result<&'a [u8]> {
        let size = self.small()?;
        self.raw(size)
    }

    pub fn digest(&mut self) -> Result<Digest> {
        let bytes = self.raw(Digest::SIZE)?;
        Ok(Digest(bytes.try_into().map_err(|_| Garbled)?))
    }

    pub fn path(&mut self) -> Result<Path> {
        let shared = self.small()?;
        let rest = self.text()?;
        if shared > self.last.len() {
            return Err(Garbled);
        }
        self.last.truncate(shared);
        self.last.extend_from_slice(rest);
        self.path_bytes += self.last.len();
        if self.last.len() > LONGEST || self.path_bytes > MOST_PATH_BYTES {
            return Err(Garbled);
        }
        let (root, rest) = self.last.split_first().ok_or(Garbled)?;
        Ok(Path {
            root: Root::of_number(*root).ok_or(Garbled)?,
            rest: rest.to_vec(),
        })
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_as_they_were() {
        for number in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::MAX] {
            let mut packer = Packer::default();
            packer.number(number);
            packer.signed(number as i64);
            let bytes = packer.finish();
            let mut unpacker = Unpacker::new(&bytes);
            assert_eq!(unpacker.number(), Ok(number));
            assert_eq!(unpacker.signed(), Ok(number as i64));
            assert!(unpacker.is_empty());
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_refused() {
        assert_eq!(Unpacker::new(&[0xff; 10]).number(), Err(Garbled));
        assert_eq!(Unpacker::new(&[0x80; 11]).number(), Err(Garbled));
        assert_eq!(Unpacker::new(&[]).number(), Err(Garbled));
    }

    #[test]
    fn a_path_takes_only_the_bytes_that_differ_from_the_previous_one() {
        let path = |root, rest: &[u8]| Path {
            root,
            rest: rest.to_vec(),
        };
        let paths = [
            path(Root::Absolute, b"/usr/include/stdio.h"),
            path(Root::Absolute, b"/usr/include/stdlib.h"),
            path(Root::Folder, b""),
            path(Root::Base(0), b"x"),
            path(Root::Base(15), b"x"),
        ];
        let mut packer = Packer::default();
        paths.iter().for_each(|path| packer.path(path));
        let bytes = packer.finish();
        assert_eq!(bytes.len(), (2 + 21) + (2 + 5) + (2 + 1) + (2 + 2) + (2 + 2));
        let mut unpacker = Unpacker::new(&bytes);
        for path in paths {
            assert_eq!(unpacker.path(), Ok(path));
        }
    }

    #[test]
    fn few_bytes_do_not_make_long_paths() {
        let mut bytes = vec![0, 0x80, 0x20];
        bytes.extend([0; 1]);
        bytes.extend(vec![b'a'; 4095]);
        let mut unpacker = Unpacker::new(&bytes);
        assert_eq!(unpacker.path().map(|path| path.rest.len()), Ok(4095));
        bytes.extend([0x80, 0x20, 1, b'b']);
        let mut unpacker = Unpacker::new(&bytes);
        assert!(unpacker.path().is_ok());
        assert_eq!(unpacker.path(), Err(Garbled));
    }
}
