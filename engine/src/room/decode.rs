//! Decodes frames. Every field is bounded by its frame, and any deviation from `docs/room.md` is refused.
//!
//! This file does not know in which order frames may come.

use super::{
    Begun, Bits, Coding, Content, Failure, Hello, Malformed, NotKept, Refusal, Reply, Request, Rights, MAGIC,
    MOST_DIGESTS, MOST_NAME, PIECE,
};
use crate::bytes::digest::Digest;
use crate::bytes::fields::Reader;

type Result<T> = std::result::Result<T, Malformed>;

fn digest(r: &mut Reader<'_>) -> Result<Digest> {
    Ok(Digest(r.array()?))
}

fn digests(r: &mut Reader<'_>) -> Result<Vec<Digest>> {
    let count = usize::from(r.u16()?);
    if count > MOST_DIGESTS {
        return Err(Malformed("too many digests"));
    }
    let bytes = r.take(count * Digest::SIZE)?;
    let digests = bytes.chunks_exact(Digest::SIZE).map(|bytes| {
        let mut digest = [0; Digest::SIZE];
        digest.copy_from_slice(bytes);
        Digest(digest)
    });
    Ok(digests.collect())
}

fn coding(r: &mut Reader<'_>) -> Result<Coding> {
    r.one_of(&[Coding::Plain, Coding::Zstd], |one| one as u8, "unknown coding")
}

/// The rest of a frame, if it is not larger than a piece may be.
fn piece<'a>(r: &mut Reader<'a>) -> Result<&'a [u8]> {
    Some(r.rest())
        .filter(|bytes| bytes.len() <= PIECE)
        .ok_or(Malformed("a piece above 1 MiB"))
}

fn name<'a>(r: &mut Reader<'a>) -> Result<&'a [u8]> {
    Some(r.text()?)
        .filter(|text| text.len() <= MOST_NAME)
        .ok_or(Malformed("a name above 1024 bytes"))
}

fn begun<'a>(r: &mut Reader<'a>) -> Result<Begun<'a>> {
    let begun = Begun {
        digest: digest(r)?,
        coding: coding(r)?,
        size: r.u64()?,
        first: piece(r)?,
    };
    match begun.first.len() as u64 > begun.size {
        true => Err(Malformed("more bytes than the blob has")),
        false => Ok(begun),
    }
}

fn data<'a>(r: &mut Reader<'a>) -> Result<&'a [u8]> {
    match piece(r)? {
        [] => Err(Malformed("a piece of nothing")),
        bytes => Ok(bytes),
    }
}

fn hello<'a>(r: &mut Reader<'a>) -> Result<Hello<'a>> {
    let (lowest, highest) = r.versions(MAGIC)?;
    Ok(Hello {
        lowest,
        highest,
        token: name(r)?,
        namespace: name(r)?,
        name: name(r)?,
    })
}

fn contents<'a>(r: &mut Reader<'a>) -> Result<Vec<Content<'a>>> {
    let count = r.u16()?;
    let mut contents = Vec::new();
    for _ in 0..count {
        contents.push(Content {
            digest: digest(r)?,
            coding: coding(r)?,
            bytes: r.text()?,
        });
    }
    Ok(contents)
}

fn bits(r: &mut Reader<'_>) -> Result<Bits> {
    let count = usize::from(r.u16()?);
    let bytes = r.take(count.div_ceil(8))?.to_vec();
    let spare = bytes.last().filter(|_| count % 8 != 0).map(|last| last >> (count % 8));
    match spare {
        Some(1..) => Err(Malformed("a bit for nothing that was asked")),
        _ => Ok(Bits { count, bytes }),
    }
}

impl<'a> Request<'a> {
    /// Decodes the body of a frame, without its length.
    pub fn decode(frame: &'a [u8]) -> Result<Request<'a>> {
        let mut r = Reader(frame);
        let request = match r.u8()? {
            0x01 => Request::Hello(hello(&mut r)?),
            0x02 => Request::Find {
                id: r.u32()?,
                inline: r.u32()?,
                keys: digests(&mut r)?,
            },
            0x03 => Request::Get {
                id: r.u32()?,
                digests: digests(&mut r)?,
            },
            0x04 => Request::Has {
                id: r.u32()?,
                digests: digests(&mut r)?,
            },
            0x05 => Request::Blob {
                id: r.u32()?,
                begun: begun(&mut r)?,
            },
            0x06 => Request::Data {
                id: r.u32()?,
                bytes: data(&mut r)?,
            },
            0x07 => Request::Entry {
                id: r.u32()?,
                key: digest(&mut r)?,
                needs: digests(&mut r)?,
                bytes: piece(&mut r)?,
            },
            0x08 => Request::Ping { id: r.u32()? },
            0x09 => Request::Abandon { id: r.u32()? },
            _ => return Err(Malformed("unknown kind of request")),
        };
        r.end()?;
        Ok(request)
    }
}

impl<'a> Reply<'a> {
    pub fn decode(frame: &'a [u8]) -> Result<Reply<'a>> {
        let mut r = Reader(frame);
        let reply = match r.u8()? {
            0x81 => Reply::Welcome {
                version: r.u16()?,
                rights: match r.u8()? {
                    rights @ 0..=3 => Rights {
                        read: rights & 1 != 0,
                        write: rights & 2 != 0,
                    },
                    _ => return Err(Malformed("unknown rights")),
                },
                largest: r.u64()?,
                name: name(&mut r)?,
            },
            0x82 => Reply::Refused {
                why: r.one_of(&Refusal::ALL, |one| one as u8, "unknown reason to refuse")?,
                words: name(&mut r)?,
            },
            0x83 => Reply::Found {
                id: r.u32()?,
                number: r.u16()?,
                entry: r.text()?,
                contents: contents(&mut r)?,
            },
            0x84 => Reply::End { id: r.u32()? },
            0x85 => Reply::Blob {
                id: r.u32()?,
                begun: begun(&mut r)?,
            },
            0x86 => Reply::Data {
                id: r.u32()?,
                bytes: data(&mut r)?,
            },
            0x87 => Reply::Missing {
                id: r.u32()?,
                digest: digest(&mut r)?,
            },
            0x88 => Reply::Held {
                id: r.u32()?,
                bits: bits(&mut r)?,
            },
            0x89 => Reply::Kept { id: r.u32()? },
            0x8a => Reply::NotKept {
                id: r.u32()?,
                why: r.one_of(&NotKept::ALL, |one| one as u8, "unknown reason not to keep")?,
                words: name(&mut r)?,
            },
            0x8b => Reply::Pong { id: r.u32()? },
            0x8c => Reply::Failed {
                id: r.u32()?,
                how: r.one_of(&Failure::ALL, |one| one as u8, "unknown kind of failure")?,
                words: name(&mut r)?,
            },
            _ => return Err(Malformed("unknown kind of reply")),
        };
        r.end()?;
        Ok(reply)
    }
}
