//! A thread with connections of its own. Nothing in it waits but `epoll`.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{debug, info, warn};
use rustc_hash::FxHashMap;
use rustix::event::{epoll, Timespec};

use super::connection::{Connection, End};
use super::mailbox::{Letter, Mailbox};
use super::metrics::{add, Turned};
use super::office::Office;
use super::porters::Errand;

const SCRATCH: usize = 256 << 10;
const EVENTS: usize = 256;
/// The number of the mailbox's bell.
const BELL: u64 = u64::MAX;
const TICK: Duration = Duration::from_secs(1);
/// How often those that wait for memory are looked at: any worker's connections may give some back.
const FEEDING: Duration = Duration::from_millis(5);
/// So long may take what is under way when the server leaves.
const PARTING: Duration = Duration::from_secs(10);

pub struct Worker {
    office: Arc<Office>,
    mailbox: Arc<Mailbox>,
    epoll: OwnedFd,
    connections: FxHashMap<u64, Connection>,
    /// Those that wait for memory, in the order in which they came.
    starving: VecDeque<u64>,
    keys: u64,
    scratch: Vec<u8>,
    ticked: Instant,
    /// It leaves, at last at this time.
    leaves: Option<Instant>,
}

impl Worker {
    pub fn new(office: &Arc<Office>, mailbox: &Arc<Mailbox>) -> io::Result<Worker> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = epoll::EventData::new_u64(BELL);
        epoll::add(&epoll, &mailbox.bell, bell, epoll::EventFlags::IN)?;
        Ok(Worker {
            office: office.clone(),
            mailbox: mailbox.clone(),
            epoll,
            connections: HashMap::default(),
            starving: VecDeque::new(),
            keys: 0,
            scratch: vec![0; SCRATCH],
            ticked: Instant::now(),
            leaves: None,
        })
    }

    /// Serves until it is told to leave and nothing is under way.
    pub fn run(mut self) {
        let mut space = [MaybeUninit::uninit(); EVENTS];
        while !self.is_done() {
            let mut wait = TICK.saturating_sub(self.ticked.elapsed());
            if !self.starving.is_empty() {
                wait = wait.min(FEEDING);
            }
            let wait = Timespec {
                tv_sec: wait.as_secs() as i64,
                tv_nsec: i64::from(wait.subsec_nanos()),
            };
            match epoll::wait(&self.epoll, &mut space, Some(&wait)) {
                Ok((events, _)) => events.iter().for_each(|event| self.take(event)),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return warn!("wait for connections: {error}"),
            }
            self.feed();
            if self.ticked.elapsed() >= TICK {
                self.tick();
            }
        }
    }

    fn is_done(&self) -> bool {
        let is_late = |at: Instant| self.connections.is_empty() || Instant::now() > at;
        self.leaves.is_some_and(is_late)
    }

    fn take(&mut self, event: &epoll::Event) {
        let (key, flags) = (event.data.u64(), event.flags);
        if key == BELL {
            let letters = self.mailbox.take();
            return letters.into_iter().for_each(|letter| self.open(letter));
        }
        self.with(key, |connection, scratch, office| {
            let interest = connection.interest;
            if flags.contains(epoll::EventFlags::OUT) {
                if let Some(errand) = connection.writable(office)? {
                    return Ok(Some(errand));
                }
            }
            let has_ended = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
            match flags.contains(epoll::EventFlags::IN) && interest.0 {
                true => connection.receive(scratch, office),
                false if has_ended => Err(End::Gone),
                false => Ok(None),
            }
        });
    }

    fn open(&mut self, letter: Letter) {
        match letter {
            Letter::Arrived(socket, peer) => {
                if let Err(error) = self.admit(socket, peer) {
                    self.office.metrics.open.fetch_sub(1, Ordering::Relaxed);
                    debug!("connection of {peer}: {error}");
                }
            }
            Letter::Done(key, done) => self.with(key, |connection, _, office| connection.done(done, office)),
            Letter::Tokens => self.revoke(),
            Letter::Leave => {
                self.leaves = Some(Instant::now() + PARTING);
                self.part();
            }
        }
    }

    fn admit(&mut self, socket: TcpStream, peer: SocketAddr) -> io::Result<()> {
        let connection = Connection::new(socket, peer, &self.office)?;
        self.keys += 1;
        let data = epoll::EventData::new_u64(self.keys);
        epoll::add(&self.epoll, connection.socket(), data, epoll::EventFlags::IN)?;
        self.connections.insert(self.keys, connection);
        Ok(())
    }

    /// Lets a connection do something, and does what follows from that.
    fn with(&mut self, key: u64, act: impl FnOnce(&mut Connection, &mut [u8], &Office) -> Result<Option<Errand>, End>) {
        let Some(connection) = self.connections.get_mut(&key) else {
            return;
        };
        let mut done = act(connection, &mut self.scratch, &self.office);
        while matches!(done, Ok(None)) && connection.has_more(&self.office) {
            done = connection.receive(&mut self.scratch, &self.office);
        }
        match done {
            Ok(errand) => {
                if let Some(errand) = errand {
                    self.office.porters.carry(errand, &self.mailbox, key);
                }
                if self.leaves.is_some() && connection.is_idle() {
                    return self.drop_connection(key, &End::Gone);
                }
                if connection.starves && !self.starving.contains(&key) {
                    self.starving.push_back(key);
                }
                let wants = (connection.wants_input(&self.office), connection.wants_output());
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

    /// One after the other, so that nobody who needs much waits behind those who need little.
    fn feed(&mut self) {
        while let Some(key) = self.starving.front().copied() {
            self.with(key, Connection::feed);
            if self.connections.get(&key).is_some_and(|connection| connection.starves) {
                break;
            }
            self.starving.pop_front();
        }
    }

    fn drop_connection(&mut self, key: u64, end: &End) {
        let Some(connection) = self.connections.remove(&key) else {
            return;
        };
        self.office.metrics.open.fetch_sub(1, Ordering::Relaxed);
        let peer = connection.peer;
        match end {
            End::Gone => debug!("connection of {peer} has ended"),
            End::Failed(error) => debug!("connection of {peer}: {error}"),
            End::Turned(why, words) => {
                self.office.metrics.turn(*why);
                info!("{peer} is turned away: {words}");
            }
        }
    }

    fn revoke(&mut self) {
        let office = &self.office;
        let is_revoked =
            |connection: &Connection| connection.standing.as_ref().is_some_and(|found| !office.knows(found));
        let revoked: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, connection)| is_revoked(connection))
            .map(|(key, _)| *key)
            .collect();
        for key in revoked {
            self.drop_connection(key, &End::Turned(Turned::Revoked, "its token was revoked"));
        }
    }

    /// Ends what has nothing under way.
    fn part(&mut self) {
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
            self.with(key, |connection, _, office| match connection.tick(now, office)? {
                true => connection.go_on(office),
                false => Ok(None),
            });
        }
        if self.leaves.is_some() {
            self.part();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        add(
            &self.office.metrics.open,
            (self.connections.len() as u64).wrapping_neg(),
        );
    }
}
