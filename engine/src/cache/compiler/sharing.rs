//! Whether two checkouts can share what a command makes: then the name of the folder that they lie in, the base, is left
//! out of the key.
//!
//! A compiler that is given an absolute path may put it into its output, or compute with it (`sizeof __FILE__`). So a
//! base is only left out where prefix maps replace it in all that a compiler would write; what is left then, dependency
//! files and diagnostics, is text, in which names can be replaced.

use super::language::Language;
use super::line::{Kind, Line};
use super::options::Map;
use crate::observe::access::Bytes;

/// Stands for the base in a key; no argument holds a zero byte.
const TOKEN: &[u8] = b"\0base";

/// How a path begins that lies in a base.
fn inside<'a>(path: &'a [u8], base: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(base)?;
    (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

/// A base whose name means nothing special to shells, makefiles and compilers.
fn is_plain(base: &[u8]) -> bool {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._-+@".contains(b);
    base.len() > 1 && base.starts_with(b"/") && !base.ends_with(b"/") && base.iter().all(plain)
}

fn old_part(map: &[u8]) -> Option<&[u8]> {
    // gcc takes the last equals sign in some versions, and the first in others.
    let at = map.iter().position(|b| *b == b'=')?;
    (!map[at + 1..].contains(&b'=')).then(|| &map[..at])
}

fn maps(line: &Line) -> impl Iterator<Item = (Map, &[u8])> {
    line.words.iter().filter_map(|word| match word.kind {
        Kind::Map(map) => Some((map, &word.operand[..])),
        _ => None,
    })
}

/// Whether paths that begin with this one are replaced there.
fn is_mapped(line: &Line, whose: Map, path: &[u8]) -> bool {
    let mut maps = maps(line).filter(|(map, _)| *map == whose || *map == Map::Both);
    maps.any(|(_, map)| old_part(map).is_some_and(|old| path.starts_with(old)))
}

/// Whether every map is of something in the base, or of something else altogether.
fn maps_are_clear(line: &Line, base: &[u8]) -> bool {
    maps(line).all(|(_, map)| {
        old_part(map).is_some_and(|old| inside(old, base).is_some() || !base.starts_with(old) && !old.starts_with(base))
    })
}

/// Whether the command has to do with this base, and all that a compiler could tell of it is mapped. The folder itself
/// is only told in debug information.
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

/// The base that this command, run in `folder`, shares with others like it.
pub fn base<'a>(line: &Line, folder: &[u8], bases: &'a [Bytes]) -> Option<&'a [u8]> {
    // What assemblers tell of paths not all drivers have mapped.
    if line.language != Language::C
        || line.tells
        || line.binds
        || line.precompiles
        || !line.sides.is_empty()
        || !line.named.is_empty()
    {
        return None;
    }
    bases
        .iter()
        .map(|base| &base[..])
        .find(|base| is_shared(line, folder, base))
}

/// An operand as the key has it.
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
