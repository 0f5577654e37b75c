//! Why the cache does not know a command line. `UncachedReason` is the kind, by which it is counted; the rest is for people.

use std::fmt;

use crate::observe::access::Bytes;
use crate::wire::UncachedReason;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    Unknown,
    Wrapped,
    Linking,
    Preprocessing,
    Dependencies,
    Asking,
    Timing,
    Modules,
    TimesOfFiles,
    NoInput,
    ManySources,
    LinkerInput,
    Language(Bytes),
    StandardInput,
    StandardOutput,
    Device,
    Response(Bytes),
    Incomplete(Bytes),
    Option(Bytes),
    Variable(&'static str),
}

impl Reason {
    /// Its kind, by which it is counted and reported.
    pub fn kind(&self) -> UncachedReason {
        match self {
            Reason::Unknown => UncachedReason::UnknownCompiler,
            Reason::Wrapped => UncachedReason::Wrapped,
            Reason::Linking => UncachedReason::Linking,
            Reason::Preprocessing => UncachedReason::Preprocessing,
            Reason::Dependencies => UncachedReason::Dependencies,
            Reason::Asking => UncachedReason::Asking,
            Reason::Timing => UncachedReason::Timing,
            Reason::Modules => UncachedReason::Modules,
            Reason::TimesOfFiles => UncachedReason::TimesOfFiles,
            Reason::NoInput => UncachedReason::NoInput,
            Reason::ManySources => UncachedReason::ManySources,
            Reason::LinkerInput => UncachedReason::LinkerInput,
            Reason::Language(_) => UncachedReason::Language,
            Reason::StandardInput => UncachedReason::StandardInput,
            Reason::StandardOutput => UncachedReason::StandardOutput,
            Reason::Device => UncachedReason::Device,
            Reason::Response(_) => UncachedReason::Response,
            Reason::Incomplete(_) => UncachedReason::Incomplete,
            Reason::Option(_) => UncachedReason::Option,
            Reason::Variable(_) => UncachedReason::Variable,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().sentence())?;
        match self {
            Reason::Language(word) | Reason::Response(word) | Reason::Incomplete(word) | Reason::Option(word) => {
                write!(f, " {}", String::from_utf8_lossy(word))
            }
            Reason::Variable(name) => write!(f, " {name}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_tells_what_it_is_about() {
        assert_eq!(
            Reason::Option(b"-wrapper".to_vec()).to_string(),
            "unsupported option -wrapper"
        );
        assert_eq!(Reason::Variable("CPATH").to_string(), "unsupported variable CPATH");
        assert_eq!(Reason::Linking.to_string(), UncachedReason::Linking.sentence());
    }
}
