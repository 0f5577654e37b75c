//! Large contents, which come and go in pieces, packed by zstd where the cluster offers it.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use bazel_remote_apis::google::bytestream::byte_stream_client::ByteStreamClient;
use bazel_remote_apis::google::bytestream::{ReadRequest, WriteRequest};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tonic::Code;

use super::{apart, load, next_within, wrong_content, Contents, Source, Written};
use crate::capabilities::MESSAGE;
use crate::connection::{within, Channel, Fault};
use crate::digests::Digest;

/// The bytes of one message.
const PIECE: usize = 1 << 20;
/// Larger contents are not read into memory. They are sent as they are.
const LARGEST_PACKED: u64 = 256 << 20;
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
        Err(_) => return Err(crate::connection::silent(contents.0.limits.silence)),
        Ok(Ok(answer)) => answer.into_inner(),
        Ok(Err(status)) if status.code() == Code::NotFound => return Ok(None),
        Ok(Err(status)) => return Err(crate::connection::fault(&status)),
    };
    loop {
        let next = tokio::time::timeout(contents.0.limits.silence, pieces.message()).await;
        match next {
            Err(_) => return Err(crate::connection::silent(contents.0.limits.silence)),
            Ok(Ok(Some(piece))) => into.write_all(&piece.data).map_err(|error| match error.kind() {
                io::ErrorKind::FileTooLarge | io::ErrorKind::Other | io::ErrorKind::InvalidData => wrong_content(),
                _ => Fault::Failed(format!("a content was not written: {error}")),
            })?,
            Ok(Ok(None)) => break,
            Ok(Err(status)) if status.code() == Code::NotFound => return Ok(None),
            Ok(Err(status)) => return Err(crate::connection::fault(&status)),
        }
    }
    into.flush()
        .map_err(|error| Fault::Failed(format!("a content was not written: {error}")))?;
    Ok(Some(into))
}

pub async fn write(contents: &Contents, digest: &Digest, source: Source) -> Result<Written, Fault> {
    let is_packed = contents.capabilities().await?.has_packed_streams && digest.size <= LARGEST_PACKED;
    let _call = contents.take_turn().await;
    let upload = upload_name();
    let name = name(contents, digest, is_packed, Some(&upload));
    let (pieces, taken) = tokio::sync::mpsc::channel(2);
    let requests = tokio_stream::wrappers::ReceiverStream::new(taken);
    let sender = tokio::spawn(send(*digest, source, is_packed, name, pieces));
    let mut client = client(contents);
    let answer = within(contents.0.limits.whole, client.write(requests)).await;
    let sent = match sender.is_finished() || answer.is_err() {
        // The server needs no more of it: it has the content already.
        false => {
            sender.abort();
            Ok(digest.size)
        }
        true => match sender.await {
            Ok(sent) => sent,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        },
    };
    let committed = answer?.into_inner().committed_size;
    let sent = sent?;
    // A server that has a content tells its whole size, or for packed ones -1.
    let is_whole = committed == sent as i64 || committed == digest.size as i64 || (is_packed && committed == -1);
    if !is_whole {
        return Err(Fault::Failed("it took only a part of a content".to_owned()));
    }
    Ok(Written {
        blobs: 1,
        bytes: sent,
        calls: 1,
    })
}

/// Sends the pieces, until nobody takes them; the number of bytes that were sent.
async fn send(
    digest: Digest,
    source: Source,
    is_packed: bool,
    name: String,
    pieces: tokio::sync::mpsc::Sender<WriteRequest>,
) -> Result<u64, Fault> {
    todo!()
}

/// A name that no other upload has.
fn upload_name() -> String {
    let mut bytes = [0; 16];
    // Without random numbers the name is the same for all, which servers refuse; then nothing is uploaded.
    let _ = getrandom::fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
