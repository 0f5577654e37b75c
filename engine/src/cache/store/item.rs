//! The items of the index, and the frames that contain them: `docs/store-format.md`.
//!
//! Bytes from the disk are not trusted: a part that is not completely understood is left out.

use super::clock::Instant;
use super::number::Number;
use crate::bytes::digest::Digest;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A blob in a file of its own.
    Blob {
        digest: Digest,
        number: Number,
        blocks: u32,
    },
    /// A blob in a volume.
    Piece {
        digest: Digest,
        number: Number,
        volume: Number,
        offset: u32,
        length: u32,
    },
    Entry {
        id: u32,
        key: Digest,
        used: Instant,
        blobs: Vec<Number>,
    },
    Drop {
        id: u32,
    },
    Use {
        id: u32,
        used: Instant,
    },
    Count {
        name: String,
        added: u64,
    },
    /// All counters are zero.
    Zero,
    /// All entries and blobs are dropped.
    Clear,
}

pub const MARK: [u8; 4] = *b"\xf7wfs";
const HEAD: usize = MARK.len() + 4 + CHECK;
const CHECK: usize = 8;
const LARGEST_FRAME: usize = 1 << 20;
/// No writer makes a longer frame, and no reader needs room for one.
const LONGEST_PIECE: u32 = 1 << 20;

impl Item {
    pub fn write(&self, to: &mut Vec<u8>) {
        match self {
            Item::Blob { digest, number, blocks } => {
                to.push(b'b');
                to.extend(digest.0);
                to.extend(number.0.to_le_bytes());
                to.extend(blocks.to_le_bytes());
            }
            Item::Piece {
                digest,
                number,
                volume,
                offset,
                length,
            } => {
                to.push(b'p');
                to.extend(digest.0);
                to.extend(number.0.to_le_bytes());
                to.extend(volume.0.to_le_bytes());
                to.extend(offset.to_le_bytes());
                to.extend(length.to_le_bytes());
            }
            Item::Entry { id, key, used, blobs } => {
                to.push(b'e');
                to.extend(id.to_le_bytes());
                to.extend(key.0);
                to.extend(used.to_le_bytes());
                to.extend((blobs.len() as u16).to_le_bytes());
                blobs.iter().for_each(|number| to.extend(number.0.to_le_bytes()));
            }
            Item::Drop { id } => {
                to.push(b'd');
                to.extend(id.to_le_bytes());
            }
            Item::Use { id, used } => {
                to.push(b'u');
                to.extend(id.to_le_bytes());
                to.extend(used.to_le_bytes());
            }
            Item::Count { name, added } => {
                to.extend([b'c', name.len() as u8]);
                to.extend(name.as_bytes());
                to.extend(added.to_le_bytes());
            }
            Item::Zero => to.push(b'z'),
            Item::Clear => to.push(b'x'),
        }
    }
}

/// The items of one frame's payload.
pub struct Items<'a>(pub &'a [u8]);

impl Iterator for Items<'_> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        let item = self.read();
        if item.is_none() {
            self.0 = &[];
        }
        item
    }
}

impl<'a> Items<'a> {
    fn read(&mut self) -> Option<Item> {
        Some(match self.array::<1>()?[0] {
            b'b' => Item::Blob {
                digest: Digest(self.array()?),
                number: self.number()?,
                blocks: self.word()?,
            },
            b'p' => Item::Piece {
                digest: Digest(self.array()?),
                number: self.number()?,
                volume: self.number()?,
                offset: self.word()?,
                length: self.word().filter(|length| *length <= LONGEST_PIECE)?,
            },
            b'e' => Item::Entry {
                id: self.word()?,
                key: Digest(self.array()?),
                used: self.long()?,
                blobs: self.numbers()?,
            },
            b'd' => Item::Drop { id: self.word()? },
            b'u' => Item::Use {
                id: self.word()?,
                used: self.long()?,
            },
            b'c' => Item::Count {
                name: self.name()?,
                added: self.long()?,
            },
            b'z' => Item::Zero,
            b'x' => Item::Clear,
            _ => return None,
        })
    }

    fn take(&mut self, size: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(size)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn word(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.array()?))
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.array()?))
    }

    fn number(&mut self) -> Option<Number> {
        Some(Number(self.long()?))
    }

    fn numbers(&mut self) -> Option<Vec<Number>> {
        let count = usize::from(u16::from_le_bytes(self.array()?));
        let bytes = self.take(8 * count)?;
        let number = |bytes: &[u8]| Some(Number(u64::from_le_bytes(bytes.try_into().ok()?)));
        bytes.chunks_exact(8).map(number).collect()
    }

    fn name(&mut self) -> Option<String> {
        let length = usize::from(self.array::<1>()?[0]);
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }
}

/// Appends a frame with this payload.
pub fn frame(payload: &[u8], to: &mut Vec<u8>) {
    to.extend(MARK);
    to.extend((payload.len() as u32).to_le_bytes());
    to.extend(check(payload));
    to.extend(payload);
}

/// Keyed, so that a frame of another format does not match.
fn check(payload: &[u8]) -> [u8; CHECK] {
    const KEY: &[u8; 32] = b"wafcc store, format 2: its index";
    let digest = blake3::keyed_hash(KEY, payload);
    std::array::from_fn(|at| digest.as_bytes()[at])
}

/// The payloads of all complete frames. Damaged parts are skipped, up to the next mark.
pub struct Frames<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where the last complete frame ended.
    pub end: usize,
    /// Whether something was skipped. The beginning of a last frame does not count: its writer was killed.
    pub damaged: bool,
}

impl<'a> Frames<'a> {
    pub fn new(bytes: &'a [u8]) -> Frames<'a> {
        Frames {
            bytes,
            at: 0,
            end: 0,
            damaged: false,
        }
    }

    fn whole(&self) -> Option<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let length = u32::from_le_bytes(rest.get(4..8)?.try_into().ok()?) as usize;
        if !rest.starts_with(&MARK) || length > LARGEST_FRAME {
            return None;
        }
        let payload = rest.get(HEAD..HEAD + length)?;
        (rest[8..HEAD] == check(payload)).then_some(payload)
    }

    /// Whether the rest is the beginning of a frame. The writer was killed before it could report the frame as written.
    fn is_begun(&self) -> bool {
        let rest = &self.bytes[self.at..];
        let Some(length) = rest.get(4..8).and_then(|length| length.try_into().ok()) else {
            return MARK.starts_with(&rest[..rest.len().min(MARK.len())]);
        };
        let length = u32::from_le_bytes(length) as usize;
        rest.starts_with(&MARK) && length <= LARGEST_FRAME && rest.len() < HEAD + length
    }

    fn next_mark(&self) -> usize {
        let after = (self.at + 1).min(self.bytes.len());
        let found = self.bytes[after..].windows(MARK.len()).position(|bytes| bytes == MARK);
        found.map_or(self.bytes.len(), |offset| after + offset)
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while self.at < self.bytes.len() {
            if let Some(payload) = self.whole() {
                self.damaged |= self.at > self.end;
                self.at += HEAD + payload.len();
                self.end = self.at;
                return Some(payload);
            }
            self.damaged |= !self.is_begun();
            self.at = self.next_mark();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Item> {
        let (number, digest) = (Number(77), Digest::of(b"x"));
        vec![
            Item::Blob {
                digest,
                number,
                blocks: 8,
            },
            Item::Piece {
                digest,
                number: Number(79),
                volume: Number(80),
                offset: 5000,
                length: 300,
            },
            Item::Entry {
                id: 3,
                key: digest,
                used: 99,
                blobs: vec![number, Number(1 << 60)],
            },
            Item::Drop { id: 5 },
            Item::Use { id: 6, used: 7 },
            Item::Count {
                name: "hit".into(),
                added: 1,
            },
            Item::Zero,
            Item::Clear,
        ]
    }

    fn framed(items: &[Item]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for item in items {
            let mut payload = Vec::new();
            item.write(&mut payload);
            frame(&payload, &mut bytes);
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Vec<Item> {
        Frames::new(bytes).flat_map(Items).collect()
    }

    #[test]
    fn items_are_read_as_they_are_written() {
        let mut payload = Vec::new();
        all().iter().for_each(|item| item.write(&mut payload));
        assert_eq!(Items(&payload).collect::<Vec<_>>(), all());
        assert_eq!(read(&framed(&all())), all());
    }

    #[test]
    fn a_flipped_bit_damages_only_its_own_frame() {
        let bytes = framed(&all());
        for bit in 0..8 * bytes.len() {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let found = read(&damaged);
            assert_eq!(found.len(), all().len() - 1, "bit {bit}");
            assert!(found.iter().all(|item| all().contains(item)));
        }
    }

    fn is_damaged(bytes: &[u8]) -> bool {
        let mut frames = Frames::new(bytes);
        frames.by_ref().for_each(drop);
        frames.damaged
    }

    #[test]
    fn a_last_frame_that_was_not_written_completely_is_no_damage() {
        let bytes = framed(&all());
        for length in 0..bytes.len() {
            assert!(!is_damaged(&bytes[..length]), "{length} bytes");
        }
        let cut = &bytes[..bytes.len() - 1];
        assert!(is_damaged(&[cut, &bytes].concat()), "another frame follows");
        assert!(is_damaged(&[&bytes, &[0; 3][..]].concat()), "not of a frame");
        assert!(is_damaged(&bytes[1..]));
    }

    #[test]
    fn all_complete_frames_of_a_cut_index_are_read() {
        let bytes = framed(&all());
        for length in 0..bytes.len() {
            let found = read(&bytes[..length]);
            assert_eq!(found, all()[..found.len()], "{length} bytes");
            assert!(found.len() < all().len());
        }
    }
}
