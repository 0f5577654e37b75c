//! The secret of the TCP port: made anew whenever the port opens, kept in a file that only its owner reads.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

use subtle::ConstantTimeEq;

use crate::bytes::digest::Digest;
use crate::files::folder::Folder;

pub struct Token(String);

impl Token {
    pub fn random() -> io::Result<Token> {
        let mut bytes = [0; Digest::SIZE];
        getrandom::fill(&mut bytes).map_err(|e| io::Error::other(e.to_string()))?;
        // Digests are written as hexadecimal digits, too.
        Ok(Token(Digest(bytes).to_string()))
    }

    pub fn text(&self) -> &str {
        &self.0
    }

    /// Compares in constant time.
    pub fn admits(&self, shown: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(shown).into()
    }

    /// Writes the whole file, or nothing.
    pub fn publish(&self, folder: &Folder, port: u16) -> io::Result<()> {
        let path = folder.token();
        let fresh = path.with_extension("tcp.new");
        // The file of a killed engine may not be safe to write to.
        let _ = fs::remove_file(&fresh);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh)?;
        writeln!(file, "{port} {}", self.0)?;
        fs::rename(&fresh, &path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_admitted() {
        let token = Token::random().unwrap();
        let text = token.0.clone();
        assert_eq!(text.len(), 64);
        assert!(token.admits(text.as_bytes()));
        assert!(!token.admits(&text.as_bytes()[..63]));
        assert!(!token.admits(b""));
        assert!(!token.admits(Token::random().unwrap().0.as_bytes()));
    }
}
