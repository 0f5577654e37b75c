//! A tier on another wafd, by the protocol of `docs/room.md`, or on a cluster, by way of `wafd-cluster`.
//!
//! Lookups and uploads use separate connections, so that no lookup waits behind a large upload.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::ClientConfig;

use super::cluster::{Program, STORE};
use super::counts::Counts;
use super::heartbeat::Heartbeat;
use super::line::{Exchange, Line};
use super::stream::{fault, secret, tls, Stream};
use super::{Fault, Shape, Tier};
use crate::bytes::digest::Digest;
use crate::bytes::frame::Inbox;
use crate::cache::lookup::entry::Entry;
use crate::cache::remote::bundle::Bundle;
use crate::cache::remote::wrapped::{Wrapped, LARGEST_BLOB};
use crate::cache::remote::{Load, Offer};
use crate::room::{
    Begun, Coding, Content, Failure, Hello, Malformed, NotKept, Refusal, Reply, Request, Rights, GREETING_CAP,
    MOST_DIGESTS, PIECE, VERSION,
};
use crate::settings::address::{Address, Scheme};
use crate::trust::signature::Sealed;

/// Blobs up to this size come with the entries.
const INLINE: u32 = 256 << 10;
/// Limit for all blobs of one answer.
const MOST_BYTES: usize = 256 << 20;
/// How many questions are under slot at once. Each has all keys that have gathered.
const WORKERS: usize = 4;
/// The answer to one question is used when it is complete.
const BATCH: usize = 128;
/// An upload to a cluster takes four answers, one after the other.
const UPLOADS_TO_CLUSTER: usize = 4;
/// A connection that was idle for longer may be dead. Finding that out would cost a time-out.
const MAX_IDLE: Duration = Duration::from_secs(30);

pub struct Room {
    address: Address,
    token: String,
    tls: Option<Arc<ClientConfig>>,
    /// The program that passes our questions on to a cluster. None for another wafd.
    program: Option<Arc<Program>>,
    counts: Arc<Counts>,
    lookups: Slot,
    uploads: Slot,
}

/// A connection, when there is one.
#[derive(Default)]
struct Slot(Mutex<Option<Open>>);

#[derive(Clone)]
struct Open {
    line: Arc<Line>,
    rights: Rights,
    largest: u64,
}

impl Room {
    pub fn new(address: &Address, counts: &Arc<Counts>) -> Result<Room, String> {
        let token = match &address.token_file {
            Some(_) => secret(address)?,
            None => address.user.clone(),
        };
        let program = match address.scheme {
            Scheme::Grpc => Some(Program::of(address)?),
            _ => None,
        };
        Ok(Room {
            token: token.unwrap_or_default(),
            tls: tls(address)?,
            program,
            address: address.clone(),
            counts: counts.clone(),
            lookups: Slot::default(),
            uploads: Slot::default(),
        })
    }

    /// The connection, and whether it was already there.
    fn open(&self, slot: &Slot, heartbeat: &Arc<Heartbeat>) -> Result<(Open, bool), Fault> {
        let mut place = slot.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*place {
            Some(open) if open.line.is_idle_for(MAX_IDLE) => open.line.close(),
            Some(open) if open.line.is_open() => return Ok((open.clone(), true)),
            _ => {}
        }
        let open = self.connect(heartbeat)?;
        *place = Some(open.clone());
        Ok((open, false))
    }

    fn connect(&self, heartbeat: &Arc<Heartbeat>) -> Result<Open, Fault> {
        let failed = |error: std::io::Error| fault(&error, heartbeat);
        let (mut stream, token, namespace) = match &self.program {
            // It has the whole address.
            Some(program) => (Stream::over(program.connect(STORE, heartbeat)?, heartbeat), "", ""),
            None => {
                let stream = Stream::connect(&self.address, self.tls.as_ref(), heartbeat).map_err(failed)?;
                (stream, &self.token[..], &self.address.path[..])
            }
        };
        let host = rustix::system::uname();
        let hello = Request::Hello(Hello {
            lowest: VERSION,
            highest: VERSION,
            token: token.as_bytes(),
            namespace: namespace.as_bytes(),
            name: host.nodename().to_bytes(),
        });
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        stream.write_all(&bytes).and_then(|()| stream.flush()).map_err(failed)?;
        let mut inbox = Inbox::new(GREETING_CAP);
        let mut byte = [0; 1];
        loop {
            // Byte by byte: what follows the greeting belongs to the next reader.
            stream.read_exact(&mut byte).map_err(failed)?;
            inbox.push(&byte);
            let Some(frame) = inbox.take().map_err(|_| Fault::garbled())? else {
                continue;
            };
            return match Reply::decode(frame) {
                Ok(Reply::Welcome {
                    version: VERSION,
                    rights,
                    largest,
                    ..
                }) => Ok(Open {
                    line: Line::start(stream, heartbeat)?,
                    rights,
                    largest,
                }),
                Ok(Reply::Refused { why, .. }) => Err(refused(why)),
                reply => Err(unexpected(reply)),
            };
        }
    }

    /// Does something over the connection. If an idle connection turns out to be closed, it tries once more over a new one.
    fn with<T>(
        &self,
        slot: &Slot,
        heartbeat: &Arc<Heartbeat>,
        act: impl Fn(&Open) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let (open, was_there) = self.open(slot, heartbeat)?;
        let done = act(&open);
        match &done {
            Err(Fault::Failed(_)) if was_there && !open.line.is_open() => act(&self.open(slot, heartbeat)?.0),
            Err(Fault::Silent(_)) if !self.is_alive(&open, heartbeat) => {
                open.line.close();
                done
            }
            _ => done,
        }
    }

    /// Whether the program that passes questions on is well, so that only the cluster is silent.
    fn is_alive(&self, open: &Open, heartbeat: &Heartbeat) -> bool {
        self.program.is_some() && open.line.has_heard_within(heartbeat.limits.silence)
    }

    fn find_by(&self, open: &Open, keys: &[Digest], heartbeat: &Heartbeat) -> Result<Vec<Bundle>, Fault> {
        if !open.rights.read {
            return Err(Fault::Failed("its token may not read".to_owned()));
        }
        let mut answer = open.line.ask(|id, out| {
            let (inline, keys) = (INLINE, keys.to_vec());
            Request::Find { id, inline, keys }.encode(out);
        })?;
        let mut bundles = vec![Bundle::default(); keys.len()];
        let mut blobs = HashMap::new();
        let mut size = 0;
        loop {
            let frame = answer.next(heartbeat)?;
            size += frame.len();
            match Reply::decode(&frame) {
                _ if size > MOST_BYTES => return Err(Fault::garbled()),
                Ok(Reply::Found {
                    number,
                    entry,
                    contents,
                    ..
                }) => {
                    let bundle = bundles.get_mut(usize::from(number)).ok_or_else(Fault::garbled)?;
                    bundle.entries.push(entry.to_vec());
                    blobs.extend(contents.iter().map(|content| (content.digest, wrapped(content))));
                }
                Ok(Reply::End { .. }) => break,
                reply => return Err(unexpected(reply)),
            }
        }
        self.counts.came_in(size);
        distribute_blobs(&mut bundles, &blobs);
        Ok(bundles)
    }

    fn fetch_by(&self, open: &Open, wanted: &[Digest], heartbeat: &Heartbeat) -> Result<Vec<Option<Wrapped>>, Fault> {
        let mut answer = open.line.ask(|id, out| {
            let digests = wanted.to_vec();
            Request::Get { id, digests }.encode(out);
        })?;
        let mut fetched: HashMap<Digest, Wrapped> = HashMap::new();
        let mut current: Option<(Digest, u64)> = None;
        let mut size = 0;
        loop {
            let frame = answer.next(heartbeat)?;
            size += frame.len();
            match Reply::decode(&frame) {
                _ if size > MOST_BYTES => return Err(Fault::garbled()),
                Ok(Reply::Blob { begun, .. })
                    if begun.size <= LARGEST_BLOB as u64
                        && wanted.contains(&begun.digest)
                        && !fetched.contains_key(&begun.digest) =>
                {
                    let blob = Wrapped {
                        coding: begun.coding as u8,
                        bytes: begun.first.to_vec(),
                    };
                    fetched.insert(begun.digest, blob);
                    current = Some((begun.digest, begun.size));
                }
                Ok(Reply::Data { bytes, .. }) => {
                    let (digest, whole) = current.ok_or_else(Fault::garbled)?;
                    let blob = fetched.get_mut(&digest).ok_or_else(Fault::garbled)?;
                    if (blob.bytes.len() + bytes.len()) as u64 > whole {
                        return Err(Fault::garbled());
                    }
                    blob.bytes.extend_from_slice(bytes);
                }
                Ok(Reply::Missing { .. }) => {}
                Ok(Reply::End { .. }) => break,
                reply => return Err(unexpected(reply)),
            }
        }
        self.counts.came_in(fetched.values().map(|blob| blob.bytes.len()).sum());
        Ok(wanted.iter().map(|digest| fetched.remove(digest)).collect())
    }

    fn offer_by(&self, open: &Open, offer: &Offer, load: &Load, heartbeat: &Heartbeat) -> Result<(), Fault> {
        if !open.rights.write {
            return Err(Fault::Declined("its token may not write".to_owned()));
        }
        if offer.entry.len() > PIECE || offer.needs.len() > MOST_DIGESTS {
            return Err(Fault::Declined("too large".to_owned()));
        }
        let mut answers = Vec::new();
        for digest in self.lacking(open, &offer.needs, heartbeat)? {
            let blob = load(&digest).ok_or_else(|| Fault::Declined("it was gone already".to_owned()))?;
            if blob.bytes.len() as u64 > open.largest {
                return Err(Fault::Declined("too large".to_owned()));
            }
            answers.push(open.line.ask(|id, out| send_blob(id, digest, &blob, out))?);
            self.counts.went_out(blob.bytes.len());
        }
        for answer in &mut answers {
            require_kept(answer, heartbeat)?;
        }
        let mut answer = open.line.ask(|id, out| {
            let (key, needs, bytes) = (offer.key, offer.needs.clone(), &offer.entry[..]);
            Request::Entry { id, key, needs, bytes }.encode(out);
        })?;
        self.counts.went_out(offer.entry.len());
        require_kept(&mut answer, heartbeat)
    }

    fn lacking(&self, open: &Open, needs: &[Digest], heartbeat: &Heartbeat) -> Result<Vec<Digest>, Fault> {
        if needs.is_empty() {
            return Ok(Vec::new());
        }
        let mut answer = open.line.ask(|id, out| {
            let digests = needs.to_vec();
            Request::Has { id, digests }.encode(out);
        })?;
        let frame = answer.next(heartbeat)?;
        match Reply::decode(&frame) {
            Ok(Reply::Held { bits, .. }) if bits.len() == needs.len() => {
                let lacking = needs.iter().zip(bits.iter()).filter(|(_, is_held)| !is_held);
                Ok(lacking.map(|(digest, _)| *digest).collect())
            }
            reply => Err(unexpected(reply)),
        }
    }
}

impl Tier for Room {
    fn shape(&self) -> Shape {
        Shape {
            workers: WORKERS,
            batch: BATCH,
            uploads: match self.program {
                Some(_) => UPLOADS_TO_CLUSTER,
                None => 1,
            },
        }
    }

    fn find(&self, keys: &[Digest], heartbeat: &Arc<Heartbeat>) -> Result<Vec<Bundle>, Fault> {
        self.with(&self.lookups, heartbeat, |open| self.find_by(open, keys, heartbeat))
    }

    fn fetch(&self, wanted: &[Digest], heartbeat: &Arc<Heartbeat>) -> Result<Vec<Option<Wrapped>>, Fault> {
        self.with(&self.lookups, heartbeat, |open| self.fetch_by(open, wanted, heartbeat))
    }

    fn offer(&self, offer: &Offer, load: &Load, heartbeat: &Arc<Heartbeat>) -> Result<(), Fault> {
        self.with(&self.uploads, heartbeat, |open| {
            self.offer_by(open, offer, load, heartbeat)
        })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        for slot in [&self.lookups, &self.uploads] {
            let open = slot.0.lock().unwrap_or_else(PoisonError::into_inner).take();
            open.iter().for_each(|open| open.line.close());
        }
    }
}

fn wrapped(content: &Content<'_>) -> Wrapped {
    Wrapped {
        coding: content.coding as u8,
        bytes: content.bytes.to_vec(),
    }
}

/// A blob comes once, even if several entries need it.
fn distribute_blobs(bundles: &mut [Bundle], blobs: &HashMap<Digest, Wrapped>) {
    for bundle in bundles {
        let entries = bundle
            .entries
            .iter()
            .filter_map(|bytes| Entry::decode(Sealed::read(bytes).entry).ok());
        let needed = entries.flat_map(|entry| entry.blobs());
        let at_hand = needed.filter_map(|digest| Some((digest, blobs.get(&digest)?.clone())));
        bundle.blobs = at_hand.collect();
    }
}

fn send_blob(id: u32, digest: Digest, blob: &Wrapped, out: &mut Vec<u8>) {
    let (first, rest) = blob.bytes.split_at(blob.bytes.len().min(PIECE));
    let coding = match blob.coding {
        0 => Coding::Plain,
        _ => Coding::Zstd,
    };
    let size = blob.bytes.len() as u64;
    let begun = Begun {
        digest,
        coding,
        size,
        first,
    };
    Request::Blob { id, begun }.encode(out);
    for bytes in rest.chunks(PIECE) {
        Request::Data { id, bytes }.encode(out);
    }
}

fn require_kept(answer: &mut Exchange<'_>, heartbeat: &Heartbeat) -> Result<(), Fault> {
    let frame = answer.next(heartbeat)?;
    match Reply::decode(&frame) {
        Ok(Reply::Kept { .. }) => Ok(()),
        reply => Err(unexpected(reply)),
    }
}

/// For a reply that is not the one that was asked for.
fn unexpected(reply: Result<Reply<'_>, Malformed>) -> Fault {
    match reply {
        Ok(Reply::NotKept { why, .. }) => Fault::Declined(not_kept(why).to_owned()),
        Ok(Reply::Failed { how, words, .. }) => {
            let words = String::from_utf8_lossy(words).into_owned();
            match how {
                Failure::Failed => Fault::Failed(words),
                Failure::Silent => Fault::Silent(words),
                Failure::Declined => Fault::Declined(words),
            }
        }
        _ => Fault::garbled(),
    }
}

fn refused(why: Refusal) -> Fault {
    let words = match why {
        Refusal::Version => "it speaks another version; update the older one",
        Refusal::Token => "it does not know the token; write tcp://TOKEN@HOST:PORT, or token-file",
        Refusal::Namespace => "the token is for another namespace",
        Refusal::Crowded => "it has too many connections",
        Refusal::Leaving => "it is leaving",
        Refusal::Rate => "it has too many requests",
    };
    Fault::Failed(words.to_owned())
}

fn not_kept(why: NotKept) -> &'static str {
    match why {
        NotKept::Lacks => "it lacks a blob",
        NotKept::ReadOnly => "its token may not write",
        NotKept::TooLarge => "too large",
        NotKept::Digest => "what came did not have its digest",
        NotKept::Full => "it is full",
        NotKept::Malformed => "what came could not be unpacked",
        NotKept::Failed => "it could not write",
    }
}
