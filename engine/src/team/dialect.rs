//! The first bytes of a connection show which protocol the peer uses. Its dialect then decodes requests and encodes replies.

use super::disk_threads::Done;
use super::http::Http;
use super::metrics::Language;
use super::redis::Redis;
use super::room::Room;
use super::shared::Exchange;
use crate::bytes::fields::Malformed;

/// What a dialect has done with the input.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// It has used this many bytes, perhaps none, and can go on.
    Used(usize),
    NeedsInput,
    /// It goes on when the job is done, or its replies have been sent.
    Waits,
    /// It has used this many bytes, and answers no more requests. The connection ends when all replies are sent.
    Close(usize),
}

pub trait Dialect {
    fn advance(&mut self, input: &[u8], exchange: &mut Exchange<'_>) -> Result<Step, Malformed>;

    /// Takes the result of the job that it has asked for.
    fn done(&mut self, done: Done, exchange: &mut Exchange<'_>) -> Result<(), Malformed>;

    /// Whether a request has begun and not ended, not counting bytes that are still in the input.
    fn is_in_request(&self) -> bool;

    /// How much input it needs before it can go on, if it takes its requests whole.
    fn needs(&self, _input: &[u8]) -> Option<usize> {
        None
    }
}

pub type BoxedDialect = Box<dyn Dialect + Send>;

/// The dialect of a connection that begins with these bytes; `None` if there are too few of them.
pub type Recognize = fn(&[u8]) -> Result<Option<BoxedDialect>, Malformed>;

pub fn recognize(first: &[u8]) -> Result<Option<BoxedDialect>, Malformed> {
    let of = |language| -> BoxedDialect {
        match language {
            Language::Room => Box::<Room>::default(),
            Language::Http => Box::<Http>::default(),
            Language::Redis => Box::<Redis>::default(),
        }
    };
    language(first).map(|found| found.map(of))
}

/// The patterns exclude each other. So a browser, which begins with a method of HTTP, is never taken for another client.
fn language(first: &[u8]) -> Result<Option<Language>, Malformed> {
    let Some(first) = first.first_chunk::<4>() else {
        return Ok(None);
    };
    match first {
        // The length of a greeting, below 4096.
        [_, 0..=0x10, 0, 0] => Ok(Some(Language::Room)),
        [b'*', b'0'..=b'9', ..] => Ok(Some(Language::Redis)),
        [b'A'..=b'Z', b'A'..=b'Z', ..] => Ok(Some(Language::Http)),
        _ => Err(Malformed("no greeting of any protocol that is spoken here")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::{Hello, Request};

    #[test]
    fn each_dialect_is_recognized_by_its_first_bytes() {
        assert_eq!(language(b"GET /"), Ok(Some(Language::Http)));
        assert_eq!(language(b"*1\r\n$4"), Ok(Some(Language::Redis)));
        assert_eq!(language(b"GE"), Ok(None));
        assert!(language(b"\x16\x03\x01\x02").is_err());
    }

    /// The first byte of the length may be any letter.
    #[test]
    fn a_greeting_of_any_length_is_recognized() {
        for length in 0..=1024 {
            let token = vec![b'x'; length];
            let mut bytes = Vec::new();
            Request::Hello(Hello {
                lowest: 1,
                highest: 1,
                token: &token,
                namespace: b"",
                name: b"",
            })
            .encode(&mut bytes);
            assert_eq!(language(&bytes), Ok(Some(Language::Room)), "{length}");
        }
    }
}
