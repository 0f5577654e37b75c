//! The dialect of other engines: `docs/room.md`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::dialect::{Dialect, Step};
use super::disk_threads::{Done, Job};
use super::memory_cache::{Encoded, Form};
use super::metrics::{Language, Outcome};
use super::outbox::{Body, Wrapping};
use super::shared::{Admission, Exchange};
use super::upload::Upload;
use super::value_store::{self, Lookup, NamespacedKey, NotStored};
use crate::bytes::digest::Digest;
use crate::bytes::fields::Malformed;
use crate::bytes::frame;
use crate::files::folder::ENGINE;
use crate::room::{
    Begun, Bits, Coding, Content, Hello, NotKept, Refusal, Reply, Request, FRAME_CAP, GREETING_CAP, MOST_NAME, PIECE,
    VERSION,
};

/// How many uploads of one connection may be under way.
const UPLOADS: usize = 64;
/// Blobs up to this size are sent in one frame.
const WHOLE: u64 = 64 << 10;

#[derive(Default)]
pub struct Room {
    is_greeted: bool,
    uploads: HashMap<u32, Incoming>,
    /// The request that is being answered.
    work: Option<Work>,
    /// The upload that is being stored.
    storing: Option<(u32, Digest, u64)>,
    has_job: bool,
}

struct Incoming {
    digest: Digest,
    coding: Coding,
    size: u64,
    upload: Upload,
}

enum Work {
    Find(Find),
    Get { id: u32, left: VecDeque<Digest> },
}

struct Find {
    id: u32,
    inline: u32,
    keys: Vec<Digest>,
    /// The position of the next key.
    next: usize,
    /// Entries of the previous key that are not sent yet.
    found: VecDeque<(Arc<Encoded>, Vec<Digest>)>,
    /// The blobs that were sent with an entry.
    sent: HashSet<Digest>,
}

impl Dialect for Room {
    fn advance(&mut self, input: &[u8], exchange: &mut Exchange<'_>) -> Result<Step, Malformed> {
        if self.has_job {
            return Ok(Step::Waits);
        }
        if let Some(work) = self.work.take() {
            match work {
                Work::Find(find) => self.find(find, exchange),
                Work::Get { id, left } => self.get(id, left, exchange),
            }
            return Ok(Step::Used(0));
        }
        let cap = if self.is_greeted { FRAME_CAP } else { GREETING_CAP };
        let Some(frame) = frame::first(input, cap)? else {
            return Ok(Step::NeedsInput);
        };
        let took = 4 + frame.len();
        match (Request::decode(frame)?, exchange.admission.clone()) {
            (Request::Hello(hello), None) => Ok(self.greet(&hello, took, exchange)),
            (request, Some(admission)) if self.is_greeted => {
                self.take(request, &admission, exchange)?;
                Ok(Step::Used(took))
            }
            _ => Err(Malformed("a greeting comes first and once")),
        }
    }

    fn done(&mut self, done: Done, exchange: &mut Exchange<'_>) -> Result<(), Malformed> {
        self.has_job = false;
        match done {
            Done::Opened(body) => {
                if let Some(Work::Get { id, left }) = &mut self.work {
                    if let Some(digest) = left.pop_front() {
                        send_blob(*id, &digest, body, exchange);
                    }
                }
            }
            Done::Stored(stored) => {
                if let Some((id, digest, size)) = self.storing.take() {
                    reply_blob(id, &digest, size, &stored, exchange);
                }
            }
        }
        Ok(())
    }

    fn is_in_request(&self) -> bool {
        !self.uploads.is_empty()
    }

    fn needs(&self, input: &[u8]) -> Option<usize> {
        Some(4 + frame::length(input).unwrap_or(0).min(FRAME_CAP))
    }
}

impl Room {
    fn greet(&mut self, hello: &Hello<'_>, took: usize, exchange: &mut Exchange<'_>) -> Step {
        let refuse = |why, words: &str, exchange: &mut Exchange<'_>| {
            let words = words.as_bytes();
            exchange.out.reply(&Reply::Refused { why, words });
            *exchange.admission = None;
            Step::Close(took)
        };
        if hello.lowest > VERSION || hello.highest < VERSION {
            return refuse(Refusal::Version, "this server speaks version 1", exchange);
        }
        if exchange.shared.is_leaving() {
            return refuse(Refusal::Leaving, "this server is leaving", exchange);
        }
        let Some(admission) = exchange.admit(hello.token) else {
            return refuse(Refusal::Token, "this server knows no such token", exchange);
        };
        let own = admission.holder.namespace.as_bytes();
        if !hello.namespace.is_empty() && hello.namespace != own {
            return refuse(Refusal::Namespace, "this token is for another namespace", exchange);
        }
        self.is_greeted = true;
        exchange.out.reply(&Reply::Welcome {
            version: VERSION,
            rights: admission.holder.rights,
            largest: exchange.shared.limits.blob,
            name: format!("wafd {ENGINE}").as_bytes(),
        });
        Step::Used(took)
    }

    fn take(
        &mut self,
        request: Request<'_>,
        admission: &Admission,
        exchange: &mut Exchange<'_>,
    ) -> Result<(), Malformed> {
        match request {
            Request::Hello(_) => return Err(Malformed("a greeting comes once")),
            Request::Find { id, inline, keys } => {
                let namespace = &admission.holder.namespace;
                let key = |key: &Digest| value_store::key("room", namespace, &key.0);
                self.work = Some(Work::Find(Find {
                    id,
                    inline,
                    keys: keys.iter().map(key).collect(),
                    next: 0,
                    found: VecDeque::new(),
                    sent: HashSet::new(),
                }));
            }
            Request::Get { id, digests } => {
                self.work = Some(Work::Get {
                    id,
                    left: digests.into(),
                });
            }
            Request::Has { id, digests } => {
                let has = |digest: &Digest| exchange.shared.values.store.has_blob(digest);
                let bits: Bits = digests.iter().map(has).collect();
                exchange.count(Language::Room, Outcome::Other);
                exchange.out.reply(&Reply::Held { id, bits });
            }
            Request::Blob { id, begun } => self.begin(id, &begun, admission, exchange)?,
            Request::Data { id, bytes } => self.more(id, bytes, exchange),
            Request::Entry { id, key, needs, bytes } => {
                let stored = match admission.holder.rights.write {
                    false => Err(read_only()),
                    true => {
                        let key = NamespacedKey::of("room", &admission.holder.namespace, &key.0);
                        exchange.shared.values.keep_entry(&key, bytes, &needs)
                    }
                };
                if stored.is_ok() {
                    exchange.log_write("entry", &key.to_string(), bytes.len() as u64);
                }
                reply_stored(id, &stored, exchange);
            }
            Request::Ping { id } => exchange.out.reply(&Reply::Pong { id }),
            Request::Abandon { id } => drop(self.uploads.remove(&id)),
        }
        Ok(())
    }

    fn begin(
        &mut self,
        id: u32,
        begun: &Begun<'_>,
        admission: &Admission,
        exchange: &mut Exchange<'_>,
    ) -> Result<(), Malformed> {
        let largest = exchange.shared.limits.blob;
        let refused = match () {
            () if !admission.holder.rights.write => Some(read_only()),
            () if begun.size > largest => {
                let words = format!("{largest} bytes are the most");
                Some(NotStored::new(NotKept::TooLarge, words))
            }
            () => None,
        };
        if let Some(refused) = refused {
            reply_stored(id, &Err(refused), exchange);
            return Ok(());
        }
        if exchange.shared.values.store.hold_blob(&begun.digest) {
            reply_stored(id, &Ok(()), exchange);
            return Ok(());
        }
        if self.uploads.len() >= UPLOADS {
            return Err(Malformed("too many uploads at a time"));
        }
        let incoming = Incoming {
            digest: begun.digest,
            coding: begun.coding,
            size: begun.size,
            upload: exchange.shared.uploads.begin(),
        };
        if self.uploads.insert(id, incoming).is_some() {
            return Err(Malformed("an upload of this number is under way"));
        }
        self.more(id, begun.first, exchange);
        Ok(())
    }

    /// Adds bytes to an upload. If it was already answered, more of it may still come, and is ignored.
    fn more(&mut self, id: u32, bytes: &[u8], exchange: &mut Exchange<'_>) {
        let Some(incoming) = self.uploads.get_mut(&id) else {
            return;
        };
        let added = match incoming.upload.length + bytes.len() as u64 > incoming.size {
            true => Err(NotStored::new(NotKept::Malformed, "more bytes came than were told")),
            false => exchange
                .shared
                .uploads
                .add(&mut incoming.upload, bytes)
                .map_err(NotStored::from),
        };
        if added.is_err() {
            self.uploads.remove(&id);
            reply_stored(id, &added, exchange);
        } else if incoming.upload.length == incoming.size {
            if let Some(incoming) = self.uploads.remove(&id) {
                self.store(id, incoming, exchange);
            }
        }
    }

    fn store(&mut self, id: u32, incoming: Incoming, exchange: &mut Exchange<'_>) {
        let (digest, coding, size) = (incoming.digest, incoming.coding, incoming.size);
        let is_small = incoming.upload.is_small();
        let content = match incoming.upload.finish() {
            Ok(content) => content,
            Err(error) => return reply_stored(id, &Err(error.into()), exchange),
        };
        if is_small {
            let stored = exchange.shared.values.keep_blob(&digest, coding, content);
            return reply_blob(id, &digest, size, &stored, exchange);
        }
        self.storing = Some((id, digest, size));
        self.has_job = true;
        *exchange.job = Some(Job::on_disk(move |values| {
            Done::Stored(values.keep_blob(&digest, coding, content))
        }));
    }

    /// Answers until there is much to send.
    fn find(&mut self, mut find: Find, exchange: &mut Exchange<'_>) {
        while !exchange.out.is_clogged() {
            if let Some((entry, needs)) = find.found.pop_front() {
                find.send(&entry, &needs, exchange);
                continue;
            }
            let Some(key) = find.keys.get(find.next) else {
                return exchange.out.reply(&Reply::End { id: find.id });
            };
            find.found = exchange.shared.values.entries(key).into();
            find.next += 1;
            let is_miss = find.found.is_empty();
            exchange.count(Language::Room, if is_miss { Outcome::Miss } else { Outcome::Hit });
        }
        self.work = Some(Work::Find(find));
    }

    /// Answers until there is much to send, or a blob must be read from the disk.
    fn get(&mut self, id: u32, mut left: VecDeque<Digest>, exchange: &mut Exchange<'_>) {
        while !exchange.out.is_clogged() {
            let Some(digest) = left.front().copied() else {
                return exchange.out.reply(&Reply::End { id });
            };
            let body = match exchange.shared.values.look_up(&digest, Form::Short) {
                Lookup::Missing => None,
                Lookup::Found(body) => Some(body),
                Lookup::OnDisk(job) => {
                    self.has_job = true;
                    *exchange.job = Some(job);
                    break;
                }
            };
            left.pop_front();
            send_blob(id, &digest, body, exchange);
        }
        self.work = Some(Work::Get { id, left });
    }
}

impl Find {
    /// Sends an entry, with those of its blobs that are small and in memory.
    fn send(&mut self, entry: &Encoded, needs: &[Digest], exchange: &mut Exchange<'_>) {
        let Some(mut room) = PIECE.checked_sub(entry.bytes.len()) else {
            return;
        };
        let mut along = Vec::new();
        for digest in needs {
            let values = &exchange.shared.values;
            // Sizes on the disk are rounded up to blocks.
            let is_small = values
                .store
                .size_of(digest)
                .is_some_and(|size| size <= u64::from(self.inline) + 4096);
            if !is_small || self.sent.contains(digest) {
                continue;
            }
            if let Lookup::Found(Body::Memory(encoded)) = values.look_up(digest, Form::Short) {
                if encoded.bytes.len() <= room.min(self.inline as usize) {
                    room -= encoded.bytes.len();
                    self.sent.insert(*digest);
                    along.push((*digest, encoded));
                }
            }
        }
        exchange.count_sent(along.iter().map(|(_, encoded)| encoded.bytes.len() as u64).sum());
        exchange.out.reply(&Reply::Found {
            id: self.id,
            number: (self.next - 1) as u16,
            entry: &entry.bytes,
            contents: along.iter().map(content).collect(),
        });
    }
}

fn content((digest, encoded): &(Digest, Arc<Encoded>)) -> Content<'_> {
    Content {
        digest: *digest,
        coding: encoded.coding,
        bytes: &encoded.bytes,
    }
}

fn read_only() -> NotStored {
    NotStored::new(NotKept::ReadOnly, "this token may only read")
}

fn send_blob(id: u32, digest: &Digest, body: Option<Body>, exchange: &mut Exchange<'_>) {
    let Some(body) = body else {
        exchange.count(Language::Room, Outcome::Miss);
        return exchange.out.reply(&Reply::Missing { id, digest: *digest });
    };
    exchange.count(Language::Room, Outcome::Hit);
    exchange.count_sent(body.length());
    let begun = Begun {
        digest: *digest,
        coding: body.coding(),
        size: body.length(),
        first: &[],
    };
    match &body {
        Body::Memory(encoded) if body.length() <= WHOLE => {
            let first = &encoded.bytes;
            exchange.out.reply(&Reply::Blob {
                id,
                begun: Begun { first, ..begun },
            });
        }
        _ => {
            exchange.out.reply(&Reply::Blob { id, begun });
            exchange.out.content(body, 0, Wrapping::Data(id));
        }
    }
}

fn reply_blob(id: u32, digest: &Digest, size: u64, stored: &Result<(), NotStored>, exchange: &mut Exchange<'_>) {
    if stored.is_ok() {
        exchange.log_write("blob", &digest.to_string(), size);
    }
    reply_stored(id, stored, exchange);
}

fn reply_stored(id: u32, stored: &Result<(), NotStored>, exchange: &mut Exchange<'_>) {
    match stored {
        Ok(()) => {
            exchange.count(Language::Room, Outcome::Stored);
            exchange.out.reply(&Reply::Kept { id });
        }
        Err(not) => {
            exchange.count(Language::Room, Outcome::NotStored);
            let words = &not.words.as_bytes()[..not.words.len().min(MOST_NAME)];
            exchange.out.reply(&Reply::NotKept {
                id,
                why: not.why,
                words,
            });
        }
    }
}
