//! Texts in which a placeholder stands for the base folder. They are stored in this form, and each checkout's text is made
//! from it.
//!
//! Pure. A text that cannot be restored exactly is not stored.

use super::relocation;
use super::Compiler;
use crate::observe::access::Bytes;

/// A placeholder with the form of a base's name.
const BASE: &[u8] = b"/wafcc-base-folder";

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
    bytes.windows(name.len().max(1)).any(|part| part == name)
}

/// The form of a dependency file for the store.
pub fn dependencies(text: &[u8], compiler: Compiler, base: &[u8]) -> Option<Bytes> {
    neutral(
        text,
        |text, from, to| relocation::dependencies(text, compiler, from, to),
        base,
    )
}

/// The form of a compiler's messages for the store.
pub fn diagnostics(text: &[u8], base: &[u8]) -> Option<Bytes> {
    neutral(text, relocation::diagnostics, base)
}

/// A stored dependency file in the form for this checkout.
pub fn own_dependencies(text: &[u8], compiler: Compiler, base: &[u8]) -> Option<Bytes> {
    relocation::dependencies(text, compiler, BASE, base)
}

pub fn own_diagnostics(text: &[u8], base: &[u8]) -> Option<Bytes> {
    relocation::diagnostics(text, BASE, base)
}

fn neutral(text: &[u8], moved: impl Fn(&[u8], &[u8], &[u8]) -> Option<Bytes>, base: &[u8]) -> Option<Bytes> {
    if holds(text, BASE) {
        return None;
    }
    let neutral = moved(text, base, BASE)?;
    let back = moved(&neutral, BASE, base)?;
    (back == text).then_some(neutral)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_text_gets_the_paths_of_another_checkout() {
        let text = b"a.o: /one/src/a.c /one/inc/a.h /usr/include/stdio.h\n";
        let stored = dependencies(text, Compiler::Gcc, b"/one").unwrap();
        assert!(!holds(&stored, b"/one"));
        let other = own_dependencies(&stored, Compiler::Gcc, b"/two").unwrap();
        assert_eq!(other, b"a.o: /two/src/a.c /two/inc/a.h /usr/include/stdio.h\n");
        let said = diagnostics(b"/one/a.c:1:1: warning: x\n", b"/one").unwrap();
        assert_eq!(own_diagnostics(&said, b"/two").unwrap(), b"/two/a.c:1:1: warning: x\n");
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
        assert_eq!(diagnostics(b"/wafcc-base-folder/a.c:1: x\n", b"/one"), None);
        assert_eq!(diagnostics(b"a macro has /one in it\n", b"/one"), None);
        assert_eq!(diagnostics(b"", b"/one").unwrap(), b"");
    }
}
