//! The protocol between a machine's `wafd` and a team's `wafd serve`: `docs/room.md`.
//!
//! Pure. `decode` and `encode` borrow long fields, so that a blob is copied once. `bytes::frame` cuts a stream into the
//! bodies that are decoded here. The room knows nothing of sockets and rights.

mod decode;
mod encode;

pub use encode::put_data_head;

use crate::bytes::digest::Digest;

pub use crate::bytes::fields::Malformed;
pub use crate::bytes::frame::GREETING_CAP;

/// The only version that this engine supports.
pub const VERSION: u16 = 1;
/// The most bytes of content in one frame: a piece of a blob, an entry, the blobs that are sent with an entry.
pub const PIECE: usize = 1 << 20;
/// The largest frame after `welcome`: a piece and the fields around it.
pub const FRAME_CAP: usize = PIECE + (256 << 10);
/// The most keys or digests of one request.
pub const MOST_DIGESTS: usize = 4096;
/// The longest token, name of a namespace, or name.
pub const MOST_NAME: usize = 1024;

const MAGIC: &[u8; 4] = b"WAFR";

/// The coding of a blob's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    Plain = 0,
    /// One zstd frame that has the size of the content.
    Zstd = 1,
}

/// A blob that is sent with an entry.
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
    /// The number of all coded bytes.
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
        /// Blobs up to this size are sent with the entries.
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
    /// An upload is given up.
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
        /// The position of the key in the request.
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
    /// The store behind the server did not do it. Only `wafd-cluster` sends this, to its engine.
    Failed {
        id: u32,
        how: Failure,
        words: &'a [u8],
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

/// How the store behind `wafd-cluster` failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// It answered with an error, or with something invalid.
    Failed = 1,
    /// It did not answer in time.
    Silent = 2,
    /// It works, and refuses what was asked for.
    Declined = 3,
}

impl Failure {
    pub const ALL: [Failure; 3] = [Failure::Failed, Failure::Silent, Failure::Declined];
}

/// Why an upload was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotKept {
    /// A blob that the entry needs is not there.
    Lacks = 1,
    ReadOnly = 2,
    TooLarge = 3,
    /// The content does not have the given digest.
    Digest = 4,
    Full = 5,
    /// It cannot be unpacked, or has not the given number of bytes.
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
