//! Whether two checkouts can share what a command makes. Then the key leaves out the name of their folder, the base.
//!
//! If a compiler gets an absolute path, it may write the path into its output, or compute with it (`sizeof __FILE__`). So a
//! base is left out only if prefix maps replace it in everything that a compiler writes. Dependency files and diagnostics
//! remain. They are text, in which names can be replaced.

use super::language::Language;
use super::line::{Kind, Line, Word};
use super::options::{Map, Stage};
use super::outputs::{self, Prints};
use crate::observe::access::Bytes;

/// Stands for the base in a key. No argument contains a zero byte.
const TOKEN: &[u8] = b"\0base";

/// The rest of a path in a base.
fn inside<'a>(path: &'a [u8], base: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(base)?;
    (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

/// A base whose name has no special meaning for shells, makefiles and compilers.
fn is_plain(base: &[u8]) -> bool {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._-+@".contains(b);
    base.len() > 1 && base.starts_with(b"/") && !base.ends_with(b"/") && base.iter().all(plain)
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

/// Whether paths with this beginning are replaced there.
fn is_mapped(line: &Line, whose: Map, path: &[u8]) -> bool {
    let mut maps = maps(line).filter(|(map, _)| *map == whose || *map == Map::Both);
    maps.any(|(_, map)| old_part(map).is_some_and(|old| path.starts_with(old)))
}

/// Whether every map is either about something in the base, or about something completely different.
fn maps_are_clear(line: &Line, base: &[u8]) -> bool {
    maps(line).all(|(_, map)| {
        old_part(map).is_some_and(|old| inside(old, base).is_some() || !base.starts_with(old) && !old.starts_with(base))
    })
}

/// Whether the base matters for the command, and all paths in its output are mapped. The folder itself occurs only in debug
/// information.
fn is_shared(line: &Line, folder: &[u8], base: &[u8]) -> bool {
    let is_inside = |path: &[u8]| inside(path, base).is_some();
    let told = line
        .words
        .iter()
        .filter(|word| matches!(word.kind, Kind::Path | Kind::Source));
    let mut paths = told.map(|word| &word.operand[..]).filter(|path| is_inside(path));
    let concerns = maps(line).any(|(_, map)| old_part(map).is_some_and(is_inside));
    concerns
        && is_plain(base)
        && maps_are_clear(line, base)
        && paths.all(|path| is_mapped(line, Map::Debug, path) && is_mapped(line, Map::Macro, path))
        && (!is_inside(folder) || is_mapped(line, Map::Debug, folder))
}

/// The word with which a command can leave out the name of one of these folders, if what it makes would tell that name and
/// cannot be shared without the word. `tells_folder`: it would tell the folder in which it runs.
pub fn map(line: &Line, folder: &[u8], roots: &[Bytes], tells_folder: bool) -> Option<Bytes> {
    const OPTION: &[u8] = b"-ffile-prefix-map=";
    if base(line, folder, roots).is_some() || !matches!(line.stage, Stage::Object | Stage::Assembly) {
        return None;
    }
    let named = |root: &[u8]| {
        let mut paths = line
            .words
            .iter()
            .filter(|word| matches!(word.kind, Kind::Path | Kind::Source));
        paths.any(|word| inside(&word.operand, root).is_some()) || tells_folder && inside(folder, root).is_some()
    };
    roots.iter().filter(|root| named(root)).find_map(|root| {
        let operand = [root.as_slice(), b"=."].concat();
        let word = Word {
            option: OPTION.to_vec(),
            operand: operand.clone(),
            apart: false,
            kind: Kind::Map(Map::Both),
        };
        let mut mapped = line.clone();
        mapped.words.push(word);
        base(&mapped, folder, std::slice::from_ref(root)).map(|_| [OPTION, &operand].concat())
    })
}

/// The base that this command, run in `folder`, shares with others like it.
pub fn base<'a>(line: &Line, folder: &[u8], bases: &'a [Bytes]) -> Option<&'a [u8]> {
    // Not all drivers have mapped the paths that assemblers write. Names are replaced in messages, but not in printed
    // output.
    let is_printed = outputs::prints(line) != Prints::Messages;
    if line.language != Language::C || line.tells || line.is_bound() || is_printed {
        return None;
    }
    bases
        .iter()
        .map(|base| &base[..])
        .find(|base| is_shared(line, folder, base))
}

/// An operand in the form for the key.
pub fn tokened(word: &[u8], kind: Kind, base: Option<&[u8]>) -> Bytes {
    let rest = match (kind, base) {
        (Kind::Plain, _) | (_, None) => None,
        (Kind::Map(_), Some(base)) => word
            .strip_prefix(base)
            .filter(|rest| rest.starts_with(b"/") || rest.starts_with(b"=")),
        (_, Some(base)) => inside(word, base),
    };
    rest.map_or_else(|| word.to_vec(), |rest| [TOKEN, rest].concat())
}
