//! Whether the output of a line for a shell can depend on the folder in which it runs.
//!
//! A shell always knows its folder, and passes it on as `PWD`. A line cannot show it if the line has plain words only, and
//! calls only programs that are known to ask for what they need. It must have no `$`, no pattern, and no builtin of the
//! shell that prints the folder. A line that is not understood may show it.

use crate::facts::path::last_name;
use crate::observe::access::Bytes;
use crate::observe::known_programs::ProgramRules;

/// The shells whose builtin words are known.
const SHELL: &[u8] = b"dash";
/// Builtin words that only print or compare what they are given.
const HARMLESS: [&[u8]; 3] = [b"printf", b"test", b":"];

/// For `sh -c LINE`: the shell's file, and its arguments.
pub fn hides_folder(program: &[u8], argv: &[&[u8]]) -> bool {
    match argv {
        [_, option, line] if is_known(program) && *option == b"-c" => is_plain(line),
        _ => false,
    }
}

pub fn is_known(program: &[u8]) -> bool {
    last_name(program) == SHELL
}

fn is_plain(line: &[u8]) -> bool {
    let mut left = line;
    let (mut begins, mut redirects) = (true, false);
    loop {
        let Some((token, rest)) = next(left) else { return false };
        left = rest;
        match token {
            Token::End => return !redirects,
            Token::Redirect if redirects => return false,
            Token::Redirect => redirects = true,
            Token::Between if redirects => return false,
            Token::Between => begins = true,
            Token::Word(_) if redirects => redirects = false,
            Token::Word(word) if begins && !is_harmless(&word) => return false,
            Token::Word(_) => begins = false,
        }
    }
}

/// A word with `=` may be an assignment, and no command.
fn is_harmless(command: &[u8]) -> bool {
    !command.contains(&b'=') && (HARMLESS.contains(&command) || ProgramRules::of(command).asks)
}

enum Token {
    Word(Bytes),
    /// The next word is the name of a file.
    Redirect,
    /// The next word begins a command.
    Between,
    End,
}

/// `None` for a line that has more than words, `;`, `&&`, `||`, `|`, `<`, `>` and `>>`.
fn next(line: &[u8]) -> Option<(Token, &[u8])> {
    let blanks = line.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
    let line = &line[blanks..];
    Some(match line {
        [] => (Token::End, line),
        [b'&', b'&', rest @ ..] | [b'|', b'|', rest @ ..] | [b'|' | b';' | b'\n', rest @ ..] => (Token::Between, rest),
        [b'>', b'>', rest @ ..] | [b'<' | b'>', rest @ ..] => (Token::Redirect, rest),
        _ => {
            let (word, rest) = word(line)?;
            (Token::Word(word), rest)
        }
    })
}

/// A word without its quotes.
fn word(line: &[u8]) -> Option<(Bytes, &[u8])> {
    let mut word = Bytes::new();
    let mut left = line;
    loop {
        match left {
            [] | [b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'<' | b'>', ..] => {
                return (left.len() < line.len()).then_some((word, left));
            }
            [quote @ (b'\'' | b'"'), rest @ ..] => {
                let end = rest.iter().position(|b| b == quote)?;
                let quoted = &rest[..end];
                if *quote == b'"' && quoted.iter().any(|b| b"$`\\".contains(b)) {
                    return None;
                }
                word.extend_from_slice(quoted);
                left = &rest[end + 1..];
            }
            [byte, rest @ ..] if byte.is_ascii_alphanumeric() || b"_-+./:,@%^=".contains(byte) => {
                word.push(*byte);
                left = rest;
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hides(line: &str) -> bool {
        hides_folder(b"/usr/bin/dash", &[b"/bin/sh", b"-c", line.as_bytes()])
    }

    #[test]
    fn plain_words_for_known_programs_do_not_show_the_folder() {
        for line in [
            "sort ../list.txt > sorted.txt",
            "sed -e 's/$HOME/`pwd`/' < a 2> b",
            "cat a b>>c;tr a-z A-Z <c >d && wc -l d || true | head -n1\n/usr/bin/sort -u \"a b\" >x",
            "protoc --cpp_out=. a/b.proto",
            "printf '%s\\n' one",
            "> a cat b",
            "",
            "cat ''",
        ] {
            assert!(hides(line), "{line}");
        }
    }

    #[test]
    fn any_other_line_may_show_the_folder() {
        for line in [
            "pwd",
            "echo $PWD > a",
            "cat \"$PWD/a\"",
            "cat `pwd`/a",
            "cat $(pwd)/a",
            "echo \"\\$a\"",
            "'pwd' > a",
            "p'w'd",
            "env",
            "set",
            "export -p",
            "sort a && pwd",
            "sort a | pwd",
            "sort a;pwd",
            "sort a\npwd",
            "sort a & pwd",
            "> a pwd",
            "A=1 sort a",
            "A=1/sort pwd",
            "'' a",
            "cat ~+/a",
            "cat *",
            "cat a[b]",
            "cat {a,b}",
            "cat a\\ b",
            "cat <<x",
            "cat 2>&1",
            "cat >& a",
            "cat a # b",
            "(cat a)",
            "{ cat a; }",
            "! cat a",
            "if true; then cat a; fi",
            "eval cat a",
            ". ./a",
            "command pwd",
            "./make.sh a",
            "python3 a.py",
            "cp a b",
            "cat 'a",
            "cat \"a",
            "cat >",
            "cat > ; sort a",
            "cat \u{fc}",
        ] {
            assert!(!hides(line), "{line}");
        }
    }

    #[test]
    fn other_shells_and_other_calls_of_it_are_not_known() {
        let line: &[u8] = b"sort a > b";
        for (program, argv) in [
            ("/bin/bash", &[b"sh", b"-c", line][..]),
            ("/bin/busybox", &[b"sh", b"-c", line]),
            ("/bin/dash", &[b"sh", b"-ec", line]),
            ("/bin/dash", &[b"sh", b"-c", line, b"x"]),
            ("/bin/dash", &[b"sh", b"a.sh"]),
            ("/bin/dash", &[b"sh"]),
        ] {
            assert!(!hides_folder(program.as_bytes(), argv), "{program}");
        }
    }
}
