//! Compilers whose options are not known here. Their commands are cached by what they are seen to do, if they are compiles.
//!
//! A program may do anything, so its words decide. A server or a test before which somebody puts `wafcc` only runs.

use std::path::Path;

use super::language::{ending, is_linked, Language};
use super::reason::Reason;
use super::{name, without_target};
use crate::observe::access::Bytes;
use crate::wire::UncachedReason;

/// Compilers of other languages and of other makers. A source among the words is enough for them.
const NAMES: [&str; 48] = [
    "armcc",
    "armclang",
    "c89",
    "c99",
    "cc",
    "c++",
    "csc",
    "dmd",
    "dpcpp",
    "em++",
    "emcc",
    "fasm",
    "flang",
    "fpc",
    "gdc",
    "ghc",
    "hipcc",
    "icc",
    "icpc",
    "icpx",
    "icx",
    "ifort",
    "ifx",
    "ispc",
    "javac",
    "kotlinc",
    "lcc",
    "ldc2",
    "mcs",
    "nasm",
    "nvc",
    "nvc++",
    "nvcc",
    "nvfortran",
    "ocamlc",
    "ocamlopt",
    "pgcc",
    "qcc",
    "rustc",
    "scalac",
    "sdcc",
    "swiftc",
    "tcc",
    "valac",
    "xlc",
    "xlc++",
    "xlclang",
    "yasm",
];
/// The endings of their sources, besides those of the languages that are known.
const OWN_ENDINGS: [&str; 18] = [
    "cs", "d", "di", "go", "hs", "ispc", "java", "kt", "lhs", "lpr", "ml", "mli", "nim", "pas", "rs", "scala", "swift",
    "vala",
];
/// Only compilers read sources with these endings, so a program of any name is taken for a compiler.
const ENDINGS: [&str; 7] = ["asm", "cl", "cu", "hip", "nasm", "sycl", "zig"];

/// Why the command of a program that is no known compiler is no compile either. `None` if it is one.
pub fn refusal(program: &Path, words: &[Bytes]) -> Option<Reason> {
    let is_named = NAMES.contains(&without_target(name(program)));
    let found = Found::of(words, is_named);
    match is_named {
        _ if found.has_source && (is_named || found.makes) => None,
        false => Some(UncachedReason::NoCompile.into()),
        true if found.has_linked => Some(UncachedReason::LinkerInput.into()),
        true if found.has_input => Some(UncachedReason::StandardInput.into()),
        true => Some(UncachedReason::Asking.into()),
    }
}

/// What the words of a command name.
#[derive(Default)]
struct Found {
    has_source: bool,
    /// An option says that something is compiled, or where the result goes.
    makes: bool,
    has_linked: bool,
    has_input: bool,
}

impl Found {
    fn of(words: &[Bytes], is_named: bool) -> Found {
        let mut found = Found::default();
        let mut left = words.iter();
        while let Some(word) = left.next() {
            match &word[..] {
                b"-" => found.has_input = true,
                b"-c" | b"-S" => found.makes = true,
                // The next word is no source: `bison -o parser.c` makes one.
                b"-o" => found.makes |= left.next().is_some(),
                word if word.starts_with(b"-o") => found.makes = true,
                word if word.starts_with(b"-") => {}
                word => {
                    found.has_source |= is_source(word, is_named);
                    found.has_linked |= is_linked(word);
                }
            }
        }
        found
    }
}

/// Whether a word is the name of a source. A line for a shell (`-c "cc a.c"`) is none.
fn is_source(word: &[u8], is_named: bool) -> bool {
    let is_one_of = |endings: &[&str]| ending(word).is_some_and(|end| endings.iter().any(|one| one.as_bytes() == end));
    let is_known = !matches!(Language::of_file(word), None | Some(Language::Header | Language::Ir));
    let is_name = !word.iter().any(u8::is_ascii_whitespace);
    is_name && (is_known || is_one_of(&ENDINGS) || is_named && is_one_of(&OWN_ENDINGS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(line: &str) -> Option<UncachedReason> {
        let mut words = line.split(' ');
        let program = Path::new("/opt/bin").join(words.next().unwrap());
        // A blank within a word
        let words: Vec<Bytes> = words.map(|word| word.replace('_', " ").into_bytes()).collect();
        refusal(&program, &words).map(|reason| reason.kind)
    }

    #[test]
    fn a_compile_names_a_source() {
        for line in [
            "emcc -c a.c -o a.o",
            "emcc a.c",
            "em++-3.1 -O2 a.cpp -o a.js",
            "nvcc -c a.cu -o a.o",
            "rustc --crate-type lib src/lib.rs --out-dir target",
            "ldc2 -c a.d -of=a.o",
            "ghc -c Main.hs",
            "swiftc a.swift",
            "c99 -c a.c",
            "cc a.c -o prog",
            "x86_64-unknown-elf-tcc-0.9 -c a.c",
            "zig cc -c a.c",
            "some-vendors-driver -S a.c",
            "some-vendors-driver -oa.o a.f90",
            "some-vendors-driver -o a.o a.asm",
        ] {
            assert_eq!(why(line), None, "{line}");
        }
    }

    #[test]
    fn other_commands_are_no_compiles() {
        for line in [
            "make all",
            "make -o a.c",
            "run-server",
            "run-server -c server.conf",
            "run-server -o log",
            "sh -c cc_-c_a.c",
            "python -c print() -o x",
            "bison -o parser.c parser.y",
            "clang-tidy -p build a.c",
            "cat a.c",
            "gcc-ar rcs lib.a a.o",
            "some-vendors-driver -o prog a.o",
            "some-vendors-driver -c a.d",
        ] {
            assert_eq!(why(line), Some(UncachedReason::NoCompile), "{line}");
        }
    }

    #[test]
    fn a_compiler_without_a_source_has_a_reason_of_its_own() {
        for (line, expected) in [
            ("rustc --version", UncachedReason::Asking),
            ("rustc - --print=cfg", UncachedReason::StandardInput),
            ("tcc -o prog a.o", UncachedReason::LinkerInput),
            ("nvcc -o a.c", UncachedReason::Asking),
        ] {
            assert_eq!(why(line), Some(expected), "{line}");
        }
    }
}
