//! The form of a record: what a run has looked at, and what it has printed.
//!
//! Lengths and numbers are little-endian. A path ends with a zero, so that system calls take it as it lies there.

use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

const MAGIC: &[u8] = b"wafans03";
/// The most that is read. A million files need less.
const MOST: u64 = 1 << 30;
/// How many things get room before they are read.
const MOST_AHEAD: usize = 1 << 16;

/// The status of a file: mode, inode, device, links, owner, group, size, and the times of content and status.
pub type Status = [i64; 9];

#[derive(Debug, PartialEq)]
pub enum Seen<'a> {
    /// What a path leads to; none if there is nothing.
    Status(Option<Status>),
    /// The same of a link itself.
    OwnStatus(Option<Status>),
    /// The device and the inode of a folder.
    Folder(i64, i64),
    /// The kind of what a path leads to; 0 if there is nothing.
    Kind(i64),
    /// The same of a link itself.
    OwnKind(i64),
    Names {
        /// The folder's, if it can be trusted.
        status: Option<Status>,
        /// None if it cannot be listed.
        names: Option<Vec<&'a [u8]>>,
        /// Python looks for modules there: it makes a folder for compiled ones itself, and asks for no order.
        is_of_modules: bool,
    },
    Access {
        mode: i64,
        is_allowed: bool,
    },
    Target(&'a [u8]),
    System([&'a [u8]; 5]),
    /// A number of the system's.
    Setting(i64, i64),
    Program(Box<Asked<'a>>),
}

/// A program that changes nothing, and what it has told.
#[derive(Debug, PartialEq)]
pub struct Asked<'a> {
    pub words: Vec<&'a [u8]>,
    pub variables: Vec<&'a [u8]>,
    pub status: i64,
    pub out: &'a [u8],
    pub err: &'a [u8],
}

#[derive(Debug, PartialEq)]
pub struct Fact<'a> {
    /// It is below the project's folder, and the path begins there.
    pub is_near: bool,
    pub path: &'a CStr,
    pub seen: Seen<'a>,
}

#[derive(Debug, PartialEq)]
pub struct Piece<'a> {
    pub stream: i32,
    /// None for the time that the call takes.
    pub text: Option<&'a [u8]>,
}

#[derive(Debug, PartialEq)]
pub struct Record<'a> {
    pub key: &'a [u8],
    pub rights: Vec<&'a [u8]>,
    pub project: &'a CStr,
    /// The socket of the resident process, and the message for it after an answer from this record.
    pub socket: &'a [u8],
    pub note: &'a [u8],
    /// The resident process counts its records.
    pub serial: i64,
    /// The output of a run that has ended. None if it has only been begun ahead of its call.
    pub pieces: Option<Vec<Piece<'a>>>,
    /// What decides how Python and the resident process start.
    pub start: Vec<Fact<'a>>,
    /// What the run has looked at.
    pub facts: Vec<Fact<'a>>,
}

/// The bytes of a record, if it is a file of this user.
pub fn read(path: &Path) -> Option<Vec<u8>> {
    let mut options = File::options();
    let mut file = options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    let found = file.metadata().ok()?;
    let is_own = found.is_file() && found.uid() == rustix::process::geteuid().as_raw() && found.len() <= MOST;
    let mut bytes = Vec::new();
    if !is_own || bytes.try_reserve_exact(found.len() as usize + 1).is_err() {
        return None;
    }
    file.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

impl<'a> Record<'a> {
    /// None if the bytes are no record.
    pub fn parse(bytes: &'a [u8]) -> Option<Record<'a>> {
        let mut rest = Reader { bytes };
        if rest.take(MAGIC.len())? != MAGIC {
            return None;
        }
        let record = Record {
            key: rest.text()?,
            rights: rest.texts()?,
            project: rest.path()?,
            socket: rest.text()?,
            note: rest.text()?,
            serial: rest.number()?,
            pieces: if rest.is_there()? {
                Some(rest.many(Reader::piece)?)
            } else {
                None
            },
            start: rest.many(Reader::fact)?,
            facts: rest.many(Reader::fact)?,
        };
        rest.bytes.is_empty().then_some(record)
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn size(&mut self) -> Option<usize> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?) as usize)
    }

    fn number(&mut self) -> Option<i64> {
        Some(i64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let size = self.size()?;
        self.take(size)
    }

    fn texts(&mut self) -> Option<Vec<&'a [u8]>> {
        self.many(Reader::text)
    }

    fn path(&mut self) -> Option<&'a CStr> {
        CStr::from_bytes_with_nul(self.text()?).ok()
    }

    fn is_there(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// Each of them has at least one byte, so their number says nothing that is not there.
    fn many<T>(&mut self, one: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.size()?;
        if count > self.bytes.len() {
            return None;
        }
        let mut found = Vec::with_capacity(count.min(MOST_AHEAD));
        for _ in 0..count {
            found.push(one(self)?);
        }
        Some(found)
    }

    fn status(&mut self) -> Option<Option<Status>> {
        if !self.is_there()? {
            return Some(None);
        }
        let mut status = [0; 9];
        for number in &mut status {
            *number = self.number()?;
        }
        Some(Some(status))
    }

    fn piece(&mut self) -> Option<Piece<'a>> {
        let stream = self.byte()?;
        let text = if self.is_there()? { Some(self.text()?) } else { None };
        (stream == 1 || stream == 2).then_some(Piece {
            stream: stream.into(),
            text,
        })
    }

    fn fact(&mut self) -> Option<Fact<'a>> {
        let kind = self.byte()?;
        let is_near = self.is_there()?;
        let path = self.path()?;
        let seen = match kind {
            b'S' => Seen::Status(self.status()?),
            b's' => Seen::OwnStatus(self.status()?),
            b'F' => Seen::Folder(self.number()?, self.number()?),
            b'K' => Seen::Kind(self.number()?),
            b'k' => Seen::OwnKind(self.number()?),
            b'N' => Seen::Names {
                is_of_modules: self.is_there()?,
                status: self.status()?,
                names: if self.is_there()? { Some(self.texts()?) } else { None },
            },
            b'A' => Seen::Access {
                mode: self.number()?,
                is_allowed: self.is_there()?,
            },
            b'T' => Seen::Target(self.text()?),
            b'U' => Seen::System(self.texts()?.try_into().ok()?),
            b'C' => Seen::Setting(self.number()?, self.number()?),
            b'P' => Seen::Program(Box::new(Asked {
                words: self.texts()?,
                variables: self.texts()?,
                status: self.number()?,
                out: self.text()?,
                err: self.text()?,
            })),
            _ => return None,
        };
        Some(Fact { is_near, path, seen })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &[u8]) -> Vec<u8> {
        [&(text.len() as u32).to_le_bytes(), text].concat()
    }

    /// A record with one fact and one piece.
    fn record() -> Vec<u8> {
        let none = 0u32.to_le_bytes();
        let one = 1u32.to_le_bytes();
        let piece = [&b"\x01\x01"[..], &text(b"done\n")].concat();
        let fact = [&b"K\x00"[..], &text(b"/a\0"), &7i64.to_le_bytes()].concat();
        let parts: [&[u8]; 12] = [
            MAGIC,
            &text(b"key"),
            &none,
            &text(b"/p\0"),
            &text(b"s"),
            &text(b"n"),
            &5i64.to_le_bytes(),
            b"\x01",
            &one,
            &piece,
            &none,
            &one,
        ];
        [parts.concat(), fact].concat()
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let bytes = record();
        let record = Record::parse(&bytes).unwrap();
        assert_eq!((record.key, record.note, record.serial), (&b"key"[..], &b"n"[..], 5));
        let expected = Fact {
            is_near: false,
            path: c"/a",
            seen: Seen::Kind(7),
        };
        assert_eq!(record.facts, [expected]);
        assert_eq!(
            record.pieces,
            Some(vec![Piece {
                stream: 1,
                text: Some(b"done\n")
            }])
        );
    }

    #[test]
    fn what_is_cut_or_too_long_is_no_record() {
        let bytes = record();
        for end in 0..bytes.len() {
            assert_eq!(Record::parse(&bytes[..end]), None, "{end}");
        }
        assert_eq!(Record::parse(&[&bytes[..], b"x"].concat()), None);
    }

    #[test]
    fn changed_bytes_do_no_harm() {
        let bytes = record();
        for at in 0..bytes.len() {
            for value in [0, 1, 2, 255] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let _ = Record::parse(&changed);
            }
        }
    }
}
