//! The language of a source, from its ending or from `-x`.

use crate::facts::path::last_name;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// C and its relatives, before or after the preprocessor.
    C,
    Fortran,
    /// Assembler that is preprocessed first.
    Assembler,
    PlainAssembler,
    /// A header that will be precompiled.
    Header,
    /// Formats that clang makes for itself.
    Ir,
}

use Language::*;

const ENDINGS: &[(Language, &[&str])] = &[
    (
        C,
        &[
            "c", "i", "cc", "cp", "cxx", "cpp", "CPP", "c++", "C", "ii", "m", "mi", "M", "mm", "mii",
        ],
    ),
    (
        Fortran,
        &[
            "f", "for", "ftn", "f90", "f95", "f03", "f08", "F", "FOR", "fpp", "FPP", "FTN", "F90", "F95", "F03", "F08",
        ],
    ),
    (Assembler, &["S", "sx"]),
    (PlainAssembler, &["s"]),
    (Header, &["h", "hh", "H", "hp", "hxx", "hpp", "HPP", "h++", "tcc"]),
    (Ir, &["ll", "bc"]),
];
const NAMES: &[(Language, &[&str])] = &[
    (
        C,
        &[
            "c",
            "cpp-output",
            "c++",
            "c++-cpp-output",
            "objective-c",
            "objective-c-cpp-output",
            "objective-c++",
            "objective-c++-cpp-output",
        ],
    ),
    (Fortran, &["f77", "f77-cpp-input", "f95", "f95-cpp-input"]),
    (Assembler, &["assembler-with-cpp"]),
    (PlainAssembler, &["assembler"]),
    (
        Header,
        &["c-header", "c++-header", "objective-c-header", "objective-c++-header"],
    ),
    (Ir, &["ir"]),
];
/// Files that compilers pass to the linker. There are other endings, too, but these are always for the linker.
const LINKED: [&[u8]; 6] = [b"o", b"a", b"so", b"obj", b"lo", b"lib"];

fn find(table: &[(Language, &[&str])], word: &[u8]) -> Option<Language> {
    let mut lines = table.iter();
    lines
        .find(|(_, words)| words.iter().any(|w| w.as_bytes() == word))
        .map(|(language, _)| *language)
}

/// The part after the last dot of a file's name.
pub fn ending(path: &[u8]) -> Option<&[u8]> {
    let name = last_name(path);
    name.iter().rposition(|b| *b == b'.').map(|dot| &name[dot + 1..])
}

impl Language {
    pub fn of_file(path: &[u8]) -> Option<Language> {
        find(ENDINGS, ending(path)?)
    }

    pub fn of_name(name: &[u8]) -> Option<Language> {
        find(NAMES, name)
    }

    pub fn is_assembler(self) -> bool {
        matches!(self, Assembler | PlainAssembler)
    }

    /// Whether a compiler can check a source of this language without making a file.
    pub fn is_checked(self) -> bool {
        matches!(self, C | Fortran | Header)
    }
}

/// Whether this file is for the linker, and not for the compiler.
pub fn is_linked(path: &[u8]) -> bool {
    ending(path).is_some_and(|ending| LINKED.contains(&ending))
}
