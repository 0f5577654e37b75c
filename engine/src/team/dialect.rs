//! What a peer speaks is told by its first bytes; then each dialect makes requests and replies of bytes.

use super::disk_threads::Done;
use super::http::Http;
use super::metrics::Language;
use super::redis::Redis;
use super::room::Room;
use super::shared::Exchange;
use crate::bytes::fields::Malformed;

/// What a dialect did with what has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// It used up so many bytes, perhaps none, and can go on.
    Took(usize),
    /// It needs more than there is.
    Wants,
    /// It goes on when the job is done, or what it said has been sent.
    Held,
    /// It used up so many bytes, and says no more: what was said is sent, then the connection ends.
    Last(usize),
}

pub trait Talk {
    fn advance(&mut self, input: &[u8], exchange: &mut Exchange<'_>) -> Result<Step, Malformed>;

    /// The job that it asked for is done.
    fn done(&mut self, done: Done, exchange: &mut Exchange<'_>) -> Result<(), Malformed>;

    /// A request has begun and not ended, beside what is in the input.
    fn is_midway(&self) -> bool;

    /// How much input has to be here before it can go on, if it takes its requests whole.
    fn needs(&self, _input: &[u8]) -> Option<usize> {
        None
    }
}

/// A dialect that a connection has been found to speak.
pub type Spoken = Box<dyn Talk + Send>;

/// Which dialect a connection speaks that begins with these bytes; `None` if too few have come to tell.
pub type Recognize = fn(&[u8]) -> Result<Option<Spoken>, Malformed>;

pub fn recognize(first: &[u8]) -> Result<Option<Spoken>, Malformed> {
    let of = |language| -> Spoken {
        match language {
            Language::Room => Box::<Room>::default(),
            Language::Http => Box::<Http>::default(),
            Language::Redis => Box::<Redis>::default(),
        }
    };
    language(first).map(|found| found.map(of))
}

/// No two overlap, so a browser, which begins with a method of HTTP, cannot be taken for anything else.
fn language(first: &[u8]) -> Result<Option<Language>, Malformed> {
    let Some(first) = first.first_chunk::<4>() else {
        return Ok(None);
    };
    match first {
        // A greeting's length, below 4096.
        [_, 0..=0x10, 0, 0] => Ok(Some(Language::Room)),
        [b'*', b'0'..=b'9', ..] => Ok(Some(Language::Redis)),
        [b'A'..=b'Z', b'A'..=b'Z', ..] => Ok(Some(Language::Http)),
        _ => Err(Malformed("no greeting of any protocol that is spoken here")),
    }
}

/// What a connection speaks, once that is known.
pub struct Dialect {
    recognize: Recognize,
    spoken: Option<Spoken>,
}

impl Dialect {
    pub fn unknown(recognize: Recognize) -> Dialect {
        let spoken = None;
        Dialect { recognize, spoken }
    }

    pub fn advance(&mut self, input: &[u8], exchange: &mut Exchange<'_>) -> Result<Step, Malformed> {
        if let Some(spoken) = &mut self.spoken {
            return spoken.advance(input, exchange);
        }
        self.spoken = (self.recognize)(input)?;
        match self.spoken {
            None => Ok(Step::Wants),
            Some(_) => Ok(Step::Took(0)),
        }
    }

    pub fn done(&mut self, done: Done, exchange: &mut Exchange<'_>) -> Result<(), Malformed> {
        self.spoken
            .as_mut()
            .map_or(Ok(()), |spoken| spoken.done(done, exchange))
    }

    pub fn needs(&self, input: &[u8]) -> Option<usize> {
        self.spoken.as_ref()?.needs(input)
    }

    pub fn is_midway(&self) -> bool {
        self.spoken.as_ref().is_some_and(|spoken| spoken.is_midway())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::{Hello, Request};

    #[test]
    fn each_dialect_is_told_by_its_first_bytes() {
        assert_eq!(language(b"GET /"), Ok(Some(Language::Http)));
        assert_eq!(language(b"*1\r\n$4"), Ok(Some(Language::Redis)));
        assert_eq!(language(b"GE"), Ok(None));
        assert!(language(b"\x16\x03\x01\x02").is_err());
    }

    /// Whatever its length is as a letter.
    #[test]
    fn a_greeting_of_any_length_is_one() {
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
