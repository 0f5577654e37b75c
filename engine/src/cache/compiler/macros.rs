//! Whether a macro that nothing uses may show in a compile's result. Debug information of some kinds lists all macros, or has
//! a digest of each source.

use super::language::Language;
use super::line::Line;
use super::options::Stage;
use super::Compiler;
use crate::observe::access::Bytes;

/// Options that write macros or sources as they are, or look at comments, or have sources read in a way that is not known here.
const TELLING: [&str; 30] = [
    "-d",
    "-E",
    "-x",
    "--",
    "-X",
    "-Wp,",
    "-Wunused-macros",
    "-Wdocumentation",
    "-Weverything",
    "-Wleading-whitespace",
    "-Wtrailing-whitespace",
    "-fcoverage",
    "-fparse-all-comments",
    "-fd",
    "-fplugin",
    "-fpass-plugin",
    "-fmodule",
    "-fpch",
    "-fprebuilt",
    "-finput-charset",
    "-frewrite",
    "-gembed",
    "-save-temps",
    "-traditional",
    // In the oldest languages, `//` begins no comment.
    "-ansi",
    "-std=c8",
    "-std=c90",
    "-std=iso9899:199",
    "-specs",
    "-wrapper",
];
/// Beginnings like those above, of options that only name a dependency file or change messages and code.
const HARMLESS: [&str; 9] = [
    "-Wp,-MD,",
    "-Wp,-MMD,",
    "-fdata-sections",
    "-fdelete-",
    "-fdebug-prefix-map",
    "-fdebug-compilation-dir",
    "-fdebug-types",
    "-fdiagnostics-color",
    "-fdevirtualize",
];
/// Options with which messages tell more than the lines of a source whose name they tell as well.
const PRINTING: [&str; 13] = [
    "-Q",
    "-fmem-report",
    "-fpre-ipa-mem",
    "-fpost-ipa-mem",
    "-ftime-",
    "-fstats",
    "-print",
    "-fopt-info",
    "-fno-show-source-location",
    "-fdiagnostics-format",
    "-fdiagnostics-add-output",
    "-fdiagnostics-set-output",
    "-fdiagnostics-generate",
];
/// Endings of sources that the preprocessor of C reads.
const SOURCES: [&str; 7] = ["c", "cc", "cp", "cpp", "cxx", "c++", "C"];

/// Whether none does, so that only macros that are used count.
pub fn only_used_count(line: &Line, words: &[Bytes]) -> bool {
    let ending = line.source.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
    let is_source = SOURCES.iter().any(|known| known.as_bytes() == ending);
    let is_plain = line.stage == Stage::Object
        && line.language == Language::C
        && !(line.has_others() || line.precompiles || line.linked_later || line.bitcode);
    is_source && is_plain && !words.iter().any(|word| may_tell(line.compiler, word))
}

/// Whether a message shows lines only of sources whose names are in it.
pub fn messages_name_sources(words: &[Bytes]) -> bool {
    let prints = |word: &Bytes| PRINTING.iter().any(|option| word.starts_with(option.as_bytes()));
    !words.iter().any(prints)
}

fn may_tell(compiler: Compiler, word: &[u8]) -> bool {
    let begins = |known: &[&str]| known.iter().any(|option| word.starts_with(option.as_bytes()));
    let tells_in_debug = match word.strip_prefix(b"-g") {
        // clang writes a digest of each source.
        Some(level) if compiler == Compiler::Clang => level != b"0",
        Some(level) => level.ends_with(b"3"),
        None => false,
    };
    tells_in_debug || begins(&TELLING) && !begins(&HARMLESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only_used(compiler: Compiler, line: &str) -> bool {
        let words: Vec<Bytes> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let read = Line::read(compiler, &words).unwrap_or_else(|why| panic!("{line}: {why:?}"));
        only_used_count(&read, &words)
    }

    #[test]
    fn some_options_show_macros_that_nothing_uses() {
        for line in [
            "-O2 -g -Wall -DA -Iinc -MD -MF a.d -c a.c -o a.o",
            "-fPIC -ffile-prefix-map=/w=. -fdebug-prefix-map=/w=. -c a.cc",
            "-include config.h -Wp,-MMD,a.d -fdiagnostics-color=always -c a.cpp",
        ] {
            assert!(only_used(Compiler::Gcc, line), "{line}");
        }
        for line in [
            "-g3 -c a.c",
            "-ggdb3 -c a.c",
            "-dD -c a.c",
            "-E a.c",
            "-S a.c",
            "-c a.S",
            "-c a.i",
            "-c a.f90",
            "-x c -c a.h",
            "-c a.h",
            "-flto -c a.c",
            "-Wunused-macros -c a.c",
            "-fdirectives-only -c a.c",
            "-fdebug-macro -c a.c",
            "-finput-charset=latin1 -c a.c",
            "-std=c89 -c a.c",
            "-ansi -c a.c",
            "-save-temps -c a.c",
            "-Wp,-DA -c a.c",
        ] {
            let words: Vec<Bytes> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            let is_known = Line::read(Compiler::Gcc, &words).is_ok();
            assert!(!is_known || !only_used(Compiler::Gcc, line), "{line}");
        }
        assert!(only_used(Compiler::Clang, "-O2 -g0 -c a.c"));
        assert!(!only_used(Compiler::Clang, "-O2 -g -c a.c"));
        assert!(!only_used(Compiler::Clang, "-gdwarf-4 -c a.c"));
    }
}
