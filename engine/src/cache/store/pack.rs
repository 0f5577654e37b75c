//! Packs blobs, if that pays.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::get_frame_content_size;

/// Smaller blobs save too little.
const SMALLEST: usize = 4096;
/// Packing is done in memory, so larger blobs stay as they are.
pub const LARGEST: usize = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    Off,
    /// zstd at the level that costs a build the least.
    #[default]
    Auto,
    Level(i32),
}

impl Compression {
    /// Packed only if this saves a quarter. Otherwise a plain file is better, because it can be cloned.
    pub fn pack(self, bytes: &[u8]) -> Option<Vec<u8>> {
        if bytes.len() <= SMALLEST || bytes.len() > LARGEST {
            return None;
        }
        let packed = compress(bytes, self.level()?)?;
        (packed.len() <= bytes.len() / 4 * 3).then_some(packed)
    }

    fn level(self) -> Option<i32> {
        match self {
            Compression::Off => None,
            Compression::Auto => Some(1),
            Compression::Level(level) => Some(level),
        }
    }
}

/// A compressor, and the level for which it was prepared.
struct Prepared {
    level: i32,
    compressor: Compressor<'static>,
}

thread_local! {
    // Preparing a compressor takes as long as packing a small object file.
    static PACKING: RefCell<Option<Prepared>> = const { RefCell::new(None) };
    static UNPACKING: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

fn compress(bytes: &[u8], level: i32) -> Option<Vec<u8>> {
    PACKING.with_borrow_mut(|prepared| {
        if prepared.as_ref().map(|prepared| prepared.level) != Some(level) {
            let compressor = Compressor::new(level).ok()?;
            *prepared = Some(Prepared { level, compressor });
        }
        prepared.as_mut()?.compressor.compress(bytes).ok()
    })
}

/// The unpacked bytes. `None` if they cannot be a packed blob.
pub fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let length = usize::try_from(get_frame_content_size(packed).ok()??).ok()?;
    if length > LARGEST {
        return None;
    }
    UNPACKING.with_borrow_mut(|decompressor| {
        if decompressor.is_none() {
            *decompressor = Decompressor::new().ok();
        }
        decompressor.as_mut()?.decompress(packed, length).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_bytes_are_unpacked_to_the_same() {
        let bytes = b"a line like those of an object file\n".repeat(1000);
        for compression in [Compression::Auto, Compression::Level(3), Compression::Level(-5)] {
            let packed = compression.pack(&bytes).unwrap();
            assert!(packed.len() < bytes.len() / 4);
            assert_eq!(unpack(&packed).unwrap(), bytes);
        }
    }

    #[test]
    fn bytes_are_packed_only_if_it_pays() {
        let mut noise = vec![0; 100_000];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        assert_eq!(Compression::Auto.pack(&noise), None);
        assert_eq!(Compression::Auto.pack(&[0; SMALLEST]), None);
        assert_eq!(Compression::Off.pack(&[0; 100_000]), None);
        assert!(Compression::Auto.pack(&[0; SMALLEST + 1]).is_some());
    }

    #[test]
    fn damaged_bytes_cause_no_panic_and_no_large_allocation() {
        let packed = Compression::Auto.pack(&[7; 100_000]).unwrap();
        for at in 0..packed.len() {
            for bit in 0..8 {
                let mut damaged = packed.clone();
                damaged[at] ^= 1 << bit;
                drop(unpack(&damaged));
            }
            assert_eq!(unpack(&packed[..at]), None);
        }
    }
}
