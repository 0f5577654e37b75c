//! That files are being looked at: who waits for a thread that does can tell a large file from one that hangs in the system.

use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};

static PIECES: AtomicU64 = AtomicU64::new(0);

/// One more piece of a file was looked at.
pub fn advance() {
    PIECES.fetch_add(1, Ordering::Relaxed);
}

/// How many pieces all threads of this process have looked at.
pub fn pieces() -> u64 {
    PIECES.load(Ordering::Relaxed)
}

/// A reader whose every read is an advance.
pub struct Advancing<R>(pub R);

impl<R: Read> Read for Advancing<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(bytes);
        advance();
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_read_is_an_advance() {
        let before = pieces();
        let mut text = String::new();
        Advancing(&b"text"[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        assert!(pieces() > before);
    }
}
