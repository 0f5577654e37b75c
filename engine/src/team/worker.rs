//! A thread that serves its own connections. Only its `epoll` call blocks.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{debug, error, info, warn};
use rustc_hash::FxHashMap;
use rustix::event::{epoll, Timespec};

use super::connection::{Connection, End};
use super::disk_threads::{Done, Job};
use super::mailbox::{Arrival, Mailbox, Message};
use super::metrics::{add, Rejection};
use super::shared::Shared;
use super::value_store::Value;
use crate::process::fault;

const SCRATCH: usize = 256 << 10;
const EVENTS: usize = 256;
/// Values are stored together as soon as they have more bytes than this.
const BATCH: usize = 256 << 10;
/// The event of the mailbox.
const MAILBOX: u64 = u64::MAX;
const TICK: Duration = Duration::from_secs(1);
/// If a request came this soon after the previous one, the worker polls this long for the next one before it sleeps. To be
/// woken would take as long as to answer.
const POLL_TIME: Duration = Duration::from_micros(60);
/// How often connections that wait for memory try again. The connections of any worker may give some back.
const MEMORY_RETRY: Duration = Duration::from_millis(5);
/// How long requests that are under way may take when the server ends.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Worker {
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    epoll: OwnedFd,
    connections: FxHashMap<u64, Connection>,
    /// The connections that have shown no token, in the order in which they came.
    unauthenticated: BTreeSet<u64>,
    /// The connections that wait for memory, in the order in which they came.
    awaiting_memory: VecDeque<u64>,
    keys: u64,
    scratch: Vec<u8>,
    batch: Batch,
    is_polling: bool,
    ticked: Instant,
    /// The server ends. This worker ends at this time at the latest.
    leaves: Option<Instant>,
}

/// Values that are stored together, and the connections that wait for that.
#[derive(Default)]
struct Batch {
    connections: Vec<u64>,
    values: Vec<Value>,
    size: usize,
}

impl Batch {
    fn push(&mut self, connection: u64, value: Value) {
        self.size += value.bytes.len();
        self.connections.push(connection);
        self.values.push(value);
    }
}

impl Worker {
    pub fn new(shared: &Arc<Shared>, mailbox: &Arc<Mailbox>) -> io::Result<Worker> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let event = epoll::EventData::new_u64(MAILBOX);
        epoll::add(&epoll, &mailbox.bell, event, epoll::EventFlags::IN)?;
        Ok(Worker {
            shared: shared.clone(),
            mailbox: mailbox.clone(),
            epoll,
            connections: HashMap::default(),
            unauthenticated: BTreeSet::new(),
            awaiting_memory: VecDeque::new(),
            keys: 0,
            scratch: vec![0; SCRATCH],
            batch: Batch::default(),
            is_polling: false,
            ticked: Instant::now(),
            leaves: None,
        })
    }

    /// Serves until the server ends and no request is under way.
    pub fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        while !self.is_done() {
            let mut wait = TICK.saturating_sub(self.ticked.elapsed());
            if !self.awaiting_memory.is_empty() {
                wait = wait.min(MEMORY_RETRY);
            }
            if !self.batch.values.is_empty() {
                wait = Duration::ZERO;
            }
            match self.wait(wait, &mut events) {
                Ok(()) => events.drain(..).for_each(|event| {
                    self.take(event);
                    if self.batch.size > BATCH {
                        self.store_batch();
                    }
                }),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return warn!("wait for connections: {error}"),
            }
            self.retry_memory();
            self.store_batch();
            if self.ticked.elapsed() >= TICK {
                self.tick();
            }
        }
    }

    /// Waits until something happens, but no longer than this.
    fn wait(&mut self, most: Duration, events: &mut Vec<epoll::Event>) -> rustix::io::Result<()> {
        let began = Instant::now();
        while self.is_polling {
            self.poll(Duration::ZERO, events)?;
            if !events.is_empty() {
                return Ok(());
            }
            self.is_polling = began.elapsed() < POLL_TIME.min(most);
            rustix::thread::sched_yield();
        }
        self.poll(most.saturating_sub(began.elapsed()), events)?;
        self.is_polling = began.elapsed() < POLL_TIME;
        Ok(())
    }

    fn poll(&self, most: Duration, events: &mut Vec<epoll::Event>) -> rustix::io::Result<()> {
        let most = Timespec {
            tv_sec: most.as_secs() as i64,
            tv_nsec: i64::from(most.subsec_nanos()),
        };
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&most)).map(|_| ())
    }

    fn is_done(&self) -> bool {
        let is_late = |at: Instant| self.connections.is_empty() || Instant::now() > at;
        self.leaves.is_some_and(is_late)
    }

    fn take(&mut self, event: epoll::Event) {
        let (key, flags) = (event.data.u64(), event.flags);
        if key == MAILBOX {
            let messages = self.mailbox.take();
            return messages.into_iter().for_each(|message| self.open(message));
        }
        self.with(key, |connection, scratch, shared| {
            let interest = connection.interest;
            if flags.contains(epoll::EventFlags::OUT) {
                if let Some(job) = connection.writable(shared)? {
                    return Ok(Some(job));
                }
            }
            let has_ended = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
            match flags.contains(epoll::EventFlags::IN) && interest.0 {
                true => connection.receive(scratch, shared),
                false if has_ended => Err(End::Gone),
                false => Ok(None),
            }
        });
    }

    fn open(&mut self, message: Message) {
        match message {
            Message::Arrived(arrival) => {
                let peer = arrival.peer;
                if let Err(error) = self.admit(arrival) {
                    self.shared.metrics.open.fetch_sub(1, Ordering::Relaxed);
                    debug!("connection of {peer}: {error}");
                }
            }
            Message::Done(key, done) => self.with(key, |connection, _, shared| connection.done(done, shared)),
            Message::Fault(key) => self.drop_connection(key, &End::Fault),
            Message::Tokens => self.revoke(),
            Message::Leave => {
                self.leaves = Some(Instant::now() + LEAVE_TIMEOUT);
                self.drop_idle();
            }
        }
    }

    fn admit(&mut self, arrival: Arrival) -> io::Result<()> {
        let connection = Connection::new(arrival, &self.shared)?;
        if self.shared.unauthenticated() > self.shared.max_unauthenticated() {
            // The new connection stays: otherwise many connections without a token would keep out all clients that have one.
            if let Some(oldest) = self.unauthenticated.first().copied() {
                let words = "others have come, and it has shown no token";
                self.drop_connection(oldest, &End::Rejected(Rejection::Crowded, words));
            }
        }
        self.keys += 1;
        let data = epoll::EventData::new_u64(self.keys);
        epoll::add(&self.epoll, connection.socket(), data, epoll::EventFlags::IN)?;
        self.connections.insert(self.keys, connection);
        self.unauthenticated.insert(self.keys);
        Ok(())
    }

    /// Runs `act` for a connection, and then starts its job, or changes the events that it waits for.
    fn with(&mut self, key: u64, act: impl FnOnce(&mut Connection, &mut [u8], &Shared) -> Result<Option<Job>, End>) {
        let Some(connection) = self.connections.get_mut(&key) else {
            return;
        };
        let done = fault::contain(|| {
            let mut done = act(connection, &mut self.scratch, &self.shared);
            while matches!(done, Ok(None)) && connection.has_more(&self.shared) {
                done = connection.receive(&mut self.scratch, &self.shared);
            }
            done
        });
        let is_unauthenticated = connection.admission.is_none();
        if is_unauthenticated != std::mem::replace(&mut connection.is_unauthenticated, is_unauthenticated) {
            match is_unauthenticated {
                true => self.unauthenticated.insert(key),
                false => self.unauthenticated.remove(&key),
            };
        }
        match done.unwrap_or(Err(End::Fault)) {
            Ok(job) => {
                match job {
                    Some(Job::OnDisk(disk_work)) => self.shared.disk_threads.start_job(disk_work, &self.mailbox, key),
                    // It goes on soon, so its events stay as they are.
                    Some(Job::Store(value)) => return self.batch.push(key, value),
                    None => {}
                }
                if self.leaves.is_some() && connection.is_idle() {
                    return self.drop_connection(key, &End::Gone);
                }
                if connection.awaits_memory && !self.awaiting_memory.contains(&key) {
                    self.awaiting_memory.push_back(key);
                }
                let wants = (connection.wants_input(&self.shared), connection.wants_output());
                if wants != connection.interest {
                    connection.interest = wants;
                    let mut flags = epoll::EventFlags::empty();
                    flags.set(epoll::EventFlags::IN, wants.0);
                    flags.set(epoll::EventFlags::OUT, wants.1);
                    let data = epoll::EventData::new_u64(key);
                    let _ = epoll::modify(&self.epoll, connection.socket(), data, flags);
                }
            }
            Err(end) => self.drop_connection(key, &end),
        }
    }

    /// Lets connections try again to get memory. They try one after the other, so that a large request is not always overtaken
    /// by small ones.
    fn retry_memory(&mut self) {
        while let Some(key) = self.awaiting_memory.front().copied() {
            self.with(key, Connection::retry_memory);
            if self
                .connections
                .get(&key)
                .is_some_and(|connection| connection.awaits_memory)
            {
                break;
            }
            self.awaiting_memory.pop_front();
        }
    }

    /// Stores the batch, and continues the connections that wait for it. This may begin the next batch.
    fn store_batch(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if batch.values.is_empty() {
            return;
        }
        let Some(stored) = fault::contain(|| self.shared.values.keep_values(batch.values)) else {
            let ended = batch.connections.into_iter();
            return ended.for_each(|key| self.drop_connection(key, &End::Fault));
        };
        for (key, stored) in batch.connections.into_iter().zip(stored) {
            self.with(key, |connection, _, shared| {
                connection.done(Done::Stored(stored), shared)
            });
        }
    }

    fn drop_connection(&mut self, key: u64, end: &End) {
        let Some(connection) = self.connections.remove(&key) else {
            return;
        };
        self.unauthenticated.remove(&key);
        self.shared.metrics.open.fetch_sub(1, Ordering::Relaxed);
        let peer = connection.peer;
        let dropped = fault::contain(|| drop(connection));
        match if dropped.is_some() { end } else { &End::Fault } {
            End::Gone => debug!("connection of {peer} has ended"),
            End::Failed(error) => debug!("connection of {peer}: {error}"),
            End::Fault => {
                self.shared.metrics.count_rejection(Rejection::Fault);
                error!("{peer} met a fault of ours, and its connection ends: please report what is told above");
            }
            End::Rejected(why, words) => {
                self.shared.metrics.count_rejection(*why);
                info!("{peer} is turned away: {words}");
            }
        }
    }

    fn revoke(&mut self) {
        let shared = &self.shared;
        let is_revoked =
            |connection: &Connection| connection.admission.as_ref().is_some_and(|found| !shared.knows(found));
        let revoked: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, connection)| is_revoked(connection))
            .map(|(key, _)| *key)
            .collect();
        for key in revoked {
            self.drop_connection(key, &End::Rejected(Rejection::Revoked, "its token was revoked"));
        }
    }

    /// Ends all idle connections.
    fn drop_idle(&mut self) {
        let idle = self
            .connections
            .iter_mut()
            .filter_map(|(key, connection)| connection.is_idle().then_some(*key));
        let idle: Vec<_> = idle.collect();
        idle.into_iter().for_each(|key| self.drop_connection(key, &End::Gone));
    }

    fn tick(&mut self) {
        self.ticked = Instant::now();
        let keys: Vec<_> = self.connections.keys().copied().collect();
        for key in keys {
            let now = self.ticked;
            self.with(key, |connection, _, shared| match connection.tick(now, shared)? {
                true => connection.go_on(shared),
                false => Ok(None),
            });
        }
        if self.leaves.is_some() {
            self.drop_idle();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        add(
            &self.shared.metrics.open,
            (self.connections.len() as u64).wrapping_neg(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::fields::Malformed;
    use crate::cache::store::{Compression, Settings, Store};
    use crate::http::asker::Names;
    use crate::team::dialect::{self, BoxedDialect, Dialect, Step};
    use crate::team::disk_threads::DiskThreads;
    use crate::team::limits::{Budget, Limits};
    use crate::team::memory_cache::MemoryCache;
    use crate::team::shared::{Exchange, ServerSettings};
    use crate::team::tokens::Tokens;
    use crate::team::upload::Uploads;
    use crate::team::value_store::ValueStore;
    use std::fs;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::path::PathBuf;
    use std::thread::JoinHandle;

    /// A dialect that panics in one of its functions.
    enum Faulty {
        Answering,
        Carrying,
        TakingResult,
        Dropping,
    }

    impl Dialect for Faulty {
        fn advance(&mut self, input: &[u8], exchange: &mut Exchange<'_>) -> Result<Step, Malformed> {
            match self {
                Faulty::Answering => panic!("a mistake in an answer"),
                Faulty::Dropping => return Ok(Step::Close(input.len())),
                Faulty::Carrying => *exchange.job = Some(Job::on_disk(|_| panic!("a mistake in a job"))),
                Faulty::TakingResult => *exchange.job = Some(Job::on_disk(|_| Done::Opened(None))),
            }
            Ok(Step::Used(input.len()))
        }

        fn done(&mut self, _: Done, _: &mut Exchange<'_>) -> Result<(), Malformed> {
            panic!("a mistake after a job")
        }

        fn is_in_request(&self) -> bool {
            false
        }
    }

    impl Drop for Faulty {
        fn drop(&mut self) {
            if matches!(self, Faulty::Dropping) {
                panic!("a mistake at the end");
            }
        }
    }

    /// Recognizes faulty dialects besides the usual ones.
    fn recognize(first: &[u8]) -> Result<Option<BoxedDialect>, Malformed> {
        let faulty = match first {
            b"!answering" => Faulty::Answering,
            b"!carrying" => Faulty::Carrying,
            b"!hearing" => Faulty::TakingResult,
            b"!dropping" => Faulty::Dropping,
            _ => return dialect::recognize(first),
        };
        Ok(Some(Box::new(faulty)))
    }

    /// A server with one worker, without signals and tokens.
    struct TestServer {
        folder: PathBuf,
        shared: Arc<Shared>,
        mailbox: Arc<Mailbox>,
        thread: Option<JoinHandle<()>>,
        listener: TcpListener,
    }

    impl TestServer {
        fn new(name: &str) -> TestServer {
            let folder = std::env::temp_dir().join(format!("worker-{}-{name}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            let (max_size, compression) = (1 << 30, Compression::Auto);
            let settings = Settings { max_size, compression };
            let values = Arc::new(ValueStore {
                store: Store::open(&folder, settings).unwrap(),
                cache: MemoryCache::new(1 << 20),
                downloads: Budget::new(1 << 20),
                quotas: Vec::new(),
            });
            let uploads = Uploads {
                folder: folder.clone(),
                budget: Budget::new(1 << 20),
            };
            let settings = ServerSettings {
                limits: Limits {
                    connections: 40,
                    patience: Duration::from_secs(600),
                    blob: 1 << 20,
                    rate: 0,
                    uploads: 1 << 20,
                },
                writes: None,
                tls: None,
                are_metrics_open: false,
                tokens: Tokens::default(),
                names: Names::default(),
                recognize,
            };
            let shared = Arc::new(Shared::new(
                values.clone(),
                DiskThreads::start(1, &values).unwrap(),
                uploads,
                settings,
            ));
            let mailbox = Arc::new(Mailbox::new().unwrap());
            let worker = Worker::new(&shared, &mailbox).unwrap();
            TestServer {
                folder,
                shared,
                mailbox,
                thread: Some(std::thread::spawn(|| worker.run())),
                listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            }
        }

        fn peer(&self) -> TcpStream {
            let peer = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
            peer.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let (socket, from) = self.listener.accept().unwrap();
            add(&self.shared.metrics.open, 1);
            self.mailbox.put(Message::Arrived(Arrival {
                socket,
                peer: from,
                is_plain: false,
            }));
            peer
        }

        fn faults(&self) -> u64 {
            let status = self.shared.metrics.status(&self.shared.values, &self.shared.uploads);
            status["turned_away_total"]["why=fault"].as_u64().unwrap()
        }
    }

    impl Drop for TestServer {
        fn drop(&mut self) {
            self.mailbox.put(Message::Leave);
            let ended = self.thread.take().map(JoinHandle::join);
            let _ = fs::remove_dir_all(&self.folder);
            if !std::thread::panicking() {
                ended.unwrap().expect("the worker has lived until now");
            }
        }
    }

    fn ping(mut peer: &TcpStream) {
        peer.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
        let mut answer = [0; 7];
        peer.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"+PONG\r\n");
    }

    #[test]
    fn a_panic_in_one_connection_ends_that_one_only() {
        let server = TestServer::new("fault");
        let neighbor = server.peer();
        ping(&neighbor);
        let words: [&[u8]; 4] = [b"!answering", b"!carrying", b"!hearing", b"!dropping"];
        for (round, word) in (1..).zip(words) {
            let mut faulty = server.peer();
            faulty.write_all(word).unwrap();
            // Unlike `read`, this goes on after a signal.
            let ended = faulty.read_to_end(&mut Vec::new());
            assert!(matches!(ended, Ok(0)) || ended.is_err_and(|e| e.kind() == io::ErrorKind::ConnectionReset));
            drop(faulty);
            ping(&neighbor);
            ping(&server.peer());
            let deadline = Instant::now() + Duration::from_secs(30);
            while server.faults() < round {
                assert!(
                    Instant::now() < deadline,
                    "{} is not counted",
                    String::from_utf8_lossy(word)
                );
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        while server.shared.metrics.open.load(Ordering::Relaxed) > 1 {
            assert!(Instant::now() < deadline, "a connection is counted that is not there");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Of 40 connections, 10 may have shown no token.
    #[test]
    fn above_the_limit_the_oldest_connections_without_a_token_end() {
        let server = TestServer::new("strangers");
        let known: Vec<_> = (0..5).map(|_| server.peer()).collect();
        known.iter().for_each(ping);
        server.shared.close();
        let mut unauthenticated: Vec<_> = (0..20).map(|_| server.peer()).collect();
        for old in &mut unauthenticated[..9] {
            assert_eq!(old.read(&mut [0]).unwrap(), 0, "it has to go");
        }
        for new in &mut unauthenticated[15..] {
            new.set_nonblocking(true).unwrap();
            let found = new.read(&mut [0]).map_err(|error| error.kind());
            assert_eq!(found, Err(io::ErrorKind::WouldBlock), "it may stay");
        }
        known.iter().for_each(ping);
        assert_eq!(server.shared.authenticated(), 5);
    }
}
