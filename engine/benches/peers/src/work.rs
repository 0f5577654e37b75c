//! The results that are stored in all stores, like the engine's results of commands. A number always gives the same result.
//!
//! A result is an entry of 1 to 4 KiB. The larger results also have an object.

use std::ops::Range;

pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;
pub type Key = [u8; 32];

const KIB: u64 = 1 << 10;
const ENTRY: Range<u64> = KIB..4 * KIB;
const OBJECT: Range<u64> = 10 * KIB..2048 * KIB;
/// The size of the objects that are written to files.
pub const RESTORED: usize = 2048 * KIB as usize;

/// The numbers of results: first those with only an entry, then those with an object, then those with an object of 2 MiB.
#[derive(Clone, Copy)]
pub struct Counts {
    pub small: usize,
    pub large: usize,
    pub restored: usize,
}

impl Counts {
    pub fn all(self) -> usize {
        self.small + self.large + self.restored
    }

    pub fn result(self, number: usize) -> Item {
        let random = u64::from_le_bytes(key_of(number as u64, 1)[..8].try_into().expect("eight bytes"));
        let share = (random >> 11) as f64 / (1u64 << 53) as f64;
        let entry = between(&ENTRY, share);
        let object = match number {
            n if n < self.small => None,
            n if n < self.small + self.large => Some(between(&OBJECT, share)),
            _ => Some(RESTORED),
        };
        let object = object.map(|size| {
            let bytes = bytes_of(number as u64, 3, size);
            (*blake3::hash(&bytes).as_bytes(), bytes)
        });
        let mut text = bytes_of(number as u64, 2, entry);
        if let Some((digest, _)) = &object {
            text[..32].copy_from_slice(digest);
        }
        let key = key(number);
        Item {
            key,
            entry: text,
            object,
        }
    }
}

/// A result of a command.
pub struct Item {
    pub key: Key,
    /// Begins with the digest of the object, if there is one.
    pub entry: Vec<u8>,
    pub object: Option<(Key, Vec<u8>)>,
}

impl Item {
    pub fn size(&self) -> usize {
        self.entry.len() + self.object.as_ref().map_or(0, |(_, bytes)| bytes.len())
    }
}

/// A realistic distribution of sizes: as many from 10 to 20 KiB as from 1 to 2 MiB.
fn between(sizes: &Range<u64>, share: f64) -> usize {
    let ratio = sizes.end as f64 / sizes.start as f64;
    (sizes.start as f64 * ratio.powf(share)) as usize
}

/// The key of a result.
pub fn key(number: usize) -> Key {
    key_of(number as u64, 0)
}

fn key_of(number: u64, purpose: u8) -> Key {
    let mut text = number.to_le_bytes().to_vec();
    text.push(purpose);
    *blake3::hash(&text).as_bytes()
}

/// Bytes that cannot be compressed, so that compression helps no store.
fn bytes_of(number: u64, purpose: u8, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&key_of(number, purpose)).finalize_xof().fill(&mut bytes);
    bytes
}

/// Each number once, in an order unlike that on the disk.
pub fn mixed(number: usize, count: usize) -> usize {
    let step = (7919..).find(|step| gcd(*step, count) == 1).unwrap_or(1);
    number * step % count
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 {
        a
    } else {
        gcd(b, a % b)
    }
}
