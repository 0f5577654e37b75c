//! Whether checkouts can share what a command makes. Then the key leaves out the names of their folders, the bases.
//!
//! If a compiler gets an absolute path, it may write the path into its output, or compute with it (`sizeof __FILE__`). So a
//! base is left out only if prefix maps replace it in everything that a compiler writes. Dependency files and diagnostics
//! remain. They are text, in which names can be replaced.
//!
//! A compiler compares prefixes as texts, not as paths: a map of `/w` also changes `/work/x.h`. So how the names of bases begin
//! counts, too.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use memchr::memmem;

use super::language::Language;
use super::line::{Kind, Line, Word};
use super::neutral;
use super::options::{Map, Stage};
use super::outputs::{self, Prints};
use crate::bytes::path_text;
use crate::facts::path::{is_beside, lexically_normal, MOST_BASES};
use crate::observe::access::Bytes;

/// Results of a command with such a word may contain names in a form that a search does not find.
const HIDING: [&[u8]; 2] = [b"compress", b"-gz"];
/// Stands for a base in a key, before its number. No argument contains a zero byte.
const TOKEN: &[u8] = b"\0base";
/// Maps prefixes in everything that a compiler writes.
pub const OPTION: &[u8] = b"-ffile-prefix-map=";

/// A folder that commands may leave out of what they make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Absolute, without a slash at its end.
    pub folder: Bytes,
    /// What results have in its place.
    pub replacement: Bytes,
}

/// The rest of a path in a base.
pub fn inside<'a>(path: &'a [u8], base: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(base)?;
    (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

/// The innermost base of a path: its number, and the rest of the path.
fn innermost<'a>(path: &'a [u8], bases: &[Bytes]) -> Option<(usize, &'a [u8])> {
    let bases = bases.iter().enumerate();
    let around = bases.filter_map(|(number, base)| Some((number, inside(path, base)?)));
    around.min_by_key(|(_, rest)| rest.len())
}

fn is_plain(base: &[u8]) -> bool {
    path_text::is_plain(base) && !neutral::has_placeholder(base)
}

/// Whether a search finds the name of this folder in what a command makes.
pub fn can_be_searched_for(folder: &[u8], argv: &[&[u8]]) -> bool {
    let hides = |word: &&[u8]| HIDING.iter().any(|part| memmem::find(word, part).is_some());
    // Programs may write the real name, and put something before a blank.
    let is_real =
        || fs::canonicalize(OsStr::from_bytes(folder)).is_ok_and(|real| real.as_os_str().as_bytes() == folder);
    is_plain(folder) && !folder.contains(&b' ') && !argv.iter().any(hides) && is_real()
}

fn old_part(map: &[u8]) -> Option<&[u8]> {
    // Some versions of gcc use the last equals sign, and others the first.
    let at = map.iter().position(|b| *b == b'=')?;
    (!map[at + 1..].contains(&b'=')).then(|| &map[..at])
}

fn maps(line: &Line) -> impl Iterator<Item = (Map, &[u8])> {
    line.words.iter().filter_map(|word| match word.kind {
        Kind::Map(map) => Some((map, &word.operand[..])),
        _ => None,
    })
}

/// The paths that a compiler may write.
fn paths(line: &Line) -> impl Iterator<Item = &[u8]> {
    let told = line
        .words
        .iter()
        .filter(|word| matches!(word.kind, Kind::Path | Kind::Source));
    told.map(|word| &word.operand[..])
}

/// Whether paths with this beginning are replaced there.
fn is_mapped(line: &Line, whose: Map, path: &[u8]) -> bool {
    let mut maps = maps(line).filter(|(map, _)| *map == whose || *map == Map::Both);
    maps.any(|(_, map)| old_part(map).is_some_and(|old| path.starts_with(old)))
}

/// Whether every map is either about something in a base, or about something completely different.
fn maps_are_clear(line: &Line, bases: &[Bytes]) -> bool {
    let is_apart = |old: &[u8]| {
        let mut bases = bases.iter();
        bases.all(|base| !base.starts_with(old) && !old.starts_with(base))
    };
    maps(line).all(|(_, map)| old_part(map).is_some_and(|old| innermost(old, bases).is_some() || is_apart(old)))
}

/// Makefiles have blanks in quotes. Of the names of targets, some are written without.
fn is_target_clear(line: &Line, base: &[u8]) -> bool {
    let mut targets = line.words.iter().filter(|word| word.kind == Kind::Target);
    !base.contains(&b' ') || targets.all(|word| !neutral::holds(&word.operand, base))
}

/// Whether the command has a map of a path in this one of the folders.
fn has_map(line: &Line, folders: &[Bytes], number: usize) -> bool {
    let is_in = |old: &[u8]| innermost(old, folders).is_some_and(|(known, _)| known == number);
    maps(line).any(|(_, map)| old_part(map).is_some_and(is_in))
}

/// Whether each base matters for the command, and all paths in its output are mapped. The folder itself occurs only in debug
/// information.
fn are_shared(line: &Line, folder: &[u8], bases: &[Bytes]) -> bool {
    let is_inside = |path: &[u8]| innermost(path, bases).is_some();
    let is_left_out = |path: &[u8]| is_mapped(line, Map::Debug, path) && is_mapped(line, Map::Macro, path);
    (0..bases.len()).all(|number| has_map(line, bases, number))
        && !(line.precompiles && paths(line).any(is_inside))
        && bases.iter().all(|base| is_plain(base) && is_target_clear(line, base))
        && maps_are_clear(line, bases)
        && !is_beside(folder, bases)
        && paths(line).all(|path| !is_beside(path, bases) && (!is_inside(path) || is_left_out(path)))
        && (!is_inside(folder) || is_mapped(line, Map::Debug, folder))
}

/// The words with which a command can leave out the names of these folders, if what it makes would tell those names and
/// cannot be shared without the words. `tells_folder`: it would tell the folder in which it runs.
///
/// A precompiled header that names these folders gets the words, too. It cannot be shared, but what it defines is in the
/// results of its users.
///
/// A folder in another one has the stronger map.
pub fn missing_maps(line: &Line, folder: &[u8], roots: &[Root], tells_folder: bool) -> Vec<Bytes> {
    let is_header = line.precompiles && !line.has_others() && !line.tells;
    if !(is_header || can_be_shared(line)) || !matches!(line.stage, Stage::Object | Stage::Assembly) {
        return Vec::new();
    }
    let folders: Vec<Bytes> = roots.iter().map(|root| root.folder.clone()).collect();
    let told = (tells_folder && !is_header).then_some(folder);
    let mut named: Vec<usize> = paths(line)
        .chain(told)
        .filter_map(|path| innermost(path, &folders))
        .map(|(number, _)| number)
        .collect();
    if named.is_empty() {
        return Vec::new();
    }
    named.sort_unstable();
    named.dedup();
    let known = bases(line, folder, &folders);
    named.retain(|number| !known.contains(&folders[*number]));
    let with = |numbers: &[usize]| {
        let mut mapped = line.clone();
        mapped.words.extend(numbers.iter().map(|number| map(&roots[*number])));
        let bases = bases(&mapped, folder, &folders);
        numbers.iter().all(|number| bases.contains(&folders[*number]))
    };
    let mut chosen = match with(&named) {
        true => named,
        // A map would change the name of something else.
        false if is_header && paths(line).any(|path| is_beside(path, &folders)) => Vec::new(),
        false if is_header => {
            named.retain(|number| is_plain(&folders[*number]) && !has_map(line, &folders, *number));
            named
        }
        // Some of them cannot be left out.
        false => named.iter().fold(Vec::new(), |mut chosen, number| {
            chosen.push(*number);
            if !with(&chosen) {
                chosen.pop();
            }
            chosen
        }),
    };
    let begins = |number: usize| {
        let others = chosen.iter().filter(|other| **other != number);
        others
            .filter(|other| folders[number].starts_with(&folders[**other]))
            .count()
    };
    let depths: Vec<usize> = (0..roots.len()).map(begins).collect();
    chosen.sort_by_key(|number| depths[*number]);
    let words = chosen.into_iter().map(|number| map(&roots[number]));
    words.map(|word| [word.option, word.operand].concat()).collect()
}

fn map(root: &Root) -> Word {
    Word {
        option: OPTION.to_vec(),
        operand: [&root.folder[..], b"=", &root.replacement].concat(),
        apart: false,
        kind: Kind::Map(Map::Both),
    }
}

/// Whether the assembler is the one to which the compiler is known to pass its maps. A variable may name another one, which
/// ignores them. So a name that is left in the object must be found there: it must not be compressed.
fn is_assembled_by_own(line: &Line) -> bool {
    let is_about = |word: &Word| {
        let word = [&word.option[..], &word.operand].concat();
        let holds = |part: &[u8]| memmem::find(&word, part).is_some();
        holds(b"integrated-as") || holds(b"compress") || word.starts_with(b"-B") || word.starts_with(b"-gz")
    };
    line.stage == Stage::Object && !line.words.iter().any(is_about)
}

/// Whether what the command makes is known well enough.
fn can_be_shared(line: &Line) -> bool {
    // Names are replaced in messages, but not in printed output.
    let is_printed = outputs::prints(line) != Prints::Messages;
    let is_compiled = line.language == Language::C || line.language.is_assembler() && is_assembled_by_own(line);
    let is_mapped = is_compiled && !line.is_bound() || line.is_header_of_gcc();
    is_mapped && !line.tells && !is_printed
}

/// The bases that this command, run in `folder`, shares with others like it, in the order in which they were given.
pub fn bases(line: &Line, folder: &[u8], given: &[Bytes]) -> Vec<Bytes> {
    if given.is_empty() || !can_be_shared(line) {
        return Vec::new();
    }
    let mut concerned: Vec<Bytes> = Vec::new();
    for base in given {
        let mut maps = maps(line).filter_map(|(_, map)| innermost(old_part(map)?, given));
        let is_new = !concerned.contains(base) && concerned.len() < MOST_BASES;
        if is_new && maps.any(|(number, _)| given[number] == *base) {
            concerned.push(base.clone());
        }
    }
    if concerned.is_empty() || are_shared(line, folder, &concerned) {
        return concerned;
    }
    let mut bases: Vec<Bytes> = Vec::new();
    for base in concerned {
        bases.push(base);
        if !are_shared(line, folder, &bases) {
            bases.pop();
        }
    }
    bases
}

/// Whether the word may be a map, or may hold some: it names a file of further words.
pub fn may_map(word: &[u8]) -> bool {
    word.starts_with(b"@") || memmem::find(word, b"-prefix-map=").is_some()
}

/// The folders for which the command line has maps, in its order.
pub fn mapped_folders(line: &Line) -> Vec<Bytes> {
    let mut folders: Vec<Bytes> = Vec::new();
    for (_, map) in maps(line) {
        let folder = old_part(map).map_or(&[][..], |old| old.strip_suffix(b"/").unwrap_or(old));
        let is_folder = folder.starts_with(b"/") && lexically_normal(folder) == folder;
        if is_folder && !folders.iter().any(|known| known == folder) {
            folders.push(folder.to_vec());
        }
    }
    folders
}

/// How the names of bases begin with each other, which decides which map a path gets. Bases that do not are not in the list.
pub fn nesting(bases: &[Bytes]) -> Vec<Bytes> {
    let mut nesting = Vec::new();
    for (outer, beginning) in bases.iter().enumerate() {
        for (inner, base) in bases.iter().enumerate().filter(|(inner, _)| *inner != outer) {
            let rest = base.strip_prefix(&beginning[..]);
            nesting.extend(rest.map(|rest| [&[outer as u8, inner as u8][..], rest].concat()));
        }
    }
    nesting
}

/// An operand in the form for the key.
pub fn tokened(word: &[u8], kind: Kind, bases: &[Bytes]) -> Bytes {
    let found = match kind {
        Kind::Plain => None,
        Kind::Map(_) => old_part(word).and_then(|old| {
            let (number, _) = innermost(old, bases)?;
            Some((number, &word[bases[number].len()..]))
        }),
        _ => innermost(word, bases),
    };
    found.map_or_else(
        || word.to_vec(),
        |(number, rest)| [TOKEN, &[b'0' + number as u8], rest].concat(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::compiler::Compiler;

    fn line(words: &str) -> Line {
        let words: Vec<Bytes> = words
            .split(' ')
            .map(|word| word.replace('_', " ").into_bytes())
            .collect();
        Line::read(Compiler::Gcc, &words).unwrap()
    }

    fn roots(folders: &[&str]) -> Vec<Root> {
        let replacements = [".", ".2", ".3"];
        let root = |(folder, replacement): (&&str, &str)| Root {
            folder: folder.as_bytes().to_vec(),
            replacement: replacement.as_bytes().to_vec(),
        };
        folders.iter().zip(replacements).map(root).collect()
    }

    fn added(words: &str, folder: &str, folders: &[&str]) -> String {
        let added = missing_maps(&line(words), folder.as_bytes(), &roots(folders), words.contains("-g"));
        let added: Vec<_> = added.iter().map(|word| String::from_utf8_lossy(word)).collect();
        added.join(" ").replace("-ffile-prefix-map=", "")
    }

    #[test]
    fn a_command_gets_a_map_for_each_folder_that_it_names() {
        for (words, folder, folders, expected) in [
            ("-c /a/x.c", "/b", &["/a", "/b"][..], "/a=."),
            ("-g -c /a/x.c", "/b", &["/a", "/b"], "/a=. /b=.2"),
            ("-g -c /a/x.c", "/a/b", &["/a/b", "/a"], "/a=.2 /a/b=."),
            ("-g -c /a/x.c", "/a/b", &["/a", "/a/b"], "/a=. /a/b=.2"),
            ("-c ../x.c", "/b", &["/a", "/b"], ""),
            ("-c /a/x.c", "/b", &["/", "/a"], "/a=.2"),
            ("-c -I/a=b/inc /a/x.c", "/b", &["/a=b", "/c"], ""),
            ("-c -ffile-prefix-map=/a=A /a/x.c", "/b", &["/a", "/b"], ""),
            ("-g -c -ffile-prefix-map=/a=A /a/x.c", "/b", &["/a", "/b"], "/b=.2"),
            ("-flto -c /a/x.c", "/b", &["/a"], ""),
            ("-g -c /a/x.S", "/b", &["/a"], "/a=."),
            ("-g -gz -c /a/x.S", "/b", &["/a"], ""),
            ("-g -Wa,--compress-debug-sections -c /a/x.S", "/b", &["/a"], ""),
            ("-g -Bbin -c /a/x.S", "/b", &["/a"], ""),
            ("-x c-header /a/x.h", "/a", &["/a"], "/a=."),
            (
                "-g -x c-header -include /a/x.h /b/x.c",
                "/a",
                &["/a", "/b"],
                "/a=. /b=.2",
            ),
            ("-x c-header -ffile-prefix-map=/a=A /a/x.h", "/a", &["/a"], ""),
            ("-x c-header -I/ab /a/x.h", "/a", &["/a"], ""),
            ("-g -x c-header x.h", "/a", &["/a"], ""),
            ("-flto -x c-header /a/x.h", "/a", &["/a"], ""),
            ("-c /a_b/x.c", "/b", &["/a b"], "/a b=."),
            ("-c -MD -MT x.o /a_b/x.c", "/b", &["/a b"], "/a b=."),
            ("-c -MD -MT /a_b/x.o /a_b/x.c", "/b", &["/a b"], ""),
        ] {
            assert_eq!(added(words, folder, folders), expected, "{words} in {folder}");
        }
    }

    #[test]
    fn a_header_of_gcc_with_relative_names_is_shared_and_no_other_one() {
        let shared = |words: &str| {
            let words = format!("-g -x c-header -ffile-prefix-map=/a=. {words}");
            !bases(&line(&words), b"/a", &[b"/a".to_vec()]).is_empty()
        };
        assert!(shared("-Iinc x.h"));
        assert!(shared("-MD -MF /a/x.d -o /a/x.h.gch -I/b x.h"));
        for words in [
            "/a/x.h",
            "-I/a/inc x.h",
            "-include /a/x.h y.h",
            "--coverage x.h",
            "-flto x.h",
        ] {
            assert!(!shared(words), "{words}");
        }
        let words = [&b"-x"[..], b"c-header", b"-ffile-prefix-map=/a=.", b"x.h"].map(<[u8]>::to_vec);
        let of_clang = Line::read(Compiler::Clang, &words).unwrap();
        assert!(bases(&of_clang, b"/a", &[b"/a".to_vec()]).is_empty());
    }

    #[test]
    fn a_path_that_only_begins_with_the_name_of_a_base_would_be_changed_by_its_map() {
        assert_eq!(added("-c -I/a/inc /a/x.c", "/b", &["/a"]), "/a=.");
        assert_eq!(added("-c -I/ab/inc /a/x.c", "/b", &["/a"]), "");
        assert_eq!(added("-c /a/x.c", "/ab", &["/a"]), "");
        assert_eq!(added("-c -I/ab/inc /a/x.c", "/b", &["/a", "/ab"]), "/a=. /ab=.2");
    }

    #[test]
    fn a_key_tells_bases_apart_and_how_they_are_nested() {
        let bases = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>();
        let two = bases(&["/a", "/b"]);
        let tokened = |word: &str, kind| tokened(word.as_bytes(), kind, &two);
        assert_eq!(tokened("/a/x", Kind::Path), b"\0base0/x");
        assert_eq!(tokened("/b", Kind::Path), b"\0base1");
        assert_eq!(tokened("/ba", Kind::Path), b"/ba");
        assert_eq!(tokened("/b=.2", Kind::Map(Map::Both)), b"\0base1=.2");
        assert_eq!(tokened("/a/x=y", Kind::Map(Map::Both)), b"\0base0/x=y");
        assert_eq!(tokened("/a/x", Kind::Plain), b"/a/x");
        assert!(nesting(&two).is_empty());
        assert_eq!(nesting(&bases(&["/a", "/a/b"])), [b"\0\x01/b"]);
        assert_eq!(nesting(&bases(&["/a/b", "/a"])), [b"\x01\0/b"]);
        assert_eq!(nesting(&bases(&["/a", "/ab"])), [b"\0\x01b"]);
    }
}
