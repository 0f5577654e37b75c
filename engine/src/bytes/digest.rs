//! Content is identified by its BLAKE3 digest. BLAKE3 is fast enough to read every byte that a build reads.

use std::fmt;
use std::fs::File;
use std::io;
use std::str::FromStr;

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; Digest::SIZE]);

impl Digest {
    pub const SIZE: usize = 32;

    pub fn of(bytes: &[u8]) -> Digest {
        Digest(*blake3::hash(bytes).as_bytes())
    }

    /// The digest of all that is left to read in a file.
    pub fn of_file(file: &File) -> io::Result<Digest> {
        Digest::of_reader(file)
    }

    pub fn of_reader(reader: impl io::Read) -> io::Result<Digest> {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(reader)?;
        Ok(Digest(*hasher.finalize().as_bytes()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Digest, Self::Err> {
        let digit = |byte: u8| char::from(byte).to_digit(16).filter(|_| !byte.is_ascii_uppercase());
        let mut digest = [0; Digest::SIZE];
        if text.len() != 2 * Digest::SIZE {
            return Err("a digest has 64 hexadecimal digits");
        }
        for (byte, pair) in digest.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            match (digit(pair[0]), digit(pair[1])) {
                (Some(high), Some(low)) => *byte = (high << 4 | low) as u8,
                _ => return Err("a digest has hexadecimal digits only"),
            }
        }
        Ok(Digest(digest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written() {
        let digest = Digest::of(b"abc");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        for wrong in ["", "0", &"g".repeat(64), &"A".repeat(64), &"0".repeat(66)] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_has_the_digest_of_its_content() {
        let path = std::env::temp_dir().join(format!("digest-{}", std::process::id()));
        std::fs::write(&path, b"abc").unwrap();
        let found = Digest::of_file(&File::open(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found.unwrap(), Digest::of(b"abc"));
    }
}
