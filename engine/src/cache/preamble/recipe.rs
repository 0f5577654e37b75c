//! The command lines around a preamble: the one that makes it, those that show what its text leaves, and the compile that
//! begins after it.
//!
//! They have all options of the compile itself, in its own order: a precompiled header serves no compile with other ones.

use super::Refusal;
use crate::cache::compiler::elsewhere::{redirect, Names};
use crate::cache::compiler::language::Language;
use crate::cache::compiler::line::Line;
use crate::cache::compiler::options::{parts, Does, Stage};
use crate::cache::compiler::Compiler;
use crate::observe::access::Bytes;

/// The names of a preamble's files in its folder. A compile names the header, to which gcc adds its own ending.
pub const TEXT: &str = "text";
pub const HEADER: &str = "header";
pub const DEPENDENCIES: &str = "header.d";

/// Endings of sources that have a preamble, and the language of its text.
const LANGUAGES: [(&str, &str); 8] = [
    ("c", "c-header"),
    ("cc", "c++-header"),
    ("cp", "c++-header"),
    ("cpp", "c++-header"),
    ("cxx", "c++-header"),
    ("c++", "c++-header"),
    ("C", "c++-header"),
    ("CPP", "c++-header"),
];
/// Options that read other files first, or that do something in addition.
const REFUSED: [&str; 12] = [
    "-x",
    "--",
    "-include",
    "-imacros",
    "-Xclang",
    "-Xpreprocessor",
    "-fmodule",
    "-fplugin",
    "-fpch",
    "-fprofile",
    "-flto",
    "-pg",
];

/// A compile that may have a preamble.
pub struct Recipe<'a> {
    compiler: Compiler,
    /// The words after the program's own name, none of them a response file.
    words: &'a [Bytes],
    source: Bytes,
    language: &'static str,
}

impl<'a> Recipe<'a> {
    pub fn of(compiler: Compiler, words: &'a [Bytes]) -> Result<Recipe<'a>, Refusal> {
        let line = Line::read(compiler, words).map_err(|_| Refusal::Options)?;
        let source = line.source.clone();
        let ending = source.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
        let known = LANGUAGES.iter().find(|(known, _)| known.as_bytes() == ending);
        let (_, language) = known.ok_or(Refusal::Options)?;
        let is_plain = line.stage == Stage::Object
            && line.language == Language::C
            && !(line.has_others() || line.precompiles || line.linked_later || line.bitcode);
        let names_it_once = words.iter().filter(|word| **word == source).count() == 1;
        if !is_plain || !names_it_once || words.iter().any(|word| is_refused(word)) {
            return Err(Refusal::Options);
        }
        if tells_differently(compiler, words) {
            return Err(Refusal::DebugInformation);
        }
        Ok(Recipe {
            compiler,
            words,
            source,
            language,
        })
    }

    pub fn source(&self) -> &[u8] {
        &self.source
    }

    /// The header's own name for a file in its folder.
    pub fn file_of(&self, name: &[u8]) -> Bytes {
        match self.compiler {
            Compiler::Gcc => [name, b".gch"].concat(),
            Compiler::Clang => name.to_vec(),
        }
    }

    /// Makes a precompiled header of `text`, a file.
    pub fn making(&self, text: &[u8], to: &Names) -> Option<Vec<Bytes>> {
        let mut words = self.with_text(text, to)?;
        if self.compiler == Compiler::Clang {
            // Files are compared by their content, as facts.
            words.extend([b"-Xclang".to_vec(), b"-fno-pch-timestamp".to_vec()]);
        }
        Some(words)
    }

    /// Has the preprocessor tell what the source itself leaves.
    pub fn checking_source(&self, to: &Names) -> Option<Vec<Bytes>> {
        let mut words = redirect(self.compiler, self.words, to)?;
        words.push(b"-E".to_vec());
        Some(words)
    }

    /// Has the preprocessor tell what `text` leaves, and each macro that it defines.
    pub fn checking(&self, text: &[u8], to: &Names) -> Option<Vec<Bytes>> {
        let mut words = self.with_text(text, to)?;
        words.extend([b"-E".to_vec(), b"-dD".to_vec()]);
        Some(words)
    }

    /// What this compile has in common with others that may share its preamble: all of the command line but the source, and
    /// the names of outputs.
    pub fn common(&self) -> Option<Vec<Bytes>> {
        let to = Names {
            main: HEADER.as_bytes().to_vec(),
            dependencies: Some(DEPENDENCIES.as_bytes().to_vec()),
        };
        let words = redirect(self.compiler, self.words, &to)?;
        let mut common = self.quotes();
        common.push(self.language.as_bytes().to_vec());
        for part in parts(self.compiler, &words)? {
            let is_source = part.known.is_none() && part.words[0] == self.source;
            if !is_source && part.does() != Some(Does::DependencyTarget) {
                common.extend_from_slice(part.words);
            }
        }
        Some(common)
    }

    fn with_text(&self, text: &[u8], to: &Names) -> Option<Vec<Bytes>> {
        let words = redirect(self.compiler, self.words, to)?;
        let mut with_text = self.quotes();
        for word in words {
            match word == self.source {
                false => with_text.push(word),
                true => with_text.extend([b"-x".to_vec(), self.language.as_bytes().to_vec(), text.to_vec()]),
            }
        }
        Some(with_text)
    }

    /// Where includes in quotes are searched first: beside the source, and by the same name as there.
    fn quotes(&self) -> Vec<Bytes> {
        let slash = self.source.iter().rposition(|byte| *byte == b'/');
        let folder = slash.map_or(&b"."[..], |at| &self.source[..at.max(1)]);
        vec![b"-iquote".to_vec(), folder.to_vec()]
    }
}

/// The words that let a compile begin after the header of this name. They come before all others.
pub fn beginning(compiler: Compiler, name: &[u8]) -> [Bytes; 2] {
    let option: &[u8] = match compiler {
        Compiler::Gcc => b"-include",
        Compiler::Clang => b"-include-pch",
    };
    [option.to_vec(), name.to_vec()]
}

fn is_refused(word: &[u8]) -> bool {
    let is_through = word.starts_with(b"-Wp,") && !word.starts_with(b"-Wp,-MD,") && !word.starts_with(b"-Wp,-MMD,");
    is_through || REFUSED.iter().any(|refused| word.starts_with(refused.as_bytes()))
}

/// Compilers that are known to write other debug information after a precompiled header: clang always, gcc about places of
/// variables in optimized code, and about macros.
fn tells_differently(compiler: Compiler, words: &[Bytes]) -> bool {
    let debug: Vec<&[u8]> = words.iter().filter_map(|word| word.strip_prefix(b"-g")).collect();
    let tells = debug.iter().any(|level| *level != b"0");
    let optimizes = words.iter().filter_map(|word| word.strip_prefix(b"-O")).next_back();
    match compiler {
        Compiler::Clang => tells,
        Compiler::Gcc => {
            tells && (optimizes.is_some_and(|level| level != b"0") || debug.iter().any(|level| level.ends_with(b"3")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Bytes> {
        line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    fn show(words: &[Bytes]) -> String {
        let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
        words.join(" ")
    }

    #[test]
    fn the_header_has_all_options_of_the_compile() {
        let line = words("-O2 -Iinc -MD -MT x -c src/a.cc -o a.o");
        let names = Names {
            main: b"/p/h.gch".to_vec(),
            dependencies: Some(b"/p/h.d".to_vec()),
        };
        let recipe = Recipe::of(Compiler::Gcc, &line).unwrap_or_else(|why| panic!("{why:?}"));
        let making = recipe.making(b"/p/h", &names).unwrap();
        let expected = "-iquote src -o /p/h.gch -MF /p/h.d -O2 -Iinc -MD -MT x -c -x c++-header /p/h";
        assert_eq!(show(&making), expected);
        let checking = recipe.checking(b"/p/h", &names).unwrap();
        assert_eq!(show(&checking), format!("{expected} -E -dD"));
        let of_clang = Recipe::of(Compiler::Clang, &line).unwrap_or_else(|why| panic!("{why:?}"));
        let making = of_clang.making(b"/p/h", &names).unwrap();
        assert_eq!(show(&making), format!("{expected} -Xclang -fno-pch-timestamp"));
        assert_eq!(show(&beginning(Compiler::Gcc, b"/p/h")), "-include /p/h");
        assert_eq!(show(&beginning(Compiler::Clang, b"/p/h")), "-include-pch /p/h");
    }

    #[test]
    fn compiles_have_all_but_names_of_sources_and_outputs_in_common() {
        let common = |line: &str| {
            let line = words(line);
            let recipe = Recipe::of(Compiler::Gcc, &line).unwrap_or_else(|why| panic!("{why:?}"));
            show(&recipe.common().unwrap())
        };
        let one = common("-O2 -D -MT -MD -MT a.o -MF a.d -c src/a.cc -o a.o");
        assert_eq!(one, "-iquote src c++-header -o header -MF header.d -O2 -D -MT -MD -c");
        assert_eq!(one, common("-O2 -D -MT -MD -MQx.o -MF x.d -c src/b.cc -o x.o"));
        for other in [
            "-O2 -D -MT -MD -c lib/a.cc",
            "-O2 -D -MT -MD -c src/a.c",
            "-O1 -D -MT -MD -c src/a.cc",
            "-O2 -D A -MD -c src/a.cc",
        ] {
            assert_ne!(one, common(other), "{other}");
        }
    }

    #[test]
    fn a_compile_that_does_more_has_no_preamble() {
        for (line, refusal) in [
            ("-O2 -c a.cc", None),
            ("-O0 -g -c a.c", None),
            ("-g -c a.c", None),
            ("-O2 -g -g0 -c a.cc", Some(Refusal::DebugInformation)),
            ("-O2 -g -c a.cc", Some(Refusal::DebugInformation)),
            ("-g3 -c a.cc", Some(Refusal::DebugInformation)),
            ("-x c++ -c a.cc", Some(Refusal::Options)),
            ("-c a.i", Some(Refusal::Options)),
            ("-c a.S", Some(Refusal::Options)),
            ("-S a.c", Some(Refusal::Options)),
            ("-include config.h -c a.c", Some(Refusal::Options)),
            ("-save-temps -c a.c", Some(Refusal::Options)),
            ("-flto -c a.c", Some(Refusal::Options)),
            ("-Wp,-D,X -c a.c", Some(Refusal::Options)),
        ] {
            let words = words(line);
            assert_eq!(Recipe::of(Compiler::Gcc, &words).err(), refusal, "{line}");
        }
        let words = words("-g -c a.c");
        assert_eq!(
            Recipe::of(Compiler::Clang, &words).err(),
            Some(Refusal::DebugInformation)
        );
    }
}
