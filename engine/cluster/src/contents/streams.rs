//! Large contents, which come and go in pieces, packed by zstd where the cluster offers it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use bazel_remote_apis::google::bytestream::byte_stream_client::ByteStreamClient;
use bazel_remote_apis::google::bytestream::{ReadRequest, WriteRequest};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use super::{wrong_content, Contents, Source, Written};
use crate::capabilities::MESSAGE;
use crate::connection::{fault, silent, within, Channel, Fault};
use crate::digests::Digest;

/// The bytes of one message.
const PIECE: usize = 1 << 20;
/// How many pieces are read ahead.
const PIECES: usize = 2;
/// No other level is worth its time on a fast network.
const LEVEL: i32 = 1;
/// While a content is read into memory, no more is reserved before it comes.
const RESERVED: u64 = 16 << 20;

fn client(contents: &Contents) -> ByteStreamClient<Channel> {
    ByteStreamClient::new(contents.0.connection.channel()).max_decoding_message_size(2 * MESSAGE)
}

/// The name of a content, for uploads behind a name that is used once.
fn name(contents: &Contents, digest: &Digest, is_packed: bool, upload: Option<&str>) -> String {
    let instance = contents.0.connection.instance();
    let kind = if is_packed { "compressed-blobs/zstd" } else { "blobs" };
    let mut name = String::new();
    if !instance.is_empty() {
        name = format!("{instance}/");
    }
    if let Some(upload) = upload {
        name += &format!("uploads/{upload}/");
    }
    name + &format!("{kind}/{}", digest.resource())
}

/// Receives a content, and compares it with its digest.
struct Receiver<W> {
    into: W,
    hash: Sha256,
    left: u64,
}

impl<W: Write> Receiver<W> {
    fn new(digest: &Digest, into: W) -> Receiver<W> {
        Receiver {
            into,
            hash: Sha256::new(),
            left: digest.size,
        }
    }

    fn has(&self, digest: &Digest) -> bool {
        let hash: [u8; 32] = self.hash.clone().finalize().into();
        self.left == 0 && hash == digest.hash
    }
}

impl<W: Write> Write for Receiver<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self
            .left
            .checked_sub(bytes.len() as u64)
            .ok_or(io::ErrorKind::FileTooLarge)?;
        self.hash.update(bytes);
        self.into.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.into.flush()
    }
}

/// None if the cluster does not have it.
pub async fn read(contents: &Contents, digest: &Digest) -> Result<Option<Bytes>, Fault> {
    let into = Vec::with_capacity(digest.size.min(RESERVED) as usize);
    let received = receive(contents, digest, into).await?;
    Ok(received.map(Bytes::from))
}

/// Writes it to a new file. False, and no file, if the cluster does not have it.
pub async fn read_to_file(contents: &Contents, digest: &Digest, path: &Path) -> Result<bool, Fault> {
    let failed = |error: io::Error| Fault::Failed(format!("write {}: {error}", path.display()));
    let file = File::create_new(path).map_err(failed)?;
    let received = receive(contents, digest, file).await;
    if !matches!(received, Ok(Some(_))) {
        std::fs::remove_file(path).map_err(failed)?;
    }
    Ok(received?.is_some())
}

async fn receive<W: Write>(contents: &Contents, digest: &Digest, into: W) -> Result<Option<W>, Fault> {
    let is_packed = contents.capabilities().await?.has_packed_streams;
    let receiver = Receiver::new(digest, into);
    let receiver = match is_packed {
        false => copy(contents, digest, is_packed, receiver).await?,
        true => {
            let unpacking = zstd::stream::write::Decoder::new(receiver);
            let unpacking = unpacking.map_err(|error| Fault::Failed(format!("zstd: {error}")))?;
            let done = copy(contents, digest, is_packed, unpacking).await?;
            done.map(zstd::stream::write::Decoder::into_inner)
        }
    };
    match receiver {
        None => Ok(None),
        Some(receiver) if receiver.has(digest) => Ok(Some(receiver.into)),
        Some(_) => Err(wrong_content()),
    }
}

/// Passes on what comes. None if the cluster does not have it.
async fn copy<W: Write>(
    contents: &Contents,
    digest: &Digest,
    is_packed: bool,
    mut into: W,
) -> Result<Option<W>, Fault> {
    let _call = contents.take_turn().await;
    let request = ReadRequest {
        resource_name: name(contents, digest, is_packed, None),
        read_offset: 0,
        read_limit: 0,
    };
    let mut client = client(contents);
    let begun = tokio::time::timeout(contents.0.limits.silence, client.read(request)).await;
    let mut pieces = match begun {
        Err(_) => return Err(silent(contents.0.limits.silence)),
        Ok(Ok(answer)) => answer.into_inner(),
        Ok(Err(status)) if status.code() == Code::NotFound => return Ok(None),
        Ok(Err(status)) => return Err(fault(&status)),
    };
    loop {
        let next = tokio::time::timeout(contents.0.limits.silence, pieces.message()).await;
        match next {
            Err(_) => return Err(silent(contents.0.limits.silence)),
            Ok(Ok(Some(piece))) => into.write_all(&piece.data).map_err(|error| match error.kind() {
                io::ErrorKind::FileTooLarge | io::ErrorKind::Other | io::ErrorKind::InvalidData => wrong_content(),
                _ => Fault::Failed(format!("a content was not written: {error}")),
            })?,
            Ok(Ok(None)) => break,
            Ok(Err(status)) if status.code() == Code::NotFound => return Ok(None),
            Ok(Err(status)) => return Err(fault(&status)),
        }
    }
    into.flush()
        .map_err(|error| Fault::Failed(format!("a content was not written: {error}")))?;
    Ok(Some(into))
}

pub async fn write(contents: &Contents, digest: &Digest, source: Source) -> Result<Written, Fault> {
    let is_packed = contents.capabilities().await?.has_packed_streams;
    let _call = contents.take_turn().await;
    let (pieces, taken) = mpsc::channel(PIECES);
    let feeder = Feeder {
        digest: *digest,
        name: name(contents, digest, is_packed, Some(&upload_name()?)),
        is_packed,
        pieces,
    };
    let feeding = tokio::task::spawn_blocking(move || feeder.feed(source));
    let answer = within(
        contents.0.limits.whole,
        client(contents).write(ReceiverStream::new(taken)),
    )
    .await;
    let fed = match feeding.await {
        Ok(fed) => fed?,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    };
    let committed = answer?.into_inner().committed_size;
    // A cluster that has a content already need not take it. It then tells the whole size, or -1 of a packed one.
    let has_it = committed == digest.size as i64 || (is_packed && committed == -1);
    if !has_it && fed.is_none_or(|sent| committed != sent as i64) {
        return Err(Fault::Failed("it took only a part of a content".to_owned()));
    }
    Ok(Written {
        blobs: 1,
        bytes: fed.unwrap_or_default(),
        calls: 1,
    })
}

/// Reads a content, and passes it on in pieces.
struct Feeder {
    digest: Digest,
    name: String,
    is_packed: bool,
    pieces: mpsc::Sender<WriteRequest>,
}

impl Feeder {
    /// The number of bytes that were passed on, or none if not all were taken.
    fn feed(&self, source: Source) -> Result<Option<u64>, Fault> {
        let failed = |error: io::Error| Fault::Declined(format!("a content was not read for its upload: {error}"));
        let reader: Box<dyn Read> = match &source {
            Source::Bytes(bytes) => Box::new(&bytes[..]),
            Source::File(path) => Box::new(File::open(path).map_err(failed)?),
        };
        let mut reader = Hashing {
            from: reader,
            hash: Sha256::new(),
            size: 0,
        };
        let sent = match self.is_packed {
            false => self.pass_on(&mut reader),
            true => zstd::stream::read::Encoder::new(&mut reader, LEVEL).and_then(|packed| self.pass_on(packed)),
        };
        let Some(sent) = sent.map_err(failed)? else {
            return Ok(None);
        };
        if (reader.size, <[u8; 32]>::from(reader.hash.finalize())) != (self.digest.size, self.digest.hash) {
            return Err(Fault::Declined("a file changed while it was uploaded".to_owned()));
        }
        let is_taken = self.send(sent, Vec::new(), true);
        Ok(is_taken.then_some(sent))
    }

    fn pass_on(&self, mut reader: impl Read) -> io::Result<Option<u64>> {
        let mut sent = 0;
        loop {
            let mut data = Vec::with_capacity(PIECE);
            reader.by_ref().take(PIECE as u64).read_to_end(&mut data)?;
            let size = data.len() as u64;
            if size == 0 {
                return Ok(Some(sent));
            }
            if !self.send(sent, data, false) {
                return Ok(None);
            }
            sent += size;
        }
    }

    /// Whether it was taken.
    fn send(&self, write_offset: u64, data: Vec<u8>, finish_write: bool) -> bool {
        let request = WriteRequest {
            resource_name: self.name.clone(),
            write_offset: write_offset as i64,
            finish_write,
            data,
        };
        self.pieces.blocking_send(request).is_ok()
    }
}

struct Hashing<R> {
    from: R,
    hash: Sha256,
    size: u64,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.hash.update(&buffer[..read]);
        self.size += read as u64;
        Ok(read)
    }
}

/// A name that no other upload has.
fn upload_name() -> Result<String, Fault> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Fault::Declined(format!("no random numbers: {error}")))?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}
