//! The frames between the engine and `wafd-cluster`: commands that are to run elsewhere, and what became of them.
//!
//! Pure. `bytes::frame` cuts a stream into the bodies that are decoded here.

use crate::bytes::digest::Digest;
use crate::bytes::fields::{put_numbered as put, put_text, Malformed, Reader};

type Result<T> = std::result::Result<T, Malformed>;
type Bytes = Vec<u8>;

/// A blob of an entry is at most so large.
pub const LARGEST_BLOB: usize = 64 << 20;
/// All blobs of an entry together.
pub const MOST_BYTES: usize = 256 << 20;
/// The largest frame: a blob, and the fields around it.
pub const FRAME_CAP: usize = LARGEST_BLOB + (1 << 10);
/// The most paths, words or variables of one command.
pub const MOST_PARTS: usize = 1 << 17;

/// A command, and all that it may need of this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Execute {
    pub id: u32,
    /// The build to which it belongs.
    pub session: [u8; 16],
    /// How long it may take there, in milliseconds, with its time in queues.
    pub time: u64,
    /// The absolute path of the program, and its arguments.
    pub argv: Vec<Bytes>,
    /// `NAME=value`
    pub environment: Vec<Bytes>,
    pub folder: Bytes,
    /// Absolute paths without links and dots, as all others here.
    pub files: Vec<Bytes>,
    /// Folders that must be there, even if nothing is in them.
    pub folders: Vec<Bytes>,
    /// Links, and what is in them.
    pub links: Vec<(Bytes, Bytes)>,
    /// The folders in which nothing may be that is not sent.
    pub places: Vec<Bytes>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    Execute(Box<Execute>),
    /// The result is not wanted any more.
    Cancel {
        id: u32,
    },
}

/// Why there is no entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The cluster does not answer.
    Silent = 1,
    /// It fails, or its answers are none.
    Failed = 2,
    /// It works, and does not run this command.
    Declined = 3,
    /// The command ran, and its worker has no entry of it.
    NoEntry = 4,
    /// A file of this machine could not be read, or changed meanwhile.
    Changed = 5,
}

impl Failure {
    pub const ALL: [Failure; 5] = [
        Failure::Silent,
        Failure::Failed,
        Failure::Declined,
        Failure::NoEntry,
        Failure::Changed,
    ];

    fn number(self) -> u8 {
        self as u8
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply<'a> {
    /// A blob of the entry that will follow.
    Blob { id: u32, bytes: &'a [u8] },
    /// The last frame about a command that has a result.
    Entry { id: u32, key: Digest, bytes: &'a [u8] },
    /// The last frame about one that has none.
    Why { id: u32, why: Failure, words: &'a [u8] },
    /// How many bytes of contents went to the cluster, and came from it, since this was last said. It is about all commands.
    Moved { id: u32, sent: u64, received: u64 },
}

fn put_count(out: &mut Bytes, count: usize) {
    out.extend((count as u32).to_le_bytes());
}

fn put_texts(out: &mut Bytes, texts: &[Bytes]) {
    put_count(out, texts.len());
    texts.iter().for_each(|text| put_text(out, text));
}

impl Request {
    pub fn encode(&self, out: &mut Bytes) {
        match self {
            Request::Execute(execute) => put(out, 0x01, execute.id, |out| {
                out.extend(execute.session);
                out.extend(execute.time.to_le_bytes());
                put_text(out, &execute.folder);
                let lists = [
                    &execute.argv,
                    &execute.environment,
                    &execute.files,
                    &execute.folders,
                    &execute.places,
                ];
                lists.iter().for_each(|list| put_texts(out, list));
                put_count(out, execute.links.len());
                for (path, text) in &execute.links {
                    put_text(out, path);
                    put_text(out, text);
                }
            }),
            Request::Cancel { id } => put(out, 0x02, *id, |_| ()),
        }
    }

    pub fn decode(frame: &[u8]) -> Result<Request> {
        let mut from = Reader(frame);
        let (kind, id) = (from.u8()?, from.u32()?);
        let request = match kind {
            0x01 => {
                let (session, time) = (from.array()?, from.u64()?);
                let folder = from.text()?.to_vec();
                Request::Execute(Box::new(Execute {
                    id,
                    session,
                    time,
                    folder,
                    argv: texts(&mut from)?,
                    environment: texts(&mut from)?,
                    files: texts(&mut from)?,
                    folders: texts(&mut from)?,
                    places: texts(&mut from)?,
                    links: links(&mut from)?,
                }))
            }
            0x02 => Request::Cancel { id },
            _ => return Err(Malformed("an unknown kind of request")),
        };
        from.end()?;
        Ok(request)
    }
}

impl Reply<'_> {
    pub fn id(&self) -> u32 {
        match self {
            Reply::Blob { id, .. } | Reply::Entry { id, .. } | Reply::Why { id, .. } | Reply::Moved { id, .. } => *id,
        }
    }

    pub fn encode(&self, out: &mut Bytes) {
        match self {
            Reply::Blob { id, bytes } => put(out, 0x81, *id, |out| out.extend(*bytes)),
            Reply::Entry { id, key, bytes } => put(out, 0x82, *id, |out| {
                out.extend(key.0);
                out.extend(*bytes);
            }),
            Reply::Why { id, why, words } => put(out, 0x83, *id, |out| {
                out.push(why.number());
                out.extend(*words);
            }),
            Reply::Moved { id, sent, received } => put(out, 0x84, *id, |out| {
                out.extend(sent.to_le_bytes());
                out.extend(received.to_le_bytes());
            }),
        }
    }

    pub fn decode(frame: &[u8]) -> Result<Reply<'_>> {
        let mut from = Reader(frame);
        let (kind, id) = (from.u8()?, from.u32()?);
        let reply = match kind {
            0x81 => Reply::Blob { id, bytes: from.rest() },
            0x82 => Reply::Entry {
                id,
                key: Digest(from.array()?),
                bytes: from.rest(),
            },
            0x83 => Reply::Why {
                id,
                why: from.one_of(&Failure::ALL, Failure::number, "an unknown failure")?,
                words: from.rest(),
            },
            0x84 => Reply::Moved {
                id,
                sent: from.u64()?,
                received: from.u64()?,
            },
            _ => return Err(Malformed("an unknown kind of reply")),
        };
        from.end()?;
        Ok(reply)
    }
}

fn count(from: &mut Reader<'_>) -> Result<usize> {
    let count = from.u32()? as usize;
    match count <= MOST_PARTS {
        true => Ok(count),
        false => Err(Malformed("more parts than a command has")),
    }
}

fn texts(from: &mut Reader<'_>) -> Result<Vec<Bytes>> {
    let count = count(from)?;
    (0..count).map(|_| from.text().map(<[u8]>::to_vec)).collect()
}

fn links(from: &mut Reader<'_>) -> Result<Vec<(Bytes, Bytes)>> {
    let count = count(from)?;
    let link = |_| Ok((from.text()?.to_vec(), from.text()?.to_vec()));
    (0..count).map(link).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::frame::first;

    fn some() -> Execute {
        let texts = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        Execute {
            id: 7,
            session: [3; 16],
            time: 1 << 40,
            argv: texts("/usr/bin/gcc -c a.c"),
            environment: texts("PATH=/bin LANG="),
            folder: b"/home/u/p".to_vec(),
            files: texts("/home/u/p/a.c"),
            folders: texts("/home/u/p/build /home/u/p/include"),
            links: vec![(b"/home/u/q".to_vec(), b"p".to_vec())],
            places: texts("/home/u"),
        }
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        for request in [Request::Execute(Box::new(some())), Request::Cancel { id: 9 }] {
            let mut bytes = Vec::new();
            request.encode(&mut bytes);
            let frame = first(&bytes, FRAME_CAP).unwrap().unwrap();
            assert_eq!(Request::decode(frame), Ok(request));
            for cut in 0..frame.len() {
                assert!(Request::decode(&frame[..cut]).is_err(), "{cut}");
            }
        }
    }

    #[test]
    fn a_reply_is_read_as_it_was_written() {
        let key = Digest::of(b"key");
        let why = Failure::NoEntry;
        for reply in [
            Reply::Blob { id: 1, bytes: b"blob" },
            Reply::Entry {
                id: 1,
                key,
                bytes: b"facts",
            },
            Reply::Why {
                id: 2,
                why,
                words: b"it failed",
            },
            Reply::Moved {
                id: 3,
                sent: 1 << 40,
                received: 0,
            },
        ] {
            let mut bytes = Vec::new();
            reply.encode(&mut bytes);
            let frame = first(&bytes, FRAME_CAP).unwrap().unwrap();
            assert_eq!(Reply::decode(frame), Ok(reply));
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for frame in [
            &b""[..],
            &[1, 0, 0, 0],
            &[9, 0, 0, 0, 0],
            &[0x83, 0, 0, 0, 0, 77],
            &[0x82, 0, 0, 0, 0, 1],
            &[0x84, 0, 0, 0, 0, 1],
        ] {
            assert!(
                Request::decode(frame).is_err() && Reply::decode(frame).is_err(),
                "{frame:?}"
            );
        }
        let mut bytes = Vec::new();
        Request::Cancel { id: 1 }.encode(&mut bytes);
        bytes.push(0);
        assert!(Request::decode(&bytes[4..]).is_err());
    }
}
