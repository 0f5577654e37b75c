//! One connection of the engine, in the protocol of `docs/room.md`. Each request is a task of its own.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::UnixStream;
use tokio::sync::Mutex as Turns;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use wafengine::bytes::digest::Digest as Name;
use wafengine::bytes::frame::Inbox;
use wafengine::cache::remote::wrapped::LARGEST_BLOB;
use wafengine::room::{
    Begun, Content, Failure, NotKept, Reply, Request, Rights, FRAME_CAP, GREETING_CAP, MOST_NAME, PIECE, VERSION,
};

use super::incoming::{Answer, Blob, Incoming};
use super::known::Place;
use super::store::{Fetched, Store};
use crate::connection::{Fault, NOT_PERMITTED};

const CHUNK: usize = 64 << 10;
/// The engine greets at once.
const GREETING: Duration = Duration::from_secs(5);
/// How often the engine hears that this program is well, while it waits for the cluster.
const TICK: Duration = Duration::from_millis(250);
/// An engine that reads nothing for this long is given up.
const READING: Duration = Duration::from_secs(30);
/// How many requests are under way at once. Further ones are not read.
const MOST_REQUESTS: usize = 64;

/// Serves the connection until the engine closes it.
pub async fn serve(stream: UnixStream, store: Arc<Store>) {
    let (reader, writer) = stream.into_split();
    let visit = Arc::new(Visit {
        store,
        writer: Turns::new(writer),
        incoming: Mutex::default(),
        may_not_write: AtomicBool::new(false),
    });
    if let Err(error) = visit.run(reader).await {
        log::debug!("a connection of the engine: {error}");
    }
}

struct Visit {
    store: Arc<Store>,
    writer: Turns<OwnedWriteHalf>,
    incoming: Mutex<Incoming>,
    /// The cluster has refused to take something.
    may_not_write: AtomicBool,
}

/// What there is to do for a request, once its bytes are not needed any more.
enum Task {
    Find { id: u32, inline: u32, keys: Vec<Name> },
    Get { id: u32, names: Vec<Name> },
    Has { id: u32, names: Vec<Name> },
    Keep { id: u32, upload: Upload },
    Answer { id: u32, answer: Result<(), NotKept> },
    Pong { id: u32 },
}

struct Upload {
    key: Name,
    entry: Vec<u8>,
    sent: Vec<(Name, Blob)>,
    there: Vec<(Name, Place)>,
}

impl Visit {
    async fn run(self: &Arc<Self>, mut reader: OwnedReadHalf) -> io::Result<()> {
        let mut inbox = Inbox::new(GREETING_CAP);
        let greeting = tokio::time::timeout(GREETING, self.greet(&mut reader, &mut inbox));
        if !greeting.await.map_err(|_| io::ErrorKind::TimedOut)?? {
            return Ok(());
        }
        inbox.raise_cap(FRAME_CAP);
        // Tasks end with this set: the engine does not wait for them any more.
        let mut tasks = JoinSet::new();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut chunk = vec![0; CHUNK];
        loop {
            while let Some(frame) = inbox.take().map_err(|why| io::Error::other(why.0))? {
                let request = Request::decode(frame).map_err(|why| io::Error::other(why.0))?;
                if let Some(task) = self.task(request)? {
                    let this = self.clone();
                    tasks.spawn(async move { this.act(task).await });
                }
            }
            inbox.trim();
            tokio::select! {
                read = reader.read(&mut chunk), if tasks.len() < MOST_REQUESTS => match read? {
                    0 => return Ok(()),
                    read => inbox.push(&chunk[..read]),
                },
                Some(done) = tasks.join_next() => match done {
                    Ok(done) => done?,
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                },
                _ = tick.tick(), if !tasks.is_empty() => self.tell_that_we_are_well().await?,
            }
        }
    }

    /// Whether there will be requests.
    async fn greet(&self, reader: &mut OwnedReadHalf, inbox: &mut Inbox) -> io::Result<bool> {
        let mut chunk = [0; 1024];
        loop {
            if let Some(frame) = inbox.take().map_err(|why| io::Error::other(why.0))? {
                return match Request::decode(frame) {
                    Ok(Request::Hello(hello)) if (hello.lowest..=hello.highest).contains(&VERSION) => {
                        self.welcome().await
                    }
                    _ => Err(io::Error::other("what came is no greeting")),
                };
            }
            match reader.read(&mut chunk).await? {
                0 => return Ok(false),
                read => inbox.push(&chunk[..read]),
            }
        }
    }

    async fn welcome(&self) -> io::Result<bool> {
        if let Some(why) = self.store.mistake() {
            self.fail(0, &Fault::Failed(why)).await?;
            return Ok(false);
        }
        let welcome = Reply::Welcome {
            version: VERSION,
            rights: Rights {
                read: true,
                write: true,
            },
            largest: LARGEST_BLOB as u64,
            name: b"wafd-cluster",
        };
        self.send(&welcome).await?;
        Ok(true)
    }

    fn task(&self, request: Request<'_>) -> io::Result<Option<Task>> {
        let mut incoming = self.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        let blob = |id, answer: Answer| answer.map(|answer| Task::Answer { id, answer });
        Ok(match request {
            Request::Hello(_) => return Err(io::Error::other("a greeting comes once")),
            Request::Find { id, inline, keys } => Some(Task::Find { id, inline, keys }),
            Request::Get { id, digests } => Some(Task::Get { id, names: digests }),
            Request::Has { id, digests } => Some(Task::Has { id, names: digests }),
            Request::Blob { id, begun } => blob(id, incoming.begin(id, &begun)),
            Request::Data { id, bytes } => blob(id, incoming.add(id, bytes)),
            Request::Entry { id, key, needs, bytes } => {
                let mut upload = Upload {
                    key,
                    entry: bytes.to_vec(),
                    sent: Vec::new(),
                    there: Vec::new(),
                };
                for name in needs {
                    match (incoming.take(&name), self.store.place(&name)) {
                        (Some(blob), _) => upload.sent.push((name, blob)),
                        (None, Some(place)) => upload.there.push((name, place)),
                        (None, None) => {
                            let answer = Err(NotKept::Lacks);
                            return Ok(Some(Task::Answer { id, answer }));
                        }
                    }
                }
                Some(Task::Keep { id, upload })
            }
            Request::Ping { id } => Some(Task::Pong { id }),
            Request::Abandon { id } => {
                incoming.abandon(id);
                None
            }
        })
    }

    async fn act(&self, task: Task) -> io::Result<()> {
        let (id, done) = match task {
            Task::Find { id, inline, keys } => (id, self.find(id, inline, &keys).await?),
            Task::Get { id, names } => (id, self.get(id, &names).await?),
            Task::Has { id, names } => (id, self.has(id, &names).await?),
            Task::Keep { id, upload } => (id, self.keep(id, upload).await?),
            Task::Answer { id, answer: Ok(()) } => return self.send(&Reply::Kept { id }).await,
            Task::Answer { id, answer: Err(why) } => return self.refuse(id, why).await,
            Task::Pong { id } => return self.send(&Reply::Pong { id }).await,
        };
        match done {
            Ok(()) => Ok(()),
            Err(fault) => self.fail(id, &fault).await,
        }
    }

    async fn find(&self, id: u32, inline: u32, keys: &[Name]) -> io::Result<Result<(), Fault>> {
        let all = match self.store.find(keys).await {
            Ok(all) => all,
            Err(fault) => return Ok(Err(fault)),
        };
        let along = self.store.along(&all, inline).await;
        let mut sent = HashSet::new();
        for (number, held) in all.iter().enumerate() {
            for entry in &held.entries {
                let Some(room) = PIECE.checked_sub(entry.len()) else {
                    continue;
                };
                let found = Reply::Found {
                    id,
                    number: number as u16,
                    entry,
                    contents: fitting(&held.places, &along, room, &mut sent),
                };
                self.send(&found).await?;
            }
        }
        self.send(&Reply::End { id }).await?;
        Ok(Ok(()))
    }

    async fn get(&self, id: u32, names: &[Name]) -> io::Result<Result<(), Fault>> {
        let fetched = match self.store.fetch(names).await {
            Ok(fetched) => fetched,
            Err(fault) => return Ok(Err(fault)),
        };
        for digest in names.iter().copied() {
            let Some((coding, bytes)) = fetched.get(&digest) else {
                self.send(&Reply::Missing { id, digest }).await?;
                continue;
            };
            let (first, rest) = bytes.split_at(bytes.len().min(PIECE));
            let begun = Begun {
                digest,
                coding: *coding,
                size: bytes.len() as u64,
                first,
            };
            self.send(&Reply::Blob { id, begun }).await?;
            for bytes in rest.chunks(PIECE) {
                self.send(&Reply::Data { id, bytes }).await?;
            }
        }
        self.send(&Reply::End { id }).await?;
        Ok(Ok(()))
    }

    async fn has(&self, id: u32, names: &[Name]) -> io::Result<Result<(), Fault>> {
        if let Err(why) = self.may_write().await {
            return self.answer_upload(id, Err(why)).await;
        }
        let bits = match self.store.has(names).await {
            Ok(are_held) => are_held.into_iter().collect(),
            Err(fault) => return Ok(Err(fault)),
        };
        self.send(&Reply::Held { id, bits }).await?;
        Ok(Ok(()))
    }

    async fn keep(&self, id: u32, upload: Upload) -> io::Result<Result<(), Fault>> {
        let mut kept = self.may_write().await;
        if kept.is_ok() {
            let Upload {
                key,
                entry,
                sent,
                there,
            } = upload;
            kept = self.store.keep(key, entry, sent, there).await;
        }
        self.answer_upload(id, kept).await
    }

    /// Asks the cluster only once.
    async fn may_write(&self) -> Result<(), Fault> {
        match self.may_not_write.load(Ordering::Relaxed) || !self.store.is_writable().await? {
            true => Err(not_permitted()),
            false => Ok(()),
        }
    }

    async fn answer_upload(&self, id: u32, kept: Result<(), Fault>) -> io::Result<Result<(), Fault>> {
        match kept {
            Ok(()) => self.send(&Reply::Kept { id }).await?,
            Err(fault) if fault == not_permitted() => {
                self.may_not_write.store(true, Ordering::Relaxed);
                self.refuse(id, NotKept::ReadOnly).await?;
            }
            Err(fault) => return Ok(Err(fault)),
        }
        Ok(Ok(()))
    }

    async fn refuse(&self, id: u32, why: NotKept) -> io::Result<()> {
        self.send(&Reply::NotKept { id, why, words: b"" }).await
    }

    async fn fail(&self, id: u32, fault: &Fault) -> io::Result<()> {
        let how = match fault {
            Fault::Failed(_) => Failure::Failed,
            Fault::Silent(_) => Failure::Silent,
            Fault::Declined(_) => Failure::Declined,
        };
        let words = fault.words().as_bytes();
        let words = &words[..words.len().min(MOST_NAME)];
        self.send(&Reply::Failed { id, how, words }).await
    }

    async fn send(&self, reply: &Reply<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        let mut writer = self.writer.lock().await;
        tokio::time::timeout(READING, writer.write_all(&bytes))
            .await
            .map_err(|_| io::ErrorKind::TimedOut)?
    }

    /// While something else is sent, the engine hears that.
    async fn tell_that_we_are_well(&self) -> io::Result<()> {
        let mut bytes = Vec::new();
        Reply::Pong { id: 0 }.encode(&mut bytes);
        match self.writer.try_lock() {
            // No more than the socket takes at once.
            Ok(mut writer) => writer.write_all(&bytes).await,
            Err(_) => Ok(()),
        }
    }
}

/// What the cluster says if a caller may not do something.
fn not_permitted() -> Fault {
    Fault::Declined(NOT_PERMITTED.to_owned())
}

/// The blobs that come along with an entry, if they have not been sent and fit beside it.
fn fitting<'a>(
    places: &HashMap<Name, Place>,
    along: &'a HashMap<Name, Fetched>,
    mut room: usize,
    sent: &mut HashSet<Name>,
) -> Vec<Content<'a>> {
    let mut contents = Vec::new();
    for digest in places.keys().copied() {
        let Some((coding, bytes)) = along.get(&digest) else {
            continue;
        };
        if bytes.len() <= room && sent.insert(digest) {
            room -= bytes.len();
            contents.push(Content {
                digest,
                coding: *coding,
                bytes,
            });
        }
    }
    contents
}
