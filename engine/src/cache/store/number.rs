//! Numbers of blobs and of volumes. Each is used only once, so that a removal never hits a newer file.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// The upper half is a random number of the process that made it; the lower half is a count; the last bit says whether a
/// blob is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Number(pub u64);

impl Number {
    pub fn is_packed(self) -> bool {
        self.0 & 1 == 1
    }

    pub fn of_name(name: &[u8]) -> Option<Number> {
        let name = std::str::from_utf8(name).ok().filter(|name| name.len() == 16)?;
        u64::from_str_radix(name, 16).ok().map(Number)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The numbers of this process.
pub struct Numbers {
    first: u64,
    next: AtomicU64,
}

impl Numbers {
    pub fn new() -> io::Result<Numbers> {
        let session = getrandom::u32().map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Numbers::from(u64::from(session) << 32))
    }

    fn from(first: u64) -> Numbers {
        let next = AtomicU64::new(first);
        Numbers { first, next }
    }

    /// After 2^31 of them, they continue with numbers that another process uses with a probability of 2^-32.
    pub fn draw(&self, is_packed: bool) -> Number {
        Number(self.next.fetch_add(2, Ordering::Relaxed) | u64::from(is_packed))
    }

    pub fn has_drawn(&self, number: Number) -> bool {
        let count = self.next.load(Ordering::Relaxed).wrapping_sub(self.first);
        number.0.wrapping_sub(self.first) < count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for number in [Number(0), Number(0x0123_4567_89ab_cdef), Number(u64::MAX)] {
            assert_eq!(Number::of_name(number.to_string().as_bytes()), Some(number));
        }
        for name in ["", "x", "0123456789abcde", "0123456789abcdeff", "0123456789abcdeg"] {
            assert_eq!(Number::of_name(name.as_bytes()), None);
        }
    }

    #[test]
    fn own_numbers_are_recognized_even_after_an_overflow() {
        for first in [0, 5 << 32, (1 << 32) - 4, u64::MAX - 3] {
            let numbers = Numbers::from(first & !1);
            let drawn = [false, true, false, true].map(|is_packed| numbers.draw(is_packed));
            assert!(drawn.iter().all(|number| numbers.has_drawn(*number)));
            assert_eq!(drawn.map(Number::is_packed), [false, true, false, true]);
            for other in [first.wrapping_sub(2), first.wrapping_add(1 << 33)] {
                assert!(!numbers.has_drawn(Number(other & !1)));
            }
        }
    }
}
