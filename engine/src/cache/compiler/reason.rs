//! Why the cache does not know a command line. Each reason has a name, so that it can be counted and reported.

use std::fmt;

use crate::observe::access::Bytes;

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
    /// The words under which it is counted. Texts with the same beginning are one count.
    pub fn name(&self) -> &'static str {
        match self {
            Reason::Unknown => "compiler not known",
            Reason::Wrapped => "compiler is another wrapper",
            Reason::Linking => "called for linking",
            Reason::Preprocessing => "called for preprocessing",
            Reason::Dependencies => "called for dependencies only",
            Reason::Asking => "asks the compiler about itself",
            Reason::Timing => "asks how long the compiler takes",
            Reason::Modules => "uses modules",
            Reason::TimesOfFiles => "precompiled header that holds times of files",
            Reason::NoInput => "no input file",
            Reason::ManySources => "multiple source files",
            Reason::LinkerInput => "input for the linker",
            Reason::Language(_) => "unsupported source language",
            Reason::StandardInput => "reads standard input",
            Reason::StandardOutput => "output to standard output",
            Reason::Device => "output to a device",
            Reason::Response(_) => "unreadable response file",
            Reason::Incomplete(_) => "option without its argument",
            Reason::Option(_) => "unsupported option",
            Reason::Variable(_) => "unsupported variable",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
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
        assert_eq!(Reason::Linking.to_string(), Reason::Linking.name());
    }
}
