//! Which language a source is in: told by its ending, or by `-x`.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// C and its kin, with a preprocessor or already through it.
    C,
    Fortran,
    /// Assembler that is preprocessed first.
    Assembler,
    PlainAssembler,
    /// A header, which is to be precompiled.
    Header,
    /// What clang makes for itself.
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
/// What compilers give to the linker; other endings too, but these are meant for it.
const LINKED: [&[u8]; 6] = [b"o", b"a", b"so", b"obj", b"lo", b"lib"];

fn find(table: &[(Language, &[&str])], word: &[u8]) -> Option<Language> {
    let mut lines = table.iter();
    lines
        .find(|(_, words)| words.iter().any(|w| w.as_bytes() == word))
        .map(|(language, _)| *language)
}

/// What comes after the last dot of a file's own name.
pub fn ending(path: &[u8]) -> Option<&[u8]> {
    let name = path.rsplit(|b| *b == b'/').next()?;
    name.iter().rposition(|b| *b == b'.').map(|dot| &name[dot + 1..])
}

impl Language {
    pub fn of_file(path: &[u8]) -> Option<Language> {
        find(ENDINGS, ending(path)?)
    }

    pub fn of_name(name: &[u8]) -> Option<Language> {
        find(NAMES, name)
    }
}

/// Whether a linker would be given this file, and a compiler nothing to do with it.
pub fn is_linked(path: &[u8]) -> bool {
    ending(path).is_some_and(|ending| LINKED.contains(&ending))
}
