//! The names that a source includes, as its text shows them.
//!
//! Pure. It is a guess: conditions are not read, so that a name counts even if no compile includes it, and a name that is made
//! by macros counts only if a directive defines it as a whole. For a wrong guess there is a price and never a wrong result.

use crate::observe::access::Bytes;

/// A name in a directive.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Include {
    pub name: Bytes,
    /// It is in quotes, so that the folder of the file itself is searched first.
    pub is_quoted: bool,
}

const DIRECTIVES: [&[u8]; 5] = [b"include", b"include_next", b"import", b"embed", b"define"];
const QUESTIONS: [&[u8]; 3] = [b"__has_include", b"__has_include_next", b"__has_embed"];
/// No name of a file is longer.
const LONGEST: usize = 4096;
/// Files with more are no sources that people write.
const MOST: usize = 1 << 14;

/// What a text includes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Each name once, in the order of the text.
    pub includes: Vec<Include>,
    /// Another name is made by a macro with arguments, so that it may be any.
    pub is_computed: bool,
}

pub fn scan(text: &[u8]) -> Scan {
    let mut found = Vec::new();
    let mut is_computed = false;
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii_start();
        let Some(directive) = line.strip_prefix(b"#").or_else(|| line.strip_prefix(b"%:")) else {
            // In the middle of an assembler's source.
            let assembled = line.strip_prefix(b".include").or_else(|| line.strip_prefix(b".incbin"));
            found.extend(assembled.and_then(|rest| name(rest.trim_ascii_start())));
            continue;
        };
        let directive = directive.trim_ascii_start();
        let end = directive.iter().position(|byte| !is_of_word(*byte));
        let (word, rest) = directive.split_at(end.unwrap_or(directive.len()));
        let rest = rest.trim_ascii_start();
        match word {
            b"define" => found.extend(defined(rest)),
            _ if DIRECTIVES.contains(&word) => {
                found.extend(name(rest));
                is_computed |= is_call(rest);
            }
            b"if" | b"elif" => asked(rest, &mut found),
            _ => {}
        }
        if found.len() > MOST {
            break;
        }
    }
    let mut seen = rustc_hash::FxHashSet::default();
    found.retain(|include| seen.insert(include.clone()));
    Scan {
        includes: found,
        is_computed,
    }
}

/// Whether a macro is called with arguments.
fn is_call(text: &[u8]) -> bool {
    let end = text.iter().position(|byte| !is_of_word(*byte)).unwrap_or(0);
    end > 0 && text[end..].trim_ascii_start().starts_with(b"(")
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The name in quotes of either kind with which a text begins.
pub fn name(text: &[u8]) -> Option<Include> {
    let (first, rest) = text.split_first()?;
    let (close, is_quoted) = match first {
        b'"' => (b'"', true),
        b'<' => (b'>', false),
        _ => return None,
    };
    let end = rest.iter().position(|byte| *byte == close)?;
    let name = &rest[..end];
    let is_one = !name.is_empty() && name.len() <= LONGEST && !name.contains(&0);
    is_one.then(|| Include {
        name: name.to_vec(),
        is_quoted,
    })
}

/// The name that a macro stands for, if it is one.
fn defined(text: &[u8]) -> Option<Include> {
    let end = text.iter().position(|byte| !is_of_word(*byte))?;
    name(text[end..].trim_ascii_start())
}

/// The names for which a condition asks.
fn asked(mut text: &[u8], found: &mut Vec<Include>) {
    while let Some(at) = memchr::memmem::find(text, b"__has_") {
        text = &text[at..];
        let end = text.iter().position(|byte| !is_of_word(*byte)).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        text = rest;
        if QUESTIONS.contains(&word) {
            let rest = rest.trim_ascii_start();
            found.extend(rest.strip_prefix(b"(").and_then(|rest| name(rest.trim_ascii_start())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let shown = |include: Include| {
            let name = String::from_utf8(include.name).unwrap();
            match include.is_quoted {
                true => format!("\"{name}\""),
                false => format!("<{name}>"),
            }
        };
        scan(text.as_bytes()).includes.into_iter().map(shown).collect()
    }

    #[test]
    fn names_in_directives_are_found_each_once() {
        let text = concat!(
            "#include \"a.h\"\n  #  include <b/c.h> // why\n#include_next<d.h>\n#import \"e.h\"\n",
            "#include \"a.h\"\n%:include \"f.h\"\n#embed <g.bin> limit(3)\r\n.incbin \"h.bin\"\n",
        );
        let expected = [
            "\"a.h\"",
            "<b/c.h>",
            "<d.h>",
            "\"e.h\"",
            "\"f.h\"",
            "<g.bin>",
            "\"h.bin\"",
        ];
        assert_eq!(names(text), expected);
    }

    #[test]
    fn names_behind_macros_and_in_questions_are_found() {
        let text = "#define CONFIG \"config.h\"\n#define F(x) \"x\"\n#define S <s.h>\n#include CONFIG\n\
                    #if defined(A) && __has_include(<q.h>) || __has_include( \"r.h\" )\n";
        assert_eq!(names(text), ["\"config.h\"", "<s.h>", "<q.h>", "\"r.h\""]);
    }

    #[test]
    fn a_name_that_a_call_makes_may_be_any() {
        for (text, is_computed) in [
            ("#include PATH(a, b.h)\n", true),
            ("# include NAME ( x )\n", true),
            ("#include NAME\n#include \"a(b).h\"\n#define F(x) x\n", false),
        ] {
            assert_eq!(scan(text.as_bytes()).is_computed, is_computed, "{text}");
        }
    }

    #[test]
    fn other_text_has_no_names() {
        assert!(names("include \"a.h\"\n#includes \"b.h\"\n#include \"open\n#include \"\"\n// #x\n#\n").is_empty());
    }
}
