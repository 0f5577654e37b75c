//! The values. All are distinct. Every other value is half compressible, and the others are not compressible.

/// The size of the stamp at the beginning of each value, which is its number.
pub const STAMP: usize = 16;
pub const MOST: usize = 1 << 20;
const SPREAD: usize = 1 << 20;
/// In a value that is half compressible, every other run of this many bytes is zeros.
const RUN: usize = 512;

pub struct Values {
    size: usize,
    noise: Vec<u8>,
    half: Vec<u8>,
}

impl Values {
    pub fn new(size: usize) -> Values {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        };
        let noise: Vec<u8> = (0..(MOST + SPREAD) / 8).flat_map(|_| next()).collect();
        let mut half = noise.clone();
        half.chunks_mut(RUN).step_by(2).for_each(|run| run.fill(0));
        Values { size, noise, half }
    }

    pub fn size(&self) -> usize {
        self.size
    }

    pub fn stamp(number: u64) -> [u8; STAMP] {
        let mut stamp = [b'0'; STAMP];
        for (to, shift) in stamp.iter_mut().zip((0..STAMP).rev()) {
            *to = b"0123456789abcdef"[(number >> (4 * shift) & 15) as usize];
        }
        stamp
    }

    /// The bytes after the stamp.
    pub fn rest(&self, number: u64) -> &[u8] {
        let bytes = if number % 2 == 0 { &self.noise } else { &self.half };
        let start = (number as usize).wrapping_mul(4099) % SPREAD;
        &bytes[start..start + self.size - STAMP]
    }
}
