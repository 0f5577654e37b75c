//! Texts in which placeholders stand for the base folders. They are stored in this form, and each checkout's text is made
//! from it.
//!
//! Pure. A text that cannot be restored exactly is not stored.

use memchr::memmem;

use super::relocation::{self, Move};
use super::Compiler;
use crate::observe::access::Bytes;

/// The beginning of a placeholder, which has the form of a base's name. Two digits follow, so that no placeholder is the
/// beginning of another one.
const BASE: &str = "/wafcc-base-folder-";

/// A placeholder for the name of an output.
const TARGET: &[u8] = b"wafcc-target.o";

/// A dependency file with no name of an output.
pub fn without_target(text: &[u8], compiler: Compiler, target: &[u8]) -> Option<Bytes> {
    let neutral = relocation::retargeted(text, compiler, target, TARGET)?;
    let back = relocation::retargeted(&neutral, compiler, TARGET, target)?;
    (back == text).then_some(neutral)
}

pub fn with_target(text: &[u8], compiler: Compiler, target: &[u8]) -> Option<Bytes> {
    relocation::retargeted(text, compiler, TARGET, target)
}

/// Whether bytes contain a name.
pub fn holds(bytes: &[u8], name: &[u8]) -> bool {
    memmem::find(bytes, name).is_some()
}

pub fn has_placeholder(text: &[u8]) -> bool {
    holds(text, BASE.as_bytes())
}

/// The form of a dependency file for the store.
pub fn dependencies(text: &[u8], compiler: Compiler, bases: &[Bytes]) -> Option<Bytes> {
    let moved = |text: &[u8], moves: &[Move]| relocation::dependencies(text, compiler, moves);
    let neutral = neutral(text, moved, &quoted(bases))?;
    // A target that was given with `-MT` is written without quotes.
    let mut unquoted = bases.iter().filter(|base| base.contains(&b' '));
    let is_left = unquoted.any(|base| holds(&neutral, base));
    (!is_left).then_some(neutral)
}

/// The form of a compiler's messages for the store.
pub fn diagnostics(text: &[u8], bases: &[Bytes]) -> Option<Bytes> {
    neutral(text, relocation::diagnostics, bases)
}

/// A stored dependency file in the form for this checkout.
pub fn own_dependencies(text: &[u8], compiler: Compiler, bases: &[Bytes]) -> Option<Bytes> {
    let (bases, placeholders) = (quoted(bases), placeholders(bases));
    relocation::dependencies(text, compiler, &moves(&placeholders, &bases))
}

pub fn own_diagnostics(text: &[u8], bases: &[Bytes]) -> Option<Bytes> {
    relocation::diagnostics(text, &moves(&placeholders(bases), bases))
}

/// The form for the store of a text in which the names of bases may be anywhere, and whether one is where no path begins.
/// `begins` tells by what is before a path whether it may begin there. None if the text could not be restored.
pub fn everywhere(text: &[u8], bases: &[Bytes], begins: impl Fn(&[u8]) -> bool) -> Option<(Bytes, bool)> {
    if has_placeholder(text) {
        return None;
    }
    let placeholders = placeholders(bases);
    let mut tells = false;
    let known = |before: &[u8], after: &[u8]| tells |= !(begins(before) && after.starts_with(b"/"));
    let neutral = relocation::everywhere(text, &moves(bases, &placeholders), known);
    Some((neutral, tells))
}

/// A stored text of this kind in the form for this checkout.
pub fn own_everywhere(text: &[u8], bases: &[Bytes]) -> Bytes {
    relocation::everywhere(text, &moves(&placeholders(bases), bases), |_, _| {})
}

fn placeholders(bases: &[Bytes]) -> Vec<Bytes> {
    let named = |number: usize| format!("{BASE}{number:02}").into_bytes();
    (0..bases.len()).map(named).collect()
}

fn moves<'a>(from: &'a [Bytes], to: &'a [Bytes]) -> Vec<Move<'a>> {
    from.iter()
        .map(Vec::as_slice)
        .zip(to.iter().map(Vec::as_slice))
        .collect()
}

/// The names as makefiles have them. Of the characters of a base, only a blank needs a quote.
fn quoted(bases: &[Bytes]) -> Vec<Bytes> {
    let quote = |base: &Bytes| {
        let parts: Vec<&[u8]> = base.split(|byte| *byte == b' ').collect();
        parts.join(&br"\ "[..])
    };
    bases.iter().map(quote).collect()
}

fn neutral(text: &[u8], moved: impl Fn(&[u8], &[Move]) -> Option<Bytes>, bases: &[Bytes]) -> Option<Bytes> {
    if has_placeholder(text) {
        return None;
    }
    let placeholders = placeholders(bases);
    let neutral = moved(text, &moves(bases, &placeholders))?;
    let back = moved(&neutral, &moves(&placeholders, bases))?;
    (back == text).then_some(neutral)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bases(names: &[&str]) -> Vec<Bytes> {
        names.iter().map(|name| name.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_stored_text_gets_the_paths_of_another_checkout() {
        let (here, there) = (bases(&["/one", "/tmp/b"]), bases(&["/two", "/one/build"]));
        let text = b"a.o: /one/src/a.c /tmp/b/a.h /usr/include/stdio.h\n";
        let stored = dependencies(text, Compiler::Gcc, &here).unwrap();
        assert!(!holds(&stored, b"/one") && !holds(&stored, b"/tmp"));
        let other = own_dependencies(&stored, Compiler::Gcc, &there).unwrap();
        assert_eq!(other, b"a.o: /two/src/a.c /one/build/a.h /usr/include/stdio.h\n");
        let said = diagnostics(b"/one/a.c:1:1: warning: x\n/tmp/b/a.h:1: x\n", &here).unwrap();
        assert_eq!(
            own_diagnostics(&said, &there).unwrap(),
            b"/two/a.c:1:1: warning: x\n/one/build/a.h:1: x\n"
        );
    }

    #[test]
    fn a_base_with_a_blank_is_in_quotes_in_dependency_files_and_nowhere_else() {
        let (here, there) = (bases(&["/my one"]), bases(&["/another one of mine"]));
        let text = br"a.o: /my\ one/a.c /my\ one/a\ b.h
";
        let stored = dependencies(text, Compiler::Gcc, &here).unwrap();
        assert!(!holds(&stored, b"one"));
        assert_eq!(dependencies(text, Compiler::Gcc, &there).unwrap(), text);
        let other = own_dependencies(&stored, Compiler::Gcc, &there).unwrap();
        let expected = br"a.o: /another\ one\ of\ mine/a.c /another\ one\ of\ mine/a\ b.h
";
        assert_eq!(String::from_utf8_lossy(&other), String::from_utf8_lossy(expected));
        let said = diagnostics(b"/my one/a.c:1: x\n", &here).unwrap();
        assert_eq!(
            own_diagnostics(&said, &there).unwrap(),
            b"/another one of mine/a.c:1: x\n"
        );
        assert_eq!(dependencies(b"/my one/a.o: a.c\n", Compiler::Gcc, &here), None);
    }

    #[test]
    fn a_stored_dependency_file_gets_the_name_of_another_output() {
        let text = b"out/one/a.o: src/a.c inc/a.h\n\ninc/a.h:\n";
        let stored = without_target(text, Compiler::Gcc, b"out/one/a.o").unwrap();
        let other = with_target(&stored, Compiler::Gcc, b"b.o").unwrap();
        assert_eq!(other, b"b.o: src/a.c inc/a.h\n\ninc/a.h:\n");
        assert_eq!(without_target(text, Compiler::Gcc, b"a.o"), None);
        assert_eq!(without_target(b"a.o: a.o\n", Compiler::Gcc, b"a.o"), None);
    }

    #[test]
    fn a_text_that_could_not_be_restored_is_refused() {
        let one = bases(&["/one"]);
        assert_eq!(diagnostics(b"/wafcc-base-folder-00/a.c:1: x\n", &one), None);
        assert_eq!(diagnostics(b"a macro has /one in it\n", &one), None);
        assert_eq!(diagnostics(b"", &one).unwrap(), b"");
    }
}
