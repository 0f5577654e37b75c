//! Finds sources that make a compiler compare the times of files: `#pragma GCC dependency "FILE"`.
//!
//! Pure. If a text is found that has no effect, some hits are lost. If one is missed, a hit may be wrong. So comments and
//! strings are searched as well.

use super::words::{is_blank, joined};

const NAME: &[u8] = b"dependency";
const SPACES: [&[u8]; 2] = [b"GCC", b"clang"];

/// Whether a text may make a compiler do so.
pub fn compares_times(text: &[u8]) -> bool {
    if is_made_by_tools(text) {
        return false;
    }
    let joined = joined(text);
    let text = joined.as_deref().unwrap_or(text);
    let mut is_named = false;
    let mut from = 0;
    while let Some(at) = find(&text[from..], NAME).map(|at| from + at) {
        let (before, after) = (&text[..at], &text[at + NAME.len()..]);
        from = at + NAME.len();
        let is_word = !before.last().is_some_and(|b| is_of_name(*b)) && !after.first().is_some_and(|b| is_of_name(*b));
        if !is_word {
            continue;
        }
        is_named = true;
        let before = without_blanks(before);
        if SPACES.iter().any(|space| before.ends_with(space)) {
            return true;
        }
    }
    // A macro may combine both.
    is_named && find(text, b"_Pragma").is_some()
}

/// Whether a word of a command line does so, or makes the compiler read sources in a way that is not known here.
pub fn word_compares_times(word: &[u8]) -> bool {
    find(word, NAME).is_some_and(|at| word[..at].contains(&b'='))
        || word.starts_with(b"-finput-charset")
        || compares_times(word)
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80
}

/// Objects, archives and precompiled headers: the compile that made them has done the comparison.
pub fn is_made_by_tools(text: &[u8]) -> bool {
    const MAGIC: [&[u8]; 5] = [b"\x7fELF", b"!<arch>\n", b"gpch", b"CPCH", b"BC\xc0\xde"];
    MAGIC.iter().any(|magic| text.starts_with(magic))
}

/// Without white space and comments at its end.
fn without_blanks(mut text: &[u8]) -> &[u8] {
    loop {
        let kept = text.iter().rposition(|b| !is_blank(*b)).map_or(0, |at| at + 1);
        text = &text[..kept];
        let Some(inner) = text.strip_suffix(b"*/") else {
            return text;
        };
        let Some(start) = inner.windows(2).rposition(|pair| pair == b"/*") else {
            return text;
        };
        text = &inner[..start];
    }
}

/// Horspool's search: in a long text, it looks at only every tenth byte or so.
fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    let last = wanted.len() - 1;
    let mut skips = [wanted.len(); 256];
    for (at, byte) in wanted[..last].iter().enumerate() {
        skips[usize::from(*byte)] = last - at;
    }
    let mut end = last;
    while let Some(byte) = text.get(end) {
        if text[end - last..=end] == *wanted {
            return Some(end - last);
        }
        end += skips[usize::from(*byte)];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_of_times_is_found() {
        for text in [
            "#pragma GCC dependency \"a.h\"\n",
            "  #  pragma\tGCC\tdependency <a.h> it is old\n",
            "#pragma GCC /* a * b */ dependency \"a.h\"\n",
            "#pragma GCC depen\\\ndency \"a.h\"\n",
            "int a; \\  \r\n#pragma G\\\r\nCC \\\n dependency \"a.h\"\n",
            "#pragma clang dependency \"a.h\"\n",
            "#pragma GCC depen??/\ndency \"a.h\"\n",
            "_Pragma(\"GCC dependency \\\"a.h\\\"\")",
            "#define P(x) _Pragma(#x)\n#define D dependency\nP(GCC D \"a.h\")\n",
            "%:pragma GCC dependency \"a.h\"",
            "P(GCC dependency \"a.h\")",
        ] {
            assert!(compares_times(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn other_uses_of_the_word_do_not_count() {
        for text in [
            "",
            "y = kill_dependency(x);",
            "/* GCC has a dependency on it */ int a;\n",
            "#pragma GCC diagnostic ignored \"-Wall\"\nint dependency;\n",
            "_Pragma(\"once\") int dependency_of;\n",
            "\x7fELF GCC dependency",
        ] {
            assert!(!compares_times(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_word_of_a_command_line_may_hold_it() {
        assert!(word_compares_times(b"-DP=_Pragma(\"GCC dependency \\\"a\\\"\")"));
        assert!(word_compares_times(b"-DD=dependency"));
        assert!(word_compares_times(b"D=dependency"));
        assert!(!word_compares_times(b"-Idependency"));
    }

    #[test]
    fn a_text_is_found_wherever_it_is() {
        for before in 0..25 {
            let text = ["x".repeat(before), "dependency".to_owned(), "y".repeat(before)].concat();
            assert_eq!(find(text.as_bytes(), NAME), Some(before));
        }
        assert_eq!(find(b"dependenc dependenc", NAME), None);
        assert_eq!(find(b"", NAME), None);
    }
}
