//! What a peer speaks is told by its first bytes; then each dialect makes requests and replies of bytes.

use super::http::Http;
use super::office::Desk;
use super::porters::Done;
use super::redis::Redis;
use super::room::Room;
use crate::fields::Malformed;

/// What a dialect did with what has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// It used up so many bytes, perhaps none, and can go on.
    Took(usize),
    /// It needs more than there is.
    Wants,
    /// It goes on when the errand is done, or what it said has been sent.
    Held,
    /// It used up so many bytes, and says no more: what was said is sent, then the connection ends.
    Last(usize),
}

pub trait Talk {
    fn advance(&mut self, input: &[u8], desk: &mut Desk<'_>) -> Result<Step, Malformed>;

    /// The errand that it asked for is done.
    fn done(&mut self, done: Done, desk: &mut Desk<'_>) -> Result<(), Malformed>;

    /// A request has begun and not ended, beside what is in the input.
    fn is_midway(&self) -> bool;

    /// How much input has to be here before it can go on, if it takes its requests whole.
    fn needs(&self, _input: &[u8]) -> Option<usize> {
        None
    }
}

pub enum Dialect {
    Unknown,
    Room(Box<Room>),
    Http(Box<Http>),
    Redis(Box<Redis>),
}

impl Dialect {
    /// Which it is; `None` if too few bytes have come to tell.
    fn of(first: &[u8]) -> Result<Option<Dialect>, Malformed> {
        let Some(first) = first.first_chunk::<4>() else {
            return Ok(None);
        };
        match first {
            // A greeting's length, below 4096.
            [_, 0..=0x10, 0, 0] => Ok(Some(Dialect::Room(Box::default()))),
            [b'*', b'0'..=b'9', ..] => Ok(Some(Dialect::Redis(Box::default()))),
            [b'A'..=b'Z', b'A'..=b'Z', ..] => Ok(Some(Dialect::Http(Box::default()))),
            _ => Err(Malformed("no greeting of any protocol that is spoken here")),
        }
    }

    fn talk(&mut self) -> Option<&mut dyn Talk> {
        match self {
            Dialect::Unknown => None,
            Dialect::Room(room) => Some(&mut **room),
            Dialect::Http(http) => Some(&mut **http),
            Dialect::Redis(redis) => Some(&mut **redis),
        }
    }

    pub fn advance(&mut self, input: &[u8], desk: &mut Desk<'_>) -> Result<Step, Malformed> {
        if let Some(talk) = self.talk() {
            return talk.advance(input, desk);
        }
        match Dialect::of(input)? {
            None => Ok(Step::Wants),
            Some(dialect) => {
                *self = dialect;
                Ok(Step::Took(0))
            }
        }
    }

    pub fn done(&mut self, done: Done, desk: &mut Desk<'_>) -> Result<(), Malformed> {
        self.talk().map_or(Ok(()), |talk| talk.done(done, desk))
    }

    pub fn needs(&mut self, input: &[u8]) -> Option<usize> {
        self.talk()?.needs(input)
    }

    pub fn is_midway(&mut self) -> bool {
        self.talk().is_some_and(|talk| talk.is_midway())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::{Hello, Request};

    #[test]
    fn each_dialect_is_told_by_its_first_bytes() {
        assert!(matches!(Dialect::of(b"GET /"), Ok(Some(Dialect::Http(_)))));
        assert!(matches!(Dialect::of(b"*1\r\n$4"), Ok(Some(Dialect::Redis(_)))));
        assert!(matches!(Dialect::of(b"GE"), Ok(None)));
        assert!(Dialect::of(b"\x16\x03\x01\x02").is_err());
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
            assert!(matches!(Dialect::of(&bytes), Ok(Some(Dialect::Room(_)))), "{length}");
        }
    }
}
