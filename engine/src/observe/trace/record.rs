//! One record of an observed command: `struct wafpark_record` of `engine/park/record.h`, and the access that it describes.

use super::DAMAGED;
use crate::observe::access::{Bytes, Mode, What};

/// Size of a `struct wafpark_record`.
pub const HEAD: u32 = 40;

/// A record, as it was found.
pub struct Record {
    pub size: u32,
    pub process: u32,
    pub kind: u16,
    pub error: u16,
    pub detail: u32,
    /// For an exec, its own token; for a begin, the token of the exec by which the program has started.
    pub token: u32,
    pub identity: u64,
    pub first: Bytes,
    pub second: Bytes,
}

/// The size of the whole record, from its head.
pub fn size(head: &[u8]) -> u32 {
    number(head, 4)
}

fn number(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    u32::from_ne_bytes(bytes.unwrap_or_default())
}

fn short(bytes: &[u8], at: usize) -> u16 {
    let bytes = bytes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
    u16::from_ne_bytes(bytes.unwrap_or_default())
}

impl Record {
    pub fn read(head: &[u8], size: u32, mut texts: Bytes) -> Option<Record> {
        let (first, second) = (number(head, 20) as usize, number(head, 24) as usize);
        texts.truncate(first.checked_add(second).filter(|end| *end <= texts.len())?);
        let second = texts.split_off(first);
        Some(Record {
            size,
            process: number(head, 8),
            kind: short(head, 12),
            error: short(head, 14),
            detail: number(head, 16),
            token: number(head, 28),
            identity: u64::from(number(head, 32)) | u64::from(number(head, 36)) << 32,
            first: texts,
            second,
        })
    }
}

/// By `enum wafpark_blindness`.
const BLINDNESS: [&str; 11] = [
    DAMAGED,
    "it uses a folder whose path cannot be told",
    "it used files before it was parked",
    "it lets the C library walk through folders",
    "it makes system calls of its own",
    "it talks to other processes",
    "it is run by the loader, called as a program",
    "it changes what its paths mean",
    "it asks who users or hosts are",
    "it shares memory with other processes",
    "it uses attributes of files",
];

/// `enum wafpark_kind`.
pub const BEGIN: u16 = 1;
pub const EXECUTE: u16 = 2;
pub const REFUSED: u16 = 3;
pub const LOAD: u16 = 4;
pub const ENTER: u16 = 5;
pub const OPEN: u16 = 6;
pub const FIND: u16 = 7;
pub const LOOK: u16 = 8;
pub const LINK: u16 = 9;
pub const RESOLVE: u16 = 10;
pub const LIST: u16 = 11;
pub const ASK: u16 = 12;
pub const LOCATE: u16 = 13;
pub const TIME: u16 = 14;
pub const DATE: u16 = 15;
pub const RANDOM: u16 = 16;
pub const RENAME: u16 = 17;
pub const REMOVE: u16 = 18;
pub const MAKE: u16 = 19;
pub const BLIND: u16 = 20;
pub const MEASURE: u16 = 40;
pub const NUMBER: u16 = 41;
pub const LISTED: u16 = 50;
pub const CRATE: u16 = 51;
pub const GUARDED: u16 = 52;
/// Only the second witness writes these (`crate::witness`).
pub const BEGIN_TRACED: u16 = 42;
pub const WITNESS: u16 = 43;
pub const WITNESS_LEFT: u16 = 44;

/// The kinds that only look at a path.
pub const PATHS: std::ops::RangeInclusive<u16> = ENTER..=LIST;

/// `enum wafpark_blindness`, as far as the second witness uses it.
pub const BLIND_FOLDER: u32 = 1;
pub const BLIND_CALL: u32 = 4;
pub const BLIND_TALK: u32 = 5;
pub const BLIND_PLACE: u32 = 7;
pub const BLIND_SHARED: u32 = 9;
pub const BLIND_ATTRIBUTES: u32 = 10;

/// The access that the record describes.
pub fn what(record: Record) -> Result<What, &'static str> {
    let path = record.first;
    Ok(match record.kind {
        BEGIN | BEGIN_TRACED => What::Begin {
            program: path,
            folder: record.second,
            parent: record.detail,
            is_traced: record.kind == BEGIN_TRACED,
        },
        EXECUTE => What::Execute { path },
        LOAD => What::Load { path },
        ENTER => What::Enter { path },
        OPEN => open(path, record.detail as i32),
        FIND => What::Find { path },
        LOOK => What::Look {
            path,
            follows: record.detail != 0,
        },
        LINK => What::Link { path },
        RESOLVE => What::Resolve { path },
        LIST => What::List { path },
        ASK => What::Ask { name: path },
        LOCATE if record.detail != 0 => What::Anchor,
        LOCATE => What::Locate,
        TIME => What::Time,
        DATE => What::Date,
        RANDOM => What::Random,
        RENAME => What::Rename {
            from: path,
            to: record.second,
        },
        REMOVE => What::Remove { path },
        MAKE => What::Make {
            path,
            is_folder: record.detail != 0,
        },
        BLIND => What::Blind {
            why: BLINDNESS.get(record.detail as usize).unwrap_or(&DAMAGED),
        },
        MEASURE => What::Measure,
        NUMBER => What::Number,
        LISTED => listed(&path).ok_or(DAMAGED)?,
        CRATE => named_crate(&path).ok_or(DAMAGED)?,
        GUARDED => What::Guarded,
        _ => return Err(DAMAGED),
    })
}

fn named_crate(text: &[u8]) -> Option<What> {
    let at = text.iter().position(|byte| *byte == b' ')?;
    Some(What::Crate {
        folder: u64::from_str_radix(std::str::from_utf8(&text[..at]).ok()?, 16).ok()?,
        name: text[at + 1..].to_vec(),
    })
}

fn listed(text: &[u8]) -> Option<What> {
    let (folder, names) = std::str::from_utf8(text).ok()?.split_once(' ')?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some(What::Listed {
        folder: number(folder)?,
        names: number(names)?,
    })
}

fn open(path: Bytes, flags: i32) -> What {
    let has = |wanted: i32| flags & wanted == wanted;
    if matches!(path.as_slice(), b"/dev/urandom" | b"/dev/random") {
        return What::Random;
    }
    if has(libc::O_TMPFILE) {
        // Only this command sees what it writes there.
        return What::Find { path };
    }
    if has(libc::O_DIRECTORY) {
        // Listing makes a record of its own.
        let follows = !has(libc::O_NOFOLLOW);
        return What::Look { path, follows };
    }
    let access = flags & libc::O_ACCMODE;
    let mode = Mode {
        reads: access != libc::O_WRONLY,
        writes: access != libc::O_RDONLY,
        creates: has(libc::O_CREAT),
        exclusive: has(libc::O_CREAT | libc::O_EXCL),
        truncates: has(libc::O_TRUNC),
    };
    What::Open { path, mode }
}
