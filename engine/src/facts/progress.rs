//! Counts the progress of threads that read files. So another thread that waits for them can distinguish a large file from
//! one on which the system hangs.

use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};

static PIECES: AtomicU64 = AtomicU64::new(0);

/// Counts one more piece of a file.
pub fn advance() {
    PIECES.fetch_add(1, Ordering::Relaxed);
}

/// How many pieces all threads of this process have read.
pub fn pieces() -> u64 {
    PIECES.load(Ordering::Relaxed)
}

/// A reader that counts each read.
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
    fn each_read_is_counted() {
        let before = pieces();
        let mut text = String::new();
        Advancing(&b"text"[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        assert!(pieces() > before);
    }
}
