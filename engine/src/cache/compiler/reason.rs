//! Why the cache does not know a command line: the kind, by which it is counted, and the word that it is about.

use std::fmt;

use crate::observe::access::Bytes;
use crate::wire::UncachedReason;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    pub kind: UncachedReason,
    /// May be empty.
    word: Bytes,
}

impl Reason {
    pub fn about(kind: UncachedReason, word: impl Into<Bytes>) -> Reason {
        let word = word.into();
        Reason { kind, word }
    }
}

impl From<UncachedReason> for Reason {
    fn from(kind: UncachedReason) -> Reason {
        Reason::about(kind, Bytes::new())
    }
}

/// For people.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.sentence())?;
        match &self.word[..] {
            b"" => Ok(()),
            word => write!(f, " {}", String::from_utf8_lossy(word)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_names_what_it_is_about() {
        let option = Reason::about(UncachedReason::Option, *b"-wrapper");
        assert_eq!(option.to_string(), "unsupported option -wrapper");
        let linking = Reason::from(UncachedReason::Linking);
        assert_eq!(linking.to_string(), UncachedReason::Linking.sentence());
    }
}
