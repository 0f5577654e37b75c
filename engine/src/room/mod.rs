//! What a machine's `wafd` and a team's `wafd serve` say to each other: `docs/room.md`.
//!
//! Pure. `decode` makes values of bytes, `encode` bytes of values; both borrow what is long, so that a blob is copied once.
//! `bytes::frame` cuts a stream into the bodies that are decoded here. Knows nothing of sockets, nor of who may ask for what.

mod decode;
mod encode;

pub use encode::put_data_head;

use crate::bytes::digest::Digest;

pub use crate::bytes::fields::Malformed;
pub use crate::bytes::frame::GREETING_CAP;

/// The highest and the lowest version that is spoken here.
pub const VERSION: u16 = 1;
/// The most bytes of content that one frame carries: a blob's piece, an entry, what comes along with one.
pub const PIECE: usize = 1 << 20;
/// The largest frame after `welcome`: a piece and the fields around it.
pub const FRAME_CAP: usize = PIECE + (256 << 10);
/// Keys or digests of one request.
pub const MOST_DIGESTS: usize = 4096;
/// What one content takes beside its bytes, where it comes along with an entry.
pub const CONTENT_HEAD: usize = Digest::SIZE + 1 + 4;
/// The longest token, name of a namespace, or name.
pub const MOST_NAME: usize = 1024;

const MAGIC: &[u8; 4] = b"WAFR";

/// How a blob's bytes are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    Plain = 0,
    /// One zstd frame that tells the content's size.
    Zstd = 1,
}

/// A blob that comes whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content<'a> {
    pub digest: Digest,
    pub coding: Coding,
    pub bytes: &'a [u8],
}

/// The beginning of a blob; the rest comes as `Data`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun<'a> {
    pub digest: Digest,
    pub coding: Coding,
    /// Of the coded bytes, all of them.
    pub size: u64,
    pub first: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello<'a> {
    pub lowest: u16,
    pub highest: u16,
    pub token: &'a [u8],
    pub namespace: &'a [u8],
    pub name: &'a [u8],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request<'a> {
    Hello(Hello<'a>),
    Find {
        id: u32,
        /// Blobs up to this size are to come along.
        inline: u32,
        keys: Vec<Digest>,
    },
    Get {
        id: u32,
        digests: Vec<Digest>,
    },
    Has {
        id: u32,
        digests: Vec<Digest>,
    },
    Blob {
        id: u32,
        begun: Begun<'a>,
    },
    Data {
        id: u32,
        bytes: &'a [u8],
    },
    Entry {
        id: u32,
        key: Digest,
        needs: Vec<Digest>,
        bytes: &'a [u8],
    },
    Ping {
        id: u32,
    },
    /// An upload goes no further.
    Abandon {
        id: u32,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply<'a> {
    Welcome {
        version: u16,
        rights: Rights,
        /// The most bytes of one blob, coded or not.
        largest: u64,
        name: &'a [u8],
    },
    Refused {
        why: Refusal,
        words: &'a [u8],
    },
    Found {
        id: u32,
        /// Which of the keys that were asked for.
        number: u16,
        entry: &'a [u8],
        contents: Vec<Content<'a>>,
    },
    End {
        id: u32,
    },
    Blob {
        id: u32,
        begun: Begun<'a>,
    },
    Data {
        id: u32,
        bytes: &'a [u8],
    },
    Missing {
        id: u32,
        digest: Digest,
    },
    Held {
        id: u32,
        bits: Bits,
    },
    Kept {
        id: u32,
    },
    NotKept {
        id: u32,
        why: NotKept,
        words: &'a [u8],
    },
    Pong {
        id: u32,
    },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rights {
    pub read: bool,
    pub write: bool,
}

/// Why a greeting was refused, or a connection is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Version = 1,
    Token = 2,
    Namespace = 3,
    Crowded = 4,
    Leaving = 5,
    Rate = 6,
}

impl Refusal {
    pub const ALL: [Refusal; 6] = [
        Refusal::Version,
        Refusal::Token,
        Refusal::Namespace,
        Refusal::Crowded,
        Refusal::Leaving,
        Refusal::Rate,
    ];
}

/// Why an upload was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotKept {
    /// A blob that the entry needs is not there.
    Lacks = 1,
    ReadOnly = 2,
    TooLarge = 3,
    /// What came does not have the digest that was told.
    Digest = 4,
    Full = 5,
    /// It cannot be unpacked, or more or fewer bytes came than were told.
    Malformed = 6,
    /// The server could not write it.
    Failed = 7,
}

impl NotKept {
    pub const ALL: [NotKept; 7] = [
        NotKept::Lacks,
        NotKept::ReadOnly,
        NotKept::TooLarge,
        NotKept::Digest,
        NotKept::Full,
        NotKept::Malformed,
        NotKept::Failed,
    ];
}

/// An answer of yes or no to each of many digests, in the order in which they were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bits {
    count: usize,
    bytes: Vec<u8>,
}

impl Bits {
    pub fn get(&self, at: usize) -> bool {
        at < self.count && self.bytes[at / 8] >> (at % 8) & 1 == 1
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = bool> + '_ {
        (0..self.count).map(|at| self.get(at))
    }
}

impl FromIterator<bool> for Bits {
    fn from_iter<I: IntoIterator<Item = bool>>(bits: I) -> Bits {
        let mut all = Bits {
            count: 0,
            bytes: Vec::new(),
        };
        for bit in bits {
            if all.count % 8 == 0 {
                all.bytes.push(0);
            }
            all.bytes[all.count / 8] |= u8::from(bit) << (all.count % 8);
            all.count += 1;
        }
        all
    }
}
