//! Reads response files in command lines like compilers do: `@file` stands for the words in it.

use std::collections::VecDeque;

use super::reason::Reason;
use crate::observe::access::Bytes;
use crate::wire::UncachedReason;

/// A function that reads a file, by its name as the command has it.
pub type Read<'a> = &'a dyn Fn(&[u8]) -> Option<Bytes>;

const MOST_FILES: usize = 64;
const MOST_WORDS: usize = 1 << 17;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Expanded {
    pub words: Vec<Bytes>,
    /// The files that were read.
    pub files: Vec<Bytes>,
}

/// Expands the words after the program's own name.
pub fn expand<'a>(words: impl Iterator<Item = &'a [u8]>, read: Read) -> Result<Expanded, Reason> {
    let mut left: VecDeque<Bytes> = words.map(<[u8]>::to_vec).collect();
    let mut expanded = Expanded::default();
    while let Some(word) = left.pop_front() {
        let Some(file) = word.strip_prefix(b"@") else {
            expanded.words.push(word);
            continue;
        };
        let fails = || Reason::about(UncachedReason::Response, word.clone());
        let text = read(file)
            .filter(|_| expanded.files.len() < MOST_FILES)
            .ok_or_else(fails)?;
        let more = split(&text).ok_or_else(fails)?;
        if left.len() + more.len() > MOST_WORDS {
            return Err(fails());
        }
        expanded.files.push(file.to_vec());
        more.into_iter().rev().for_each(|word| left.push_front(word));
    }
    Ok(expanded)
}

/// The words of a text. Quotes of both kinds keep spaces, and a backslash keeps the next character, within quotes too. None
/// if compilers do not agree on the meaning.
fn split(text: &[u8]) -> Option<Vec<Bytes>> {
    let mut words = Vec::new();
    let mut word: Option<Bytes> = None;
    let mut quote = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => match bytes.next()? {
                b'\n' | b'\r' => return None,
                kept => word.get_or_insert_with(Vec::new).push(kept),
            },
            0 => return None,
            _ if quote == Some(byte) => quote = None,
            _ if quote.is_some() => word.get_or_insert_with(Vec::new).push(byte),
            b'"' | b'\'' => {
                quote = Some(byte);
                word.get_or_insert_with(Vec::new);
            }
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => words.extend(word.take()),
            _ => word.get_or_insert_with(Vec::new).push(byte),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Option<Vec<String>> {
        let words = split(text.as_bytes())?;
        Some(words.into_iter().map(|word| String::from_utf8(word).unwrap()).collect())
    }

    #[test]
    fn a_text_is_split_as_compilers_do() {
        let text = "-DA=\"x y\" -DB='p q' -DC=\\\"z\\\" -DD=a\\ b \"-DE=q\\\\r\"\n-DF='a\\b'\t\"\" -DG=";
        let expected = [
            "-DA=x y",
            "-DB=p q",
            "-DC=\"z\"",
            "-DD=a b",
            "-DE=q\\r",
            "-DF=ab",
            "",
            "-DG=",
        ];
        assert_eq!(words(text).unwrap(), expected);
        assert_eq!(words(" \n").unwrap().len(), 0);
        for unclear in ["\"a", "a\\", "a\\\nb", "a\0b"] {
            assert_eq!(words(unclear), None, "{unclear:?}");
        }
    }

    #[test]
    fn response_files_may_contain_others_up_to_a_limit() {
        let read = |name: &[u8]| match name {
            b"one" => Some(b"a @two d".to_vec()),
            b"two" => Some(b"b c".to_vec()),
            b"endless" => Some(b"@endless x".to_vec()),
            _ => None,
        };
        let of = |argv: &str| expand(argv.split(' ').map(str::as_bytes), &read);
        let found = of("0 @one e").unwrap();
        assert_eq!(found.words.concat(), b"0abcde");
        assert_eq!(found.files, [b"one", b"two"]);
        assert_eq!(
            of("@none"),
            Err(Reason::about(UncachedReason::Response, b"@none".to_vec()))
        );
        assert!(of("@endless").is_err());
    }
}
