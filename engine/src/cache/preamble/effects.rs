//! Whether a preamble has the effect of the beginning of its source, and whether that ends with it.
//!
//! The preamble must be the beginning of the preprocessed source: the same files by the same names, and the same text. A
//! source that begins after its headers still has its includes, and reads these headers a second time. That must change
//! nothing: neither the text nor the macros. And what a pragma has switched on in a header must be switched off there, too,
//! because compilers do not keep all of that in a precompiled header.

use std::collections::HashMap;

use memchr::memmem;

use crate::facts::preprocessed::Marker;

/// A line that stands between the first and the second reading of a preamble's text.
pub const AGAIN: &[u8] = b"#pragma wafcc reads the headers again\n";
/// Pragmas that have an effect on their own file only.
const OF_FILE: [&str; 2] = ["once", "GCC system_header"];
/// Pragmas that save a state, and those that restore it.
const PAIRS: [(&str, &str); 7] = [
    ("GCC visibility push", "GCC visibility pop"),
    ("GCC diagnostic push", "GCC diagnostic pop"),
    ("GCC push_options", "GCC pop_options"),
    ("clang diagnostic push", "clang diagnostic pop"),
    ("clang attribute push", "clang attribute pop"),
    ("pack(push", "pack(pop"),
    ("push_macro", "pop_macro"),
];
/// Pragmas that change a state, and the pair within which that is undone.
const WITHIN: [(&str, usize); 5] = [
    ("GCC diagnostic", 1),
    ("GCC target", 2),
    ("GCC optimize", 2),
    ("clang diagnostic", 3),
    ("pack", 5),
];

/// Whether a pragma in a preprocessed text may have an effect on what comes after the text.
pub fn has_lasting_pragma(text: &[u8]) -> bool {
    let mut depths = [0_usize; PAIRS.len()];
    let pragmas = text.split(|byte| *byte == b'\n').filter_map(pragma);
    for pragma in pragmas {
        if OF_FILE.contains(&&pragma[..]) {
            continue;
        }
        let begins = |start: &str| pragma.starts_with(start);
        if let Some(pair) = PAIRS.iter().position(|(push, _)| begins(push)) {
            depths[pair] += 1;
        } else if let Some(pair) = PAIRS.iter().position(|(_, pop)| begins(pop)) {
            match depths[pair].checked_sub(1) {
                Some(depth) => depths[pair] = depth,
                None => return true,
            }
        } else {
            let within = WITHIN.iter().find(|(start, _)| begins(start));
            if !within.is_some_and(|(_, pair)| depths[*pair] > 0) {
                return true;
            }
        }
    }
    depths.iter().any(|depth| *depth > 0)
}

/// The words of a line that is a pragma, with single blanks between them, and none around parentheses.
fn pragma(line: &[u8]) -> Option<String> {
    let line = line.trim_ascii_start().strip_prefix(b"#")?;
    let line = line.trim_ascii_start().strip_prefix(b"pragma")?;
    let line = String::from_utf8_lossy(line);
    let words: Vec<_> = line.split_whitespace().collect();
    Some(words.join(" ").replace(" (", "(").replace("( ", "("))
}

/// A part of a preprocessed text, as far as it counts.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    /// A file begins here that is included.
    File(&'a [u8]),
    Word(&'a [u8]),
}

fn parts(text: &[u8]) -> impl Iterator<Item = Part<'_>> {
    text.split(|byte| *byte == b'\n').flat_map(|line| {
        let (file, rest) = match Marker::of(line) {
            Some(marker) => (marker.begins.then_some(marker.file), &b""[..]),
            None if Change::of(line).is_some() => (None, &b""[..]),
            None => (None, line),
        };
        let words = rest.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        file.into_iter().map(Part::File).chain(words.map(Part::Word))
    })
}

/// Why a preprocessed text is not the beginning of another one.
#[derive(Debug, PartialEq, Eq)]
pub enum Apart {
    /// A file has another name there, or is another one.
    Files,
    Text,
}

/// Whether a preprocessed text is the beginning of another one, in files and words.
pub fn is_beginning(part: &[u8], whole: &[u8]) -> Result<(), Apart> {
    let mut all = parts(whole);
    for wanted in parts(part) {
        match (wanted, all.next()) {
            (wanted, Some(found)) if wanted == found => {}
            (Part::File(_), _) | (_, Some(Part::File(_))) => return Err(Apart::Files),
            _ => return Err(Apart::Text),
        }
    }
    Ok(())
}

/// A line by which the preprocessor tells that a macro changes.
enum Change<'a> {
    /// With the whole line.
    Define(&'a [u8], &'a [u8]),
    Undefine(&'a [u8]),
}

impl Change<'_> {
    fn of(line: &[u8]) -> Option<Change<'_>> {
        if let Some(rest) = line.strip_prefix(b"#define ") {
            let is_within = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 128..);
            let end = rest.iter().position(|byte| !is_within(byte)).unwrap_or(rest.len());
            return Some(Change::Define(&rest[..end], line));
        }
        Some(Change::Undefine(line.strip_prefix(b"#undef ")?.trim_ascii()))
    }
}

/// The macros of which a preprocessed text tells.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Macros<'a> {
    /// `None` if a macro is not defined any more.
    now: HashMap<&'a [u8], Option<&'a [u8]>>,
    /// What `push_macro` has saved: for each macro, the last one at the end.
    saved: HashMap<String, Vec<Option<Option<&'a [u8]>>>>,
}

impl<'a> Macros<'a> {
    fn read(&mut self, text: &'a [u8]) {
        for line in text.split(|byte| *byte == b'\n') {
            match Change::of(line) {
                Some(Change::Define(name, line)) => _ = self.now.insert(name, Some(line)),
                Some(Change::Undefine(name)) => _ = self.now.insert(name, None),
                None => self.obey(line),
            }
        }
    }

    /// Saves or restores a macro, if a pragma asks for that.
    fn obey(&mut self, line: &'a [u8]) {
        let named = |line: &'a [u8]| {
            let mut parts = line.split(|byte| *byte == b'"');
            parts
                .nth(1)
                .map(|name| (name, String::from_utf8_lossy(name).into_owned()))
        };
        let Some((pragma, (name, text))) = pragma(line).zip(named(line)) else {
            return;
        };
        if pragma.starts_with("push_macro(") {
            let saved = self.now.get(name).copied();
            self.saved.entry(text).or_default().push(saved);
        } else if pragma.starts_with("pop_macro(") {
            match self.saved.get_mut(&text).and_then(Vec::pop) {
                Some(Some(definition)) => _ = self.now.insert(name, definition),
                Some(None) => _ = self.now.remove(name),
                None => {}
            }
        }
    }
}

/// Splits what the preprocessor has printed at [`AGAIN`]: into the first and the second reading of the same text.
pub fn readings(told: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memmem::find(told, AGAIN)?;
    Some((&told[..at], &told[at + AGAIN.len()..]))
}

/// Whether the second reading of a text has no effect: it leaves no words, and changes no macro. Both arguments are printed by
/// the preprocessor.
pub fn is_without_effect(first: &[u8], second: &[u8]) -> bool {
    let mut macros = Macros::default();
    macros.read(first);
    let before = macros.clone();
    macros.read(second);
    macros == before && !parts(second).any(|part| matches!(part, Part::Word(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pragma_that_is_undone_does_not_last() {
        for text in [
            "",
            "int x;\n",
            "#pragma once\n# pragma GCC system_header\nint x;\n",
            "#pragma GCC visibility push(default)\nint x;\n#pragma GCC visibility pop\n",
            "#pragma GCC diagnostic push\n#pragma GCC diagnostic ignored \"-Wx\"\n#pragma GCC diagnostic pop\n",
            "#pragma GCC push_options\n#pragma GCC target(\"sse4\")\n#pragma GCC pop_options\n",
            "#pragma pack( push, 1)\n#pragma pack(2)\n#pragma pack (pop)\n",
        ] {
            assert!(!has_lasting_pragma(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_second_reading_may_leave_neither_words_nor_macros() {
        let first = b"#define A 1\n#define F(x) x\n#undef U\nint a;\n# 1 \"x\" 1\n#define linux 2\n#undef linux\n";
        for (second, expected) in [
            ("", true),
            ("# 1 \"x\" 1\n\n \n# 2 \"y\" 2\n", true),
            ("#undef A\n#define A 1\n#define F(x) x\n#undef U\n", true),
            ("int a;\n", false),
            ("#pragma once\n", false),
            ("#undef A\n", false),
            ("#define A 2\n", false),
            ("#define B 1\n", false),
            ("#undef B\n", false),
            ("#define F(x) 1\n", false),
            ("#define U\n", false),
        ] {
            assert_eq!(is_without_effect(first, second.as_bytes()), expected, "{second}");
        }
    }

    #[test]
    fn macros_that_are_saved_count_as_they_are_restored() {
        let saves = b"#define A 1\n#pragma push_macro(\"A\")\n#pragma push_macro(\"B\")\n#undef A\n#define B 1\n";
        let restored = [&saves[..], b"#pragma pop_macro( \"A\" )\n#pragma pop_macro(\"B\")\n"].concat();
        let mut macros = Macros::default();
        macros.read(&restored);
        let expected = HashMap::from([(&b"A"[..], Some(&b"#define A 1"[..]))]);
        assert_eq!(macros.now, expected);
        let mut macros = Macros::default();
        macros.read(saves);
        let before = macros.clone();
        macros.read(b"#pragma push_macro(\"A\")\n");
        assert_ne!(macros, before, "another pop_macro would find another state");
    }

    #[test]
    fn a_beginning_has_the_same_files_and_words() {
        let source = "# 1 \"a.cc\"\n# 1 \"<built-in>\"\n# 1 \"d/b.h\" 1\nint  b;\n# 2 \"a.cc\" 2\nint a;\n";
        for (text, expected) in [
            (
                "# 1 \"/p/text\"\n# 1 \"d/b.h\" 1\nint\n\nb;\n# 2 \"/p/text\" 2\n",
                Ok(()),
            ),
            ("# 1 \"d/./b.h\" 1\nint b;\n", Err(Apart::Files)),
            ("# 1 \"d/b.h\" 1\nint b;\n# 1 \"c.h\" 1 3 4\n", Err(Apart::Files)),
            ("#define int\n# 1 \"d/b.h\" 1\nint b;\n#undef b\n", Ok(())),
            ("int b;\n", Err(Apart::Files)),
            ("# 1 \"d/b.h\" 1\nint c;\n", Err(Apart::Text)),
            ("# 1 \"d/b.h\" 1\nint b; int a; int\n", Err(Apart::Text)),
        ] {
            assert_eq!(is_beginning(text.as_bytes(), source.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn any_other_pragma_may_last() {
        for text in [
            "#pragma pack(1)\n",
            "#pragma GCC diagnostic ignored \"-Wx\"\n",
            "#pragma GCC diagnostic push\n#pragma GCC diagnostic pop\n#pragma GCC diagnostic error \"-Wx\"\n",
            "#pragma GCC visibility push(default)\n",
            "#pragma GCC visibility pop\n",
            "#pragma GCC poison strcpy\n",
            "#pragma weak x\n",
            "#pragma STDC FP_CONTRACT OFF\n",
            "#pragma GCC visibility push(default)\n#pragma GCC diagnostic ignored \"-Wx\"\n#pragma GCC visibility pop\n",
        ] {
            assert!(has_lasting_pragma(text.as_bytes()), "{text}");
        }
    }
}
