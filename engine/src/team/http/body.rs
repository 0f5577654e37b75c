//! The body of a request: which bytes are content, and where it ends.
//!
//! Pure.

use crate::http::head::Framing;

/// The longest line between two chunks, and the most bytes after the last one.
const LINE: usize = 256;
const TRAILER: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// This many bytes are left.
    Length(u64),
    /// The length of a chunk comes next.
    Size,
    /// This many bytes of a chunk are left.
    Chunk(u64),
    /// The line end after a chunk comes next.
    ChunkEnd,
    /// Lines up to an empty one; so far they had this many bytes.
    Trailer(usize),
    Over,
}

/// The beginning of the input.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'a> {
    Content(&'a [u8]),
    /// This many bytes are not content.
    Frame(usize),
    NeedsInput,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

impl Body {
    pub fn new(framing: Framing) -> Body {
        match framing {
            Framing::Length(0) => Body::Over,
            Framing::Length(length) => Body::Length(length),
            Framing::Chunks => Body::Size,
        }
    }

    pub fn take<'a>(&mut self, input: &'a [u8]) -> Result<Part<'a>, Broken> {
        match self {
            Body::Over => Ok(Part::NeedsInput),
            Body::Length(left) => {
                let content = cut(input, left);
                if *left == 0 {
                    *self = Body::Over;
                }
                Ok(content)
            }
            Body::Chunk(left) => {
                let content = cut(input, left);
                if *left == 0 {
                    *self = Body::ChunkEnd;
                }
                Ok(content)
            }
            Body::Size => {
                let Some(line) = line(input)? else {
                    return Ok(Part::NeedsInput);
                };
                *self = match size(line)? {
                    0 => Body::Trailer(0),
                    size => Body::Chunk(size),
                };
                Ok(Part::Frame(line.len() + 2))
            }
            Body::ChunkEnd => match line(input)? {
                None => Ok(Part::NeedsInput),
                Some(b"") => {
                    *self = Body::Size;
                    Ok(Part::Frame(2))
                }
                Some(_) => Err(Broken),
            },
            Body::Trailer(length) => {
                let Some(line) = line(input)? else {
                    return Ok(Part::NeedsInput);
                };
                *length += line.len() + 2;
                match (line, *length) {
                    (b"", _) => *self = Body::Over,
                    (_, TRAILER..) => return Err(Broken),
                    _ => {}
                }
                Ok(Part::Frame(line.len() + 2))
            }
        }
    }

    pub fn is_over(&self) -> bool {
        *self == Body::Over
    }
}

fn cut<'a>(input: &'a [u8], left: &mut u64) -> Part<'a> {
    let size = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
    *left -= size as u64;
    match size {
        0 => Part::NeedsInput,
        size => Part::Content(&input[..size]),
    }
}

/// The first line, without its end.
fn line(input: &[u8]) -> Result<Option<&[u8]>, Broken> {
    let end = input.iter().take(LINE).position(|byte| *byte == b'\n');
    match end {
        None if input.len() >= LINE => Err(Broken),
        None => Ok(None),
        Some(end) => input[..end].strip_suffix(b"\r").map(Some).ok_or(Broken),
    }
}

/// The size of a chunk: hexadecimal digits, perhaps with extensions after them.
fn size(line: &[u8]) -> Result<u64, Broken> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).map_err(|_| Broken)?;
    u64::from_str_radix(text, 16).ok().filter(|_| is_number).ok_or(Broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The content and the bytes after it, for a stream that comes in pieces of this size.
    fn read(framing: Framing, stream: &[u8], piece: usize) -> Result<(Vec<u8>, Vec<u8>), Broken> {
        let mut body = Body::new(framing);
        let (mut content, mut waiting) = (Vec::new(), Vec::new());
        for piece in stream.chunks(piece) {
            waiting.extend_from_slice(piece);
            loop {
                let used = match body.take(&waiting)? {
                    Part::NeedsInput => break,
                    Part::Frame(used) => used,
                    Part::Content(bytes) => {
                        content.extend_from_slice(bytes);
                        bytes.len()
                    }
                };
                waiting.drain(..used);
            }
        }
        assert!(body.is_over());
        Ok((content, waiting))
    }

    #[test]
    fn a_body_ends_where_it_says_in_pieces_of_any_size() {
        let chunks = b"5\r\nhello\r\n1;x=y\r\n!\r\n00\r\nTrailer: t\r\n\r\nGET";
        for piece in 1..=chunks.len() {
            let found = read(Framing::Chunks, chunks, piece).unwrap();
            assert_eq!(found, (b"hello!".to_vec(), b"GET".to_vec()));
            let found = read(Framing::Length(6), b"hello!GET", piece).unwrap();
            assert_eq!(found, (b"hello!".to_vec(), b"GET".to_vec()));
        }
    }

    #[test]
    fn broken_chunks_are_refused() {
        let long = [b"1;".as_slice(), &[b'x'; LINE]].concat();
        for stream in [
            b"-1\r\n".as_slice(),
            b"+1\r\n",
            b"\r\n",
            b"1\n",
            b"1ffffffffffffffff\r\n",
            b"1\r\nab\r\n",
            &long,
        ] {
            let mut body = Body::new(Framing::Chunks);
            let mut rest = stream;
            let broken = loop {
                match body.take(rest) {
                    Ok(Part::NeedsInput) => break false,
                    Ok(Part::Frame(used)) => rest = &rest[used..],
                    Ok(Part::Content(bytes)) => rest = &rest[bytes.len()..],
                    Err(Broken) => break true,
                }
            };
            assert!(broken, "{stream:?}");
        }
    }
}
