//! Runs in parked programs what a command would exec: the gcc driver's cc1plus, as and collect2.
//!
//! Instead of becoming another program, a process sends its request here (`engine/park/route.c`), and ends as that program
//! does. The program needs no slot, because it works for a command that has one. This is a thread of its own, which knows
//! nothing of sessions.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use log::{debug, warn};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::packet::{self, Wanted, PACKET};
use super::pool::{Pool, Reason};
use super::program::Program;
use crate::files::folder::Folder;
use crate::process::context;
use crate::process::prompt::make_prompt;
use crate::process::roster::{Ticket, Tickets};
use crate::process::spawn::{self, Child, Ended};
use crate::trust::peer::peer_of;
use crate::wire::Strings;

const LISTENER: u64 = 0;
const QUEUE: i32 = 128;

/// The resource use of programs that ran in parked programs for parts of commands, by process group.
#[derive(Default)]
pub struct Ledger {
    groups: Mutex<HashMap<i32, Ended>>,
}

impl Ledger {
    fn add(&self, group: i32, part: &Ended) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.entry(group).or_default().include(part);
    }

    /// Adds what was used for a command to what the command itself used.
    pub fn settle(&self, group: i32, command: &mut Ended) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(parts) = groups.remove(&group) {
            command.include(&parts);
        }
    }
}

/// A process that waits for the program that it would have become.
struct Relay {
    socket: OwnedFd,
    running: Option<Routed>,
}

struct Routed {
    child: Child,
    group: i32,
    _ticket: Ticket,
}

/// The routers and the socket at which all of them listen.
pub fn listen(folder: &Folder) -> io::Result<Arc<OwnedFd>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let path = folder.route();
    let _ = std::fs::remove_file(&path);
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path)?)?;
    rustix::net::listen(&listener, QUEUE)?;
    Ok(Arc::new(listener))
}

pub struct Router {
    listener: Arc<OwnedFd>,
    epoll: OwnedFd,
    relays: HashMap<u64, Relay>,
    next: u64,
    pool: Arc<Pool>,
    tickets: Arc<Tickets>,
    ledger: Arc<Ledger>,
    buffer: Vec<u8>,
}

impl Router {
    pub fn new(
        listener: Arc<OwnedFd>,
        pool: Arc<Pool>,
        tickets: Arc<Tickets>,
        ledger: Arc<Ledger>,
    ) -> io::Result<Router> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Only one of the routers is woken.
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        epoll::add(&epoll, &*listener, EventData::new_u64(LISTENER), flags)?;
        Ok(Router {
            listener,
            epoll,
            relays: HashMap::new(),
            next: 1,
            pool,
            tickets,
            ledger,
            buffer: vec![0; PACKET],
        })
    }

    /// Serves as long as the engine lives.
    pub fn work(mut self) {
        make_prompt(0);
        let mut events = Vec::with_capacity(64);
        loop {
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return warn!("the router waits: {error}"),
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    key if key & ENDED != 0 => self.finish(key & !ENDED),
                    key => self.hear(key),
                }
            }
        }
    }

    fn accept(&mut self) {
        let Ok(socket) = rustix::net::accept_with(&*self.listener, SocketFlags::CLOEXEC) else {
            return;
        };
        if !peer_of(&socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid().as_raw()) {
            return;
        }
        let key = self.next;
        self.next += 1;
        if epoll::add(&self.epoll, &socket, EventData::new_u64(key), EventFlags::IN).is_ok() {
            self.relays.insert(key, Relay { socket, running: None });
        }
    }

    /// A request, or the end of the process that waits.
    fn hear(&mut self, key: u64) {
        let Some(relay) = self.relays.get_mut(&key) else { return };
        if relay.running.is_some() {
            // No further bytes are expected. So the process is gone, and the program that runs for it must end.
            let _ = epoll::delete(&self.epoll, &relay.socket);
            if let Some(routed) = &relay.running {
                // SAFETY: a child of ours that was not reaped.
                unsafe { libc::kill(routed.child.pid, libc::SIGKILL) };
            }
            return;
        }
        let wanted = Wanted::receive(relay.socket.as_fd(), &mut self.buffer);
        let started = match wanted {
            Ok(Some(wanted)) => self.start(&wanted),
            Ok(None) => Err("nothing was asked".into()),
            Err(error) => Err(error.to_string().into()),
        };
        match started.and_then(|routed| self.watch(key, routed)) {
            Ok(()) => {}
            Err(reason) => {
                debug!("not routed: {reason}");
                self.answer(key, None);
                self.pool.count_spawned(reason);
            }
        }
    }

    fn start(&mut self, wanted: &Wanted) -> Result<Routed, Reason> {
        let env = Strings::from_iter(wanted.env());
        let candidates = spawn::candidates(wanted.name(), &env);
        let program = Program::find(&candidates, wanted.folder());
        let (program, called) = program.ok_or("it was not found")?;
        let stack = wanted.context().limits[context::STACK];
        let parked = self.pool.take(&program, &env, stack)?;
        let ticket = self.tickets.reserve().ok_or("no tickets are left")?;
        let request = wanted.request(called.to_bytes_with_nul(), ticket.number());
        let child = parked.ask(&request, ticket.place()).map_err(|why| why.0)?;
        self.pool.count_parked(&program);
        Ok(Routed {
            child,
            group: wanted.group(),
            _ticket: ticket,
        })
    }

    fn watch(&mut self, key: u64, routed: Routed) -> Result<(), Reason> {
        let data = EventData::new_u64(key | ENDED);
        let added = epoll::add(&self.epoll, &routed.child.pidfd, data, EventFlags::IN);
        let Some(relay) = self.relays.get_mut(&key) else {
            return Err("it is gone".into());
        };
        if let Err(error) = added {
            // It already runs, and must not run again. So this thread waits for it.
            warn!("watch a routed command: {error}");
            relay.running = Some(routed);
            self.finish(key);
            return Ok(());
        }
        relay.running = Some(routed);
        Ok(())
    }

    fn finish(&mut self, key: u64) {
        let Some(routed) = self.relays.get_mut(&key).and_then(|relay| relay.running.take()) else {
            return;
        };
        let ended = spawn::wait_for(routed.child.pid);
        self.ledger.add(routed.group, &ended);
        self.answer(key, Some(ended.status));
    }

    fn answer(&mut self, key: u64, status: Option<i32>) {
        if let Some(relay) = self.relays.remove(&key) {
            let _ = packet::send_routed(relay.socket.as_fd(), status);
        }
    }
}

/// Marks the end of a child among the events of its relay.
const ENDED: u64 = 1 << 63;
