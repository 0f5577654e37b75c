//! Tells code, strings and comments of a source of C or C++ apart, if it is certain where they are.
//!
//! Pure. A compiler reads the texts before the language is known in all its details: what is a string depends on the standard
//! that was asked for, and apostrophes stand in numbers and in branches that are skipped. Where two readings are possible,
//! nothing is told apart.

use std::ops::Range;

use memchr::memmem;

use crate::observe::access::Bytes;

/// A source without its comments.
#[derive(Debug, PartialEq, Eq)]
pub struct Parts {
    /// With the strings that have a parenthesis: as a pragma, they may call a macro.
    pub code: Bytes,
    /// The other strings and characters.
    pub strings: Bytes,
    /// Where comments are.
    pub comments: Vec<Range<usize>>,
}

/// None if it is not certain where the comments are. In the text, lines that end with a backslash are joined.
pub fn parts(text: &[u8]) -> Option<Parts> {
    // another spelling of the backslash, and what is or is not the end of a line
    if memmem::find(text, b"??/").is_some() || memchr::memchr(0, text).is_some() || has_lone_return(text) {
        return None;
    }
    let mut kept = Bytes::with_capacity(text.len());
    let (mut strings, mut comments) = (Bytes::new(), Vec::new());
    let mut line = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let size = match rest[0] {
            b'/' if rest.starts_with(b"/*") => {
                if may_be_name(&kept[line..]) {
                    return None;
                }
                let size = memmem::find(&rest[2..], b"*/")? + 4;
                kept.push(b' ');
                comments.push(at..at + size);
                at += size;
                continue;
            }
            b'/' if rest.starts_with(b"//") => {
                if may_be_name(&kept[line..]) {
                    return None;
                }
                let size = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
                comments.push(at..at + size);
                at += size;
                continue;
            }
            // a raw string
            b'"' if kept.ends_with(b"R") => return None,
            // In the newer languages, it may be a part of the number before.
            b'\'' if is_in_number(&kept) => return None,
            quote @ (b'"' | b'\'') => {
                let size = literal(rest, quote)?;
                if !rest[..size].contains(&b'(') {
                    strings.extend_from_slice(&rest[..size]);
                    kept.extend([quote, quote]);
                    at += size;
                    continue;
                }
                size
            }
            _ => 1,
        };
        kept.extend_from_slice(&rest[..size]);
        at += size;
        if rest[0] == b'\n' {
            line = kept.len();
        }
    }
    Some(Parts {
        code: kept,
        strings,
        comments,
    })
}

/// The size of a string or character, which ends on its line.
fn literal(text: &[u8], quote: u8) -> Option<usize> {
    let mut at = 1;
    loop {
        match *text.get(at)? {
            b'\n' => return None,
            b'\\' => at += 2,
            byte if byte == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// Whether the end of this line may be in the name of a header: `#include <a//b>`.
fn may_be_name(line: &[u8]) -> bool {
    let last = |byte: u8| memchr::memrchr(byte, line);
    let has = |word: &&str| memmem::find(line, word.as_bytes()).is_some();
    last(b'<') > last(b'>') && ["include", "import", "embed"].iter().any(has)
}

/// Whether a text ends with a number, or with a word that has digits.
fn is_in_number(text: &[u8]) -> bool {
    let is_of_number = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'\'');
    let mut word = text.iter().rev().take_while(|byte| is_of_number(byte));
    // u8'a' is a character
    !text.ends_with(b"u8") && word.any(u8::is_ascii_digit)
}

fn has_lone_return(text: &[u8]) -> bool {
    memchr::memchr_iter(b'\r', text).any(|at| text.get(at + 1) != Some(&b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Option<String> {
        parts(text.as_bytes()).map(|parts| String::from_utf8(parts.code).unwrap())
    }

    #[test]
    fn comments_and_strings_are_told_from_code() {
        for (text, expected) in [
            ("", ""),
            ("a/* b */c/**/d", "a c d"),
            ("a // b \" ' /* c\nd", "a \nd"),
            ("a /* b // c\n * d */ e", "a   e"),
            ("/*/ a */ b", "  b"),
            ("\"/* a */\" b", "\"\" b"),
            ("\"/* (a) */\" b", "\"/* (a) */\" b"),
            ("\"\\\"/*\" // a\n\"*/\"", "\"\" \n\"\""),
            ("'\"' /* a */ '\"'", "''   ''"),
            ("'/*' a '*/'", "'' a ''"),
            ("L'\\'' u8'x' /* a */", "L'' u8''  "),
            ("#if A /* < */ b\n", "#if A   b\n"),
            ("a < b /* c */\r\n", "a < b  \r\n"),
            ("a / b * c", "a / b * c"),
            ("a // R\"\n", "a \n"),
            ("#include <a.h> /* b */\n#if A < 1 // b", "#include <a.h>  \n#if A < 1 "),
        ] {
            assert_eq!(code(text).as_deref(), Some(expected), "{text}");
        }
        let parts = parts(b"f(\"a\", 'b', \"c(d)\" /* \"e\" */) // g\n").unwrap();
        assert_eq!(parts.strings, b"\"a\"'b'");
        assert_eq!(parts.comments, [19..28, 30..34]);
    }

    #[test]
    fn where_two_readings_are_possible_nothing_is_told_apart() {
        for text in [
            "a /* b",
            "#error don't\n/* a */",
            "char *a = \"b\n/* a */\"",
            "R\"(/*)\" a R\"(*/)\"",
            "int a = 1'000; /* b */",
            "f(1'0, '/*') a '*/'",
            "// what??/\n/* a */",
            "// a\r/* b */",
            "#include <a/*b>\n*/",
            "#include <a//b>\n",
            "%:include <a/*b>\n*/",
            "import <a/*b>;\n*/",
            "a\0/* b */",
        ] {
            assert_eq!(code(text), None, "{text}");
        }
    }
}
