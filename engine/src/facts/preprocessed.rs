//! What the preprocessor leaves of a source, as far as it counts for a compile that writes no positions and prints nothing.
//!
//! Pure. Lines that say where the text comes from are left out, and so are blank lines. What is left has the words of the
//! source, how far its lines are indented, and which of them are from headers, and from headers of the system: compilers warn
//! of other things there. Some warnings look at the source itself. [`layout`] has what they look at.

use std::collections::HashSet;

use memchr::memmem;

use super::comments::parts;
use super::words::{before_splice, joined, may_take_raw};
use crate::bytes::digest::Digest;
use crate::observe::access::Bytes;

/// To be increased when the form changes in which texts are compared.
const VERSION: &[u8] = b"preprocessed 1";
/// What tells a position although the preprocessor has run, and what stands for a precompiled header or another file.
const REFUSED: [&[u8]; 6] = [
    b"__builtin_LINE",
    b"__builtin_FILE",
    b"__builtin_COLUMN",
    b"__builtin_source_location",
    b"GCC pch_preprocess",
    b"#embed",
];
/// Strings in which ends of lines count.
const RAW: &[u8] = b"R\"";

/// A preprocessed source.
#[derive(Debug, PartialEq, Eq)]
pub struct Preprocessed {
    pub digest: Digest,
    /// The files that it was made of, as the compiler calls them.
    pub all: HashSet<Bytes>,
    /// Those that are no headers of the system, in order.
    pub near: Vec<Bytes>,
}

/// Where a line comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Origin {
    depth: u32,
    is_of_system: bool,
    /// The header has declarations of C, in C++.
    is_of_c: bool,
}

impl Origin {
    fn mark(self) -> [u8; 2] {
        let flags = [self.depth > 0, self.is_of_system, self.is_of_c];
        [0, flags.iter().fold(0, |mark, flag| mark * 2 + u8::from(*flag))]
    }
}

/// A line that tells where the next one comes from: `# 1 "file" 1 3`.
pub struct Marker<'t> {
    pub file: &'t [u8],
    /// The file begins here, and is included.
    pub begins: bool,
    /// A file that was included has ended.
    ends: bool,
    is_of_system: bool,
    is_of_c: bool,
}

impl<'t> Marker<'t> {
    pub fn of(line: &'t [u8]) -> Option<Marker<'t>> {
        let rest = line.strip_prefix(b"# ")?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let rest = rest[digits..].strip_prefix(b" \"").filter(|_| digits > 0)?;
        let end = memchr::memrchr(b'"', rest)?;
        let has = |flag: &[u8]| rest[end + 1..].split(|byte| *byte == b' ').any(|word| word == flag);
        Some(Marker {
            file: &rest[..end],
            begins: has(b"1"),
            ends: has(b"2"),
            is_of_system: has(b"3"),
            is_of_c: has(b"4"),
        })
    }

    fn origin(&self, before: Origin) -> Origin {
        let depth = match (self.begins, self.ends) {
            (true, _) => before.depth + 1,
            (_, true) => before.depth.saturating_sub(1),
            _ => before.depth,
        };
        Origin {
            depth,
            is_of_system: self.is_of_system,
            is_of_c: self.is_of_c,
        }
    }
}

impl Preprocessed {
    /// None if the text does not say all that counts.
    pub fn read(text: &[u8]) -> Option<Preprocessed> {
        if may_take_raw(text) || REFUSED.iter().any(|word| memmem::find(text, word).is_some()) {
            return None;
        }
        let mut origin = Origin {
            depth: 0,
            is_of_system: false,
            is_of_c: false,
        };
        let mut kept = VERSION.to_vec();
        if memmem::find(text, RAW).is_some() {
            kept.extend_from_slice(text);
        }
        let (mut near, mut all) = (Vec::new(), HashSet::new());
        let mut marked = None;
        for line in text.split(|byte| *byte == b'\n') {
            if let Some(marker) = Marker::of(line) {
                origin = marker.origin(origin);
                if marker.file.contains(&b'\\') {
                    return None;
                }
                let is_file = !(marker.file.starts_with(b"<") || marker.file.ends_with(b"/"));
                if is_file && all.insert(marker.file.to_vec()) && !origin.is_of_system {
                    near.push(marker.file.to_vec());
                }
                continue;
            }
            let line = line.trim_ascii_end();
            if line.is_empty() {
                continue;
            }
            if marked != Some(origin.mark()) {
                marked = Some(origin.mark());
                kept.extend(origin.mark());
            }
            kept.extend_from_slice(line);
            kept.push(b'\n');
        }
        let digest = Digest::of(&kept);
        Some(Preprocessed { digest, near, all })
    }
}

/// What warnings look at that the preprocessor does not leave: which comments say that a `case` goes on in the next one, and
/// how lines are indented where that is done with tabs. `None` if there is neither.
pub fn layout(text: &[u8]) -> Option<Digest> {
    let Some(parts) = parts(text) else {
        return Some(Digest::of(text));
    };
    let says = |comment: &[u8]| comment.windows(4).any(|part| part.eq_ignore_ascii_case(b"fall"));
    let mut kept = Bytes::new();
    if parts.comments.iter().any(|span| says(&text[span.clone()])) {
        let mut start = 0;
        for span in parts.comments.iter().filter(|span| !says(&text[(*span).clone()])) {
            kept.extend_from_slice(&text[start..span.start]);
            start = span.end;
        }
        kept.extend_from_slice(&text[start..]);
    }
    // Directives have no indent that counts.
    let mut goes_on = false;
    let mut lines: Vec<&[u8]> = parts.code.split(|byte| *byte == b'\n').collect();
    lines.retain(|line| {
        let is_directive = goes_on || line.trim_ascii_start().starts_with(b"#");
        goes_on = is_directive && before_splice(line).is_some();
        !is_directive && !line.trim_ascii().is_empty()
    });
    let indent = |line: &'_ [u8]| {
        line.iter()
            .take_while(|byte| byte.is_ascii_whitespace())
            .copied()
            .collect::<Bytes>()
    };
    if lines.iter().any(|line| indent(line).contains(&b'\t')) {
        let indents = lines.iter().map(|line| indent(line));
        indents.for_each(|indent| kept.extend(indent.into_iter().chain([b'\n'])));
    }
    (!kept.is_empty()).then(|| Digest::of(&kept))
}

/// The words of a text outside of directives and comments. If they change, what the preprocessor leaves has most probably
/// changed, too.
pub fn body(text: &[u8]) -> Bytes {
    let joined = joined(text);
    let text = joined.as_deref().unwrap_or(text);
    let Some(parts) = parts(text) else {
        return text.to_vec();
    };
    let mut kept = Bytes::new();
    let is_directive = |line: &&[u8]| line.trim_ascii_start().starts_with(b"#");
    let lines = parts.code.split(|byte| *byte == b'\n');
    for line in lines.filter(|line| !is_directive(line)) {
        for word in line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
            kept.extend_from_slice(word);
            kept.push(b' ');
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(text: &str) -> Option<Digest> {
        Preprocessed::read(text.as_bytes()).map(|read| read.digest)
    }

    const TEXT: &str = "# 1 \"a.c\"\n# 1 \"<built-in>\"\n# 1 \"h/b.h\" 1\nint b;\n# 2 \"a.c\" 2\n\n  int a;\n";

    #[test]
    fn places_and_blank_lines_do_not_count() {
        for other in [
            "# 1 \"a.c\"\n# 9 \"x/c.h\" 1\n\n\nint b;  \n# 20 \"a.c\" 2\n  int a;",
            "# 1 \"b.h\" 1\nint b;\n# 33 \"b.h\"\n# 2 \"a.c\" 2\n  int a;\n\n",
        ] {
            assert_eq!(digest(TEXT), digest(other), "{other}");
        }
        let read = Preprocessed::read(TEXT.as_bytes()).unwrap();
        assert_eq!(read.near, [b"a.c".to_vec(), b"h/b.h".to_vec()]);
        let of_system = Preprocessed::read(b"# 1 \"/usr/s.h\" 1 3 4\nint s;\n").unwrap();
        assert!(of_system.near.is_empty() && of_system.all.contains(&b"/usr/s.h"[..]));
    }

    #[test]
    fn words_lines_indents_and_origins_count() {
        for other in [
            TEXT.replace("int b", "int c"),
            TEXT.replace("  int a", " int a"),
            TEXT.replace("int b;", "int b;\nint c;"),
            TEXT.replace("int b;", "int\nb;"),
            TEXT.replace("b.h\" 1", "b.h\" 1 3"),
            TEXT.replace("b.h\" 1", "b.h\" 1 3 4"),
            TEXT.replace("b.h\" 1", "b.h\""),
        ] {
            assert_ne!(digest(TEXT), digest(&other), "{other}");
        }
        let raw = |text: &str| digest(&format!("x = R\"({text})\";\n"));
        assert_ne!(raw("a\n\nb"), raw("a\nb"));
        assert_ne!(raw("\n# 1 \"a\"\n"), raw("\n# 2 \"a\"\n"));
    }

    #[test]
    fn a_text_that_does_not_say_all_is_refused() {
        for text in [
            "int a = __builtin_LINE();\n",
            "#pragma GCC pch_preprocess \"a.gch\"\n",
            "asm(\".inc\" \"bin \\\"a.h\\\"\");\n",
            "# 1 \"a\\\"b.c\"\n",
        ] {
            assert_eq!(digest(text), None, "{text}");
        }
    }

    #[test]
    fn a_layout_has_what_warnings_look_at() {
        let same = |one: &str, other: &str| layout(one.as_bytes()) == layout(other.as_bytes());
        assert_eq!(layout(b"int a; // b\n  int c;\n"), None);
        assert!(same("int a; /* b */\n  int c;\n", "/* d */\n\n\n   int a;\nint c;\n"));
        assert!(same("\tint a; // b\n", "// c\n\n\tint a;\n"));
        assert!(same("\tint a;\n", "#define A \\\n\t\t1\n\tint a;\n# define B\n"));
        assert!(!same("\tint a;\n", "#define A 1\n\t\tint a;\n"));
        assert!(!same("\tint a;\n", " int a;\n"));
        assert!(!same("\tint a;\n\tint b;\n", "\tint a;\n int b;\n"));
        assert!(!same("a; /* fall through */ b;\n", "a; b;\n"));
        assert!(!same("a; // Falls.\nb;\nc;\n", "a;\nb; // Falls.\nc;\n"));
        assert!(!same("a \"unclear\n", "a \"unclear \n"));
    }

    #[test]
    fn a_body_has_words_outside_of_directives() {
        let same = |one: &str, other: &str| body(one.as_bytes()) == body(other.as_bytes());
        let text = "#define A 1\nint a;\n#if A\nint b;\n#endif\n";
        for other in [
            "int a; int b;",
            "/* c */ int a;\n#define A \\\n 2\n\n int // d\nb;\n",
            "#include <x>\nint a;\nint b;\n",
        ] {
            assert!(same(text, other), "{other}");
        }
        assert!(!same(text, "int a;\n") && !same(text, "int a; int c;\n"));
    }
}
