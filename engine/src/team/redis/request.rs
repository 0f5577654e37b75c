//! Requests of Redis clients (RESP2): arrays of texts with their lengths.
//!
//! Pure.

use crate::bytes::fields::Malformed;

/// The most texts of one request.
pub const MOST_WORDS: usize = 1024;
/// A longer text is received separately. It must be the last one of its request.
pub const LONG: usize = 64 << 10;
/// The longest line with a length.
const LINE: usize = 24;

#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    NeedsInput,
    /// A request, and its length.
    Whole(Vec<&'a [u8]>, usize),
    /// A request without its last text, the position where that text begins, and its length.
    Long(Vec<&'a [u8]>, usize, u64),
}

pub fn parse(input: &[u8]) -> Result<Parsed<'_>, Malformed> {
    let mut at = 0;
    let Some(count) = number(input, &mut at, b'*')? else {
        return Ok(Parsed::NeedsInput);
    };
    if count > MOST_WORDS as u64 {
        return Err(Malformed("too many words"));
    }
    let mut words = Vec::new();
    while (words.len() as u64) < count {
        let Some(length) = number(input, &mut at, b'$')? else {
            return Ok(Parsed::NeedsInput);
        };
        if length > LONG as u64 {
            return match words.len() as u64 + 1 == count {
                true => Ok(Parsed::Long(words, at, length)),
                false => Err(Malformed("a word is too long")),
            };
        }
        let end = at + length as usize;
        let Some(word) = input.get(at..end) else {
            return Ok(Parsed::NeedsInput);
        };
        match input.get(end..end + 2) {
            None => return Ok(Parsed::NeedsInput),
            Some(b"\r\n") => at = end + 2,
            Some(_) => return Err(Malformed("a word is longer than it says")),
        }
        words.push(word);
    }
    Ok(Parsed::Whole(words, at))
}

/// Reads a line of a mark and a number; `None` if it is incomplete.
fn number(input: &[u8], at: &mut usize, mark: u8) -> Result<Option<u64>, Malformed> {
    const WRONG: Malformed = Malformed("no request of Redis");
    let rest = &input[*at..];
    let Some(end) = rest.iter().take(LINE).position(|byte| *byte == b'\n') else {
        return match rest.len() >= LINE || rest.first().is_some_and(|first| *first != mark) {
            true => Err(WRONG),
            false => Ok(None),
        };
    };
    let digits = rest[..end]
        .strip_prefix(&[mark])
        .and_then(|line| line.strip_suffix(b"\r"));
    let digits = digits.filter(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit));
    let text = std::str::from_utf8(digits.ok_or(WRONG)?).map_err(|_| WRONG)?;
    *at += end + 1;
    text.parse().map(Some).map_err(|_| WRONG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_when_it_is_complete() {
        let text = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n*1";
        let length = text.len() - 2;
        assert_eq!(parse(text), Ok(Parsed::Whole(vec![b"SET", b"k", b"a\r\nb"], length)));
        for cut in 0..length {
            assert_eq!(parse(&text[..cut]), Ok(Parsed::NeedsInput), "cut to {cut}");
        }
    }

    #[test]
    fn the_length_of_a_long_value_is_known_before_it_comes() {
        let text = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$99999999\r\n";
        assert_eq!(
            parse(text),
            Ok(Parsed::Long(vec![b"SET", b"k"], text.len(), 99_999_999))
        );
        assert!(parse(b"*3\r\n$3\r\nSET\r\n$99999999\r\n").is_err());
    }

    #[test]
    fn hostile_requests_are_refused() {
        for text in [
            b"*1025\r\n".as_slice(),
            b"*-1\r\n",
            b"*1\r\n$-1\r\n",
            b"*1\n",
            b"*1\r\n+OK\r\n",
            b"*1\r\n$1\r\nab\r\n",
            b"*99999999999999999999999999",
            b"*1\r\n$18446744073709551616\r\n",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
