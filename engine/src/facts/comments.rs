//! Tells code, strings and comments of a source of C or C++ apart, if it is certain where they are.
//!
//! Pure. A compiler reads the texts before the language is known in all its details: what is a string depends on the standard
//! that was asked for, and apostrophes stand in numbers and in branches that are skipped. Where two readings are possible,
//! nothing is told apart.

use std::ops::Range;

use memchr::memmem;

use super::words::{before_splice, joined};
use crate::observe::access::Bytes;

/// A source without its comments. Lines that end with a backslash are joined.
#[derive(Debug, PartialEq, Eq)]
pub struct Parts {
    /// With the strings that have a parenthesis: as a pragma, they may call a macro.
    pub code: Bytes,
    /// The other strings and characters.
    pub strings: Bytes,
    /// Where comments are in the text.
    pub comments: Vec<Range<usize>>,
}

/// None if it is not certain where the comments are.
pub fn parts(text: &[u8]) -> Option<Parts> {
    // another spelling of the backslash, and what is or is not the end of a line
    let is_odd = memmem::find(text, b"??/").is_some() || memchr::memchr(0, text).is_some() || has_lone_return(text);
    if is_odd || has_split_mark(text) {
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
                let size = line_size(rest);
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
                at += size;
                let whole = joined(&rest[..size]);
                let literal = whole.as_deref().unwrap_or(&rest[..size]);
                if literal.contains(&b'(') {
                    kept.extend_from_slice(literal);
                } else {
                    strings.extend_from_slice(literal);
                    kept.extend([quote, quote]);
                }
                continue;
            }
            b'\\' if splice(rest) > 0 => {
                at += splice(rest);
                continue;
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

/// The size of a backslash and the end of the line, if there are only blanks between them; otherwise 0.
fn splice(text: &[u8]) -> usize {
    let end = memchr::memchr(b'\n', text).unwrap_or(0);
    let is_splice = before_splice(&text[..end]).is_some_and(<[u8]>::is_empty);
    if is_splice {
        end + 1
    } else {
        0
    }
}

/// The size of the rest of a line, without its end. It goes on after a backslash.
fn line_size(text: &[u8]) -> usize {
    let mut ends = memchr::memchr_iter(b'\n', text);
    ends.find(|end| before_splice(&text[..*end]).is_none())
        .unwrap_or(text.len())
}

/// Whether the beginning or the end of a comment is on two lines that are joined.
fn has_split_mark(text: &[u8]) -> bool {
    let count = |text: &[u8], mark: &[u8]| memmem::find_iter(text, mark).count();
    let marks: [&[u8]; 3] = [b"/*", b"*/", b"//"];
    joined(text).is_some_and(|joined| marks.iter().any(|mark| count(text, mark) != count(&joined, mark)))
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
            ("#define A \\\n  b /* c \\\n */ \\ \t\r\nd\ne", "#define A   b   d\ne"),
            ("a // b \\\nc\nd", "a \nd"),
            ("wo\\\nrd \"a\\\nb\"", "word \"\""),
            ("a \\ b\n\\", "a \\ b\n\\"),
        ] {
            assert_eq!(code(text).as_deref(), Some(expected), "{text}");
        }
        let parts = super::parts(b"f(\"a\", 'b', \"c(d)\" /* \"e\" */) // g\n").unwrap();
        assert_eq!(parts.strings, b"\"a\"'b'");
        assert_eq!(parts.comments, [19..28, 30..34]);
        let parts = super::parts(b"a\\\nb \"c\\\nd\" // e \\\nf\n/* g */").unwrap();
        assert_eq!(
            (&parts.code[..], &parts.strings[..]),
            (&b"ab \"\" \n "[..], &b"\"cd\""[..])
        );
        assert_eq!(parts.comments, [12..20, 21..28]);
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
            "a /\\\n* b */",
            "/* a *\\\n/ b",
            "a /\\\n/ b /* c */",
            "/\\\n/*\n*/",
            "\"a\\ \nb\"",
        ] {
            assert_eq!(code(text), None, "{text}");
        }
    }
}
