//! The directives with which a source begins, and of which a preamble is made.
//!
//! They end before the first declaration, and with the last include before it. Only directives are taken whose whole effect
//! is on macros and on what is read. So the same directives have the same effect in another file of the same folder.

/// Directives that are taken. `#line` and `#pragma` have effects that reach further.
const TAKEN: [&[u8]; 14] = [
    b"include",
    b"define",
    b"undef",
    b"if",
    b"ifdef",
    b"ifndef",
    b"elif",
    b"elifdef",
    b"elifndef",
    b"else",
    b"endif",
    b"error",
    b"warning",
    b"",
];
/// A beginning that is longer is that of a file of macros, or a generated one.
const LONGEST: usize = 256 << 10;

/// What was read of a beginning so far.
#[derive(Default)]
struct Progress {
    /// How many conditions are open.
    depth: usize,
    /// There was an include since the last place where the beginning could end.
    includes: bool,
}

impl Progress {
    /// Reads one directive. Returns whether a beginning can end after it: outside of every condition, and with an include.
    /// `None` if the directive ends a condition that is not open.
    fn read(&mut self, name: &[u8]) -> Option<bool> {
        match name {
            b"if" | b"ifdef" | b"ifndef" => self.depth += 1,
            b"endif" => self.depth = self.depth.checked_sub(1)?,
            b"include" => self.includes = true,
            _ => {}
        }
        let can_end = self.depth == 0 && self.includes;
        self.includes &= !can_end;
        Some(can_end)
    }
}

/// The directives of the beginning of a source, one per line, without comments. `None` if it includes nothing.
pub fn read(source: &[u8]) -> Option<Vec<u8>> {
    let mut scanner = Scanner {
        text: &source[..source.len().min(LONGEST)],
        at: 0,
    };
    let mut taken = Vec::new();
    let mut progress = Progress::default();
    let mut whole = 0;
    while let Some(directive) = scanner.directive() {
        let name = name_of(&directive);
        if !TAKEN.contains(&name) {
            break;
        }
        let Some(can_end) = progress.read(name) else { break };
        taken.extend_from_slice(&directive);
        taken.push(b'\n');
        if can_end {
            whole = taken.len();
        }
    }
    taken.truncate(whole);
    (whole > 0).then_some(taken)
}

/// The lengths of all beginnings of a beginning, as `read` returns it. The last one is its own.
pub fn ends(beginning: &[u8]) -> Vec<usize> {
    let mut progress = Progress::default();
    let mut ends = Vec::new();
    let mut at = 0;
    for line in beginning.split_inclusive(|byte| *byte == b'\n') {
        at += line.len();
        if progress.read(name_of(line)) == Some(true) {
            ends.push(at);
        }
    }
    ends
}

fn name_of(directive: &[u8]) -> &[u8] {
    let name = directive.strip_prefix(b"#").unwrap_or(directive).trim_ascii_start();
    let end = name.iter().position(|b| !b.is_ascii_alphanumeric() && *b != b'_');
    &name[..end.unwrap_or(name.len())]
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    /// The next directive on one line, its comments as blanks. `None` where something else begins, and at what cannot be
    /// read with certainty.
    fn directive(&mut self) -> Option<Vec<u8>> {
        self.skip_blanks()?;
        if self.peek()? != b'#' {
            return None;
        }
        let mut directive = Vec::new();
        loop {
            match self.peek() {
                // The rest of the file may be cut off.
                None => return None,
                Some(b'\n') => break,
                Some(b'/') if self.begins(b"//") => self.skip_line(),
                Some(b'/') if self.begins(b"/*") => {
                    self.skip_comment()?;
                    directive.push(b' ');
                }
                Some(b'\\') if self.splice() > 0 => self.at += self.splice(),
                // A raw string, or a trigraph, may hide where the line ends.
                Some(b'R') if self.begins(b"R\"") => return None,
                Some(b'?') if self.begins(b"??") => return None,
                Some(quote @ (b'"' | b'\'')) => self.quoted(quote, &mut directive)?,
                Some(other) => {
                    directive.push(other);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        Some(directive.trim_ascii().to_vec())
    }

    /// Copies a literal, in which comments do not begin. One that is not closed ends with its line.
    fn quoted(&mut self, quote: u8, directive: &mut Vec<u8>) -> Option<()> {
        directive.push(quote);
        self.at += 1;
        loop {
            let byte = self.peek()?;
            if byte == b'\n' {
                return Some(());
            }
            let splice = self.splice();
            if splice > 0 {
                self.at += splice;
                continue;
            }
            directive.push(byte);
            self.at += 1;
            match byte {
                b'\\' => {
                    directive.push(self.peek().filter(|b| *b != b'\n')?);
                    self.at += 1;
                }
                byte if byte == quote => return Some(()),
                _ => {}
            }
        }
    }

    /// To the next byte that is neither a blank nor part of a comment.
    fn skip_blanks(&mut self) -> Option<()> {
        loop {
            match self.peek()? {
                b' ' | b'\t' | b'\n' | b'\r' | b'\x0b' | b'\x0c' => self.at += 1,
                b'/' if self.begins(b"//") => self.skip_line(),
                b'/' if self.begins(b"/*") => self.skip_comment()?,
                b'\\' if self.splice() > 0 => self.at += self.splice(),
                _ => return Some(()),
            }
        }
    }

    /// To the end of a line that may go on after a splice.
    fn skip_line(&mut self) {
        while let Some(byte) = self.peek().filter(|b| *b != b'\n') {
            self.at += match byte {
                b'\\' => self.splice().max(1),
                _ => 1,
            };
        }
    }

    fn skip_comment(&mut self) -> Option<()> {
        let rest = &self.text[self.at + 2..];
        let length = rest.windows(2).position(|two| two == b"*/")?;
        // A comment whose end is broken over two lines would end earlier than it seems. Such a text is not understood.
        let comment = &rest[..length];
        let is_spliced = |two: &[u8]| two == b"*\\";
        if comment.windows(2).any(is_spliced) {
            return None;
        }
        self.at += 2 + length + 2;
        Some(())
    }

    /// The length of a splice here: a backslash, blanks that compilers forgive, and the end of the line.
    fn splice(&self) -> usize {
        let rest = &self.text[self.at..];
        if rest.first() != Some(&b'\\') {
            return 0;
        }
        let blanks = rest[1..]
            .iter()
            .take_while(|b| matches!(b, b' ' | b'\t' | b'\r'))
            .count();
        match rest.get(1 + blanks) {
            Some(b'\n') => 2 + blanks,
            _ => 0,
        }
    }

    fn begins(&self, with: &[u8]) -> bool {
        self.text[self.at..].starts_with(with)
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(source: &str) -> String {
        let read = read(source.as_bytes()).unwrap_or_default();
        String::from_utf8(read).unwrap()
    }

    #[test]
    fn a_beginning_ends_with_the_last_include_before_a_declaration() {
        for (source, expected) in [
            ("#include <a>\nint x;\n#include <b>\n", "#include <a>\n"),
            (
                "// about\n\n#include <a>\n/* more\n*/ # include \"b\" // why\nint x;",
                "#include <a>\n# include \"b\"\n",
            ),
            (
                "#define A 1\n#include <a>\n#define B 2\nint x;\n",
                "#define A 1\n#include <a>\n",
            ),
            (
                "#ifdef A\n#include <a>\n#else\n#define B\n#endif\nint x;",
                "#ifdef A\n#include <a>\n#else\n#define B\n#endif\n",
            ),
            (
                "#include <a>\n#ifdef A\n#include <b>\nint x;\n#endif\n",
                "#include <a>\n",
            ),
            (
                "#define A(x) \\\n  x + 1\n#include <a>\nint x;",
                "#define A(x)   x + 1\n#include <a>\n",
            ),
            (
                "#define A \"//\" '\"' /* */\n#include <a>\nint x;",
                "#define A \"//\" '\"'\n#include <a>\n",
            ),
            ("#\n#include <a>\n\n\nint x;", "#\n#include <a>\n"),
            ("#include <a>\n#pragma pack(1)\n#include <b>\nint x;", "#include <a>\n"),
            ("#include <a>\n#line 7\n#include <b>\nint x;", "#include <a>\n"),
            ("#include <a>\n#import <b>\nint x;", "#include <a>\n"),
            ("#include <a>\n#endif\n#include <b>\nint x;", "#include <a>\n"),
        ] {
            assert_eq!(show(source), expected, "{source}");
        }
    }

    #[test]
    fn a_beginning_has_beginnings() {
        let text = "#define A\n#include <a>\n#ifdef A\n#include <b>\n#endif\n#define B\n# include <c>\n";
        let beginnings: Vec<_> = ends(text.as_bytes()).iter().map(|end| &text[..*end]).collect();
        let second = &text[..text.find("#define B").unwrap()];
        assert_eq!(beginnings, ["#define A\n#include <a>\n", second, text]);
        assert_eq!(ends(b""), [0; 0]);
    }

    #[test]
    fn what_cannot_be_read_with_certainty_is_no_beginning() {
        for source in [
            "",
            "int x;\n#include <a>\n",
            "#include <a>",
            "\u{feff}#include <a>\nint x;",
            "#define A R\"(\n)\"\n#include <a>\nint x;",
            "#define A ??/\n#include <a>\nint x;",
            "/* never closed\n#include <a>\n",
            "/* closed *\\\n/\n#include <a>\n*/ int x;",
            "#define A 1\nint x;",
        ] {
            assert_eq!(show(source), "", "{source}");
        }
    }
}
