//! The words of a source that may name a macro.
//!
//! Pure. Strings are searched as well, because a pragma may name a macro in a string, and comments where these cannot be told
//! from code. If a word is found that names nothing, some hits are lost. If one is missed, a hit may be wrong.

use std::hash::Hasher;

use memchr::memmem;
use rustc_hash::FxHasher;

use super::comments::{parts, Parts};
use super::compared_times::is_made_by_tools;
use super::pasting::Pasting;
use crate::observe::access::Bytes;

/// What compilers define themselves consists of these words, and a macro may combine them with others.
const PREDEFINED: [&str; 25] = [
    "L", "U", "LL", "UL", "ULL", "l", "u", "ll", "ul", "ull", "long", "unsigned", "signed", "int", "char", "short",
    "float", "double", "void", "wchar_t", "char8_t", "char16_t", "char32_t", "bool", "size_t",
];
/// The same for words that begin so: `__attribute__`, `_Float128`.
const PREDEFINED_HEADS: [&[u8]; 5] = [b"__", b"_Float", b"_Decimal", b"_Bool", b"_Complex"];
/// What has an assembler or a compiler take a file as it is, directives included.
const RAW: [&[u8]; 2] = [b"incbin", b"embed"];

/// Whether an assembler may be told to take another file as it is. A string may be written in several parts.
pub fn may_take_raw(text: &[u8]) -> bool {
    let is_between = |byte: &u8| matches!(byte, b'"' | b'\\') || byte.is_ascii_whitespace();
    let glued: Bytes = text.iter().copied().filter(|byte| !is_between(byte)).collect();
    [&b".incbin"[..], b".include"]
        .iter()
        .any(|asked| memmem::find(&glued, asked).is_some())
}

/// The words of a text, by their hashes. Two words may have one hash; then one more word is taken to be there.
#[derive(Debug, Default)]
pub struct Vocabulary {
    /// Words that a macro may combine with others.
    code: Box<[u32]>,
    /// Those of strings, which can only name a macro.
    strings: Box<[u32]>,
    /// What its macros combine.
    pub pasting: Pasting,
    /// Its source may have a file taken as it is, or is no text.
    pub takes_raw: bool,
}

impl Vocabulary {
    pub fn of(text: &[u8]) -> Vocabulary {
        let joined = joined(text);
        let (code, strings, pasting) = match parts(joined.as_deref().unwrap_or(text)) {
            Some(Parts { code, strings, .. }) => {
                let pasting = Pasting::of(&code);
                (hashes(pasting.usable_words(&code)), hashes(words(&strings)), pasting)
            }
            None => {
                let all = words(text).chain(words(joined.as_deref().unwrap_or_default()));
                (
                    hashes(all),
                    [].into(),
                    Pasting::of_unclear(joined.as_deref().unwrap_or(text)),
                )
            }
        };
        let mut vocabulary = Vocabulary {
            code,
            strings,
            pasting,
            takes_raw: is_made_by_tools(text) || may_take_raw(text),
        };
        vocabulary.takes_raw |= RAW.iter().any(|word| vocabulary.has(word));
        vocabulary
    }

    /// The words of a command line.
    pub fn of_line(line: &[Bytes]) -> Vocabulary {
        Vocabulary {
            code: hashes(line.iter().flat_map(|word| words(word))),
            pasting: Pasting::of_unclear(&line.concat()),
            ..Vocabulary::default()
        }
    }

    /// Whether a word is there, in code or in a string.
    pub fn has(&self, word: &[u8]) -> bool {
        self.has_in_code(word) || self.strings.binary_search(&hash(word)).is_ok()
    }

    pub fn has_in_code(&self, word: &[u8]) -> bool {
        self.has_hash(hash(word))
    }

    fn has_hash(&self, hash: u32) -> bool {
        self.code.binary_search(&hash).is_ok()
    }
}

fn hashes<'t>(words: impl Iterator<Item = &'t [u8]>) -> Box<[u32]> {
    let mut hashes: Vec<u32> = words.map(hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    hashes.into()
}

/// The parts of a text that consist of letters, digits and `_`. Any other byte may end a name.
pub fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| !is_of_word(*byte)).filter(|word| !word.is_empty())
}

pub fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn hash(word: &[u8]) -> u32 {
    let mut hasher = FxHasher::default();
    hasher.write(word);
    hasher.write_usize(word.len());
    (hasher.finish() >> 32) as u32
}

/// The words of several texts. Of most words that are in none, this is known at once.
pub struct AllWords<'v> {
    all: Vec<&'v Vocabulary>,
    /// One bit for each beginning of a hash.
    beginnings: Vec<u64>,
}

/// So many bits of a hash are looked at first.
const BITS: u32 = 20;

impl<'v> AllWords<'v> {
    pub fn of(all: Vec<&'v Vocabulary>) -> AllWords<'v> {
        let mut beginnings = vec![0_u64; (1 << BITS) / 64];
        for hash in all.iter().flat_map(|vocabulary| &vocabulary.code) {
            let bit = beginning(*hash);
            beginnings[bit / 64] |= 1 << (bit % 64);
        }
        AllWords { all, beginnings }
    }

    pub fn has_in_code(&self, word: &[u8]) -> bool {
        let hash = hash(word);
        let bit = beginning(hash);
        let may_be = self.beginnings[bit / 64] & 1 << (bit % 64) != 0;
        may_be && self.all.iter().any(|vocabulary| vocabulary.has_hash(hash))
    }
}

fn beginning(hash: u32) -> usize {
    (hash >> (u32::BITS - BITS)) as usize
}

/// Whether the last word of which `##` makes a name may be an end of this end of it.
pub fn can_end(end: &[u8], has: impl Fn(&[u8]) -> bool) -> bool {
    (1..end.len()).any(|at| is_predefined(&end[at..]) || has(&end[at..]))
}

/// Numbers may be those of lines, and of `__COUNTER__`.
pub fn is_predefined(word: &[u8]) -> bool {
    word[0].is_ascii_digit()
        || PREDEFINED.iter().any(|known| known.as_bytes() == word)
        || PREDEFINED_HEADS.iter().any(|head| word.starts_with(head))
}

/// The name of a line's directive, and what follows it: `define` and ` A 1` of `# define A 1`.
pub fn directive(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.trim_ascii_start().strip_prefix(b"#")?.trim_ascii_start();
    let size = rest.iter().position(|byte| !is_of_word(*byte)).unwrap_or(rest.len());
    (size > 0).then(|| rest.split_at(size))
}

/// The text with those lines joined that end with a backslash, if there are any.
pub fn joined(text: &[u8]) -> Option<Bytes> {
    let mut all = Bytes::new();
    // The start of the part that is not copied yet.
    let mut start = 0;
    for (end, _) in text.iter().enumerate().filter(|(_, b)| **b == b'\n') {
        if let Some(cut) = before_splice(&text[start..end]) {
            all.extend_from_slice(cut);
            start = end + 1;
        }
    }
    if start == 0 {
        return None;
    }
    all.extend_from_slice(&text[start..]);
    Some(all)
}

/// What is left of the last line of a text if it ends with a backslash, and so continues on the next line.
pub fn before_splice(text: &[u8]) -> Option<&[u8]> {
    let kept = text.iter().rposition(|b| !is_blank(*b) || *b == b'\n');
    let line = &text[..kept.map_or(0, |at| at + 1)];
    line.strip_suffix(b"\\").or(line.strip_suffix(b"??/"))
}

pub fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_of_a_text_is_known_and_no_part_of_one() {
        let text = "#define A_1(x) x##b2 // see\nA_1(c)\n\"quoted\"\nwo\\\nrd C\u{e9}D /* as said */\n";
        let words = ["define", "A_1", "x", "b2", "quoted", "word", "C", "D"];
        let in_comments = ["see", "as", "said"];
        let vocabulary = Vocabulary::of(text.as_bytes());
        words
            .iter()
            .for_each(|word| assert!(vocabulary.has(word.as_bytes()), "{word}"));
        for word in ["A_", "efine", "b", "words", "wo", ""].iter().chain(&in_comments) {
            assert!(!vocabulary.has(word.as_bytes()), "{word}");
        }
        assert!(!vocabulary.takes_raw);
        let unclear = Vocabulary::of(format!("{text}#error don't\n").as_bytes());
        for word in words.iter().chain(&["wo", "rd"]).chain(&in_comments) {
            assert!(unclear.has(word.as_bytes()), "{word}");
        }
    }

    #[test]
    fn a_source_that_takes_a_file_as_it_is_is_known() {
        for text in [
            "gpch.013",
            "asm(\".incbin \\\"f\\\"\");",
            "#embed \"f\"",
            "asm(\".include \\\"f\\\"\");",
            "asm(\".inc\"\n\t\"bin f\");",
            "asm(\".inc\\\nbin f\");",
        ] {
            assert!(Vocabulary::of(text.as_bytes()).takes_raw, "{text}");
        }
        assert!(!Vocabulary::of(b"#include \"embedded.h\"\n").takes_raw);
    }

    #[test]
    fn the_words_of_several_texts_are_known() {
        let all = ["#define A_1(x) x##b2\n", "SRC \"DIR\"", ""].map(|text| Vocabulary::of(text.as_bytes()));
        let words = AllWords::of(all.iter().collect());
        for word in ["define", "x", "b2", "SRC"] {
            assert!(words.has_in_code(word.as_bytes()), "{word}");
        }
        // A macro that joins words is named by nothing here.
        for word in ["A_1", "DIR", "b", ""] {
            assert!(!words.has_in_code(word.as_bytes()), "{word}");
        }
    }

    #[test]
    fn a_name_may_end_with_a_word_that_there_is() {
        let can = |text: &str| {
            let vocabulary = Vocabulary::of(text.as_bytes());
            can_end(b"_TAB_H", |word| vocabulary.has_in_code(word))
        };
        assert!(can("H") && can("_H") && can("TAB_H"));
        assert!(!can("_TAB_H TAB A_H \"H\" /* H */"));
        assert!(can_end(b"_2", |_| false) && !can_end(b"_H", |_| false));
    }

    #[test]
    fn lines_are_joined_as_by_a_compiler() {
        assert_eq!(joined(b"a\nb"), None);
        assert_eq!(joined(b"a\\\nb\\ \t\r\nc??/\nd\n"), Some(b"abcd\n".to_vec()));
    }
}
