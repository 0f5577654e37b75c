//! Splits a stream of bytes into frames: keeps what has arrived until a frame is complete.
//!
//! Pure. A length is accepted only below the cap, and memory grows only with bytes that have really come.

use super::fields::Malformed;

/// The largest frame before the greeting: an unknown peer must not make us allocate more.
pub const GREETING_CAP: usize = 4096;
/// How many bytes stay allocated while no data is waiting.
const KEPT: usize = 1 << 16;

/// The length of the frame at the beginning of the bytes.
pub fn length(bytes: &[u8]) -> Option<usize> {
    bytes.first_chunk().map(|head| u32::from_le_bytes(*head) as usize)
}

/// The frame at the beginning of the bytes: its kind and body, without its length. `None` if it is not complete.
pub fn first(bytes: &[u8], cap: usize) -> Result<Option<&[u8]>, Malformed> {
    match length(bytes) {
        None => Ok(None),
        Some(0) => Err(Malformed("a frame of no length")),
        Some(length) if length > cap => Err(Malformed("a frame above the cap")),
        Some(length) => Ok(bytes[4..].get(..length)),
    }
}

/// Bytes that have arrived and have not been taken yet.
pub struct Inbox {
    bytes: Vec<u8>,
    taken: usize,
    cap: usize,
}

impl Inbox {
    pub fn new(cap: usize) -> Self {
        Inbox {
            bytes: Vec::new(),
            taken: 0,
            cap,
        }
    }

    pub fn raise_cap(&mut self, cap: usize) {
        self.cap = cap;
    }

    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete frame: its kind and body, without its length.
    pub fn take(&mut self) -> Result<Option<&[u8]>, Malformed> {
        let frame = first(&self.bytes[self.taken..], self.cap)?;
        self.taken += frame.map_or(0, |frame| 4 + frame.len());
        Ok(frame)
    }

    /// Whether a frame has begun and is not complete yet.
    pub fn is_partial(&self) -> bool {
        self.taken < self.bytes.len()
    }

    /// Frees memory after a large frame.
    pub fn trim(&mut self) {
        if !self.is_partial() {
            self.bytes.clear();
            self.taken = 0;
            self.bytes.shrink_to(KEPT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_whole_however_the_bytes_are_cut() {
        let stream = [2, 0, 0, 0, 7, 8, 1, 0, 0, 0, 9];
        for cut in 0..=stream.len() {
            let mut inbox = Inbox::new(16);
            let mut seen = Vec::new();
            for part in [&stream[..cut], &stream[cut..]] {
                inbox.push(part);
                while let Some(frame) = inbox.take().unwrap() {
                    seen.push(frame.to_vec());
                }
            }
            assert_eq!(seen, [vec![7, 8], vec![9]], "cut at {cut}");
            assert!(!inbox.is_partial());
        }
    }

    #[test]
    fn a_length_above_the_cap_is_refused_before_its_bytes_come() {
        let mut inbox = Inbox::new(16);
        inbox.push(&17u32.to_le_bytes());
        assert!(inbox.take().is_err());
        inbox.raise_cap(17);
        assert_eq!(inbox.take(), Ok(None));
    }

    #[test]
    fn a_frame_of_no_length_is_refused() {
        let mut inbox = Inbox::new(16);
        inbox.push(&[0; 4]);
        assert!(inbox.take().is_err());
    }

    #[test]
    fn memory_of_a_large_frame_is_given_back() {
        let mut inbox = Inbox::new(1 << 20);
        inbox.push(&(1u32 << 20).to_le_bytes());
        inbox.push(&vec![1; 1 << 20]);
        assert!(inbox.take().unwrap().is_some());
        inbox.trim();
        assert!(inbox.bytes.capacity() <= KEPT);
    }
}
