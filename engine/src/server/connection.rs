//! One client's connection: bytes and descriptors in, bytes out, and what the client has said of itself.
//!
//! Reads and writes without waiting. Does not know what the requests mean.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags};

use super::slots::{CommandKey, SessionId};
use crate::bytes::frame::Inbox;
use crate::cache::answer::Wishes;
use crate::cache::lookup::inputs::Numbers;
use crate::process::context::{self, Adjustment, Context};
use crate::wire::{Reply, Strings, GREETING_CAP};

pub type ConnectionKey = u64;

/// Unsent bytes above which we do not read the output of this client's commands …
const MAX_UNSENT: usize = 4 << 20;
/// … until the unsent bytes are below this.
const RESUME_UNSENT: usize = 1 << 20;
/// Bytes of waiting commands above which no more requests are read.
const MAX_BACKLOG: usize = 64 << 20;
/// A welcome is shorter than this, and can wait for the answer that follows it.
const SHORT_REPLY: usize = 256;
/// Descriptors that may arrive before their frames.
const MAX_DESCRIPTORS: usize = 16;
const DESCRIPTORS_PER_FRAME: usize = 3;

/// The context that a client's commands inherit.
pub struct Inherited {
    pub reader: context::Reader,
    pub context: Arc<Context>,
    pub adjustments: Arc<Vec<Adjustment>>,
    pub control_group: Option<Arc<OwnedFd>>,
}

/// What the greeting said.
pub struct Client {
    pub session: SessionId,
    pub pid: u32,
    /// Absent for clients that asked to be examined only when a command has to run.
    pub inherited: Option<Inherited>,
    pub pin: bool,
    /// How its commands are to be cached.
    pub wishes: Arc<Wishes>,
    /// Commands that the cache knows nothing of are returned, not run.
    pub only_known: bool,
    /// It is told where commands ran that could run on a cluster.
    pub hears_elsewhere: bool,
    /// The umask for commands that are looked up before the client is examined.
    pub umask: Option<u32>,
    /// The inputs that this client was told, with their numbers.
    pub numbers: Numbers,
}

pub struct Connection {
    pub fd: OwnedFd,
    /// The process at the other end of a Unix socket, as the kernel says.
    pub peer: Option<u32>,
    pub arrived: Instant,
    pub greeted: bool,
    /// Absent for connections that send no commands.
    pub client: Option<Client>,
    pub environments: HashMap<u32, Arc<Strings>>,
    /// Commands by the client's number for them.
    pub commands: HashMap<u32, CommandKey>,
    /// Commands whose output is not read because this peer does not read.
    pub paused_commands: Vec<CommandKey>,
    /// Bytes of requests that wait for a slot.
    pub backlog: usize,
    pub inbox: Inbox,
    /// Requests are left in the inbox because this peer does not read.
    pub is_stalled: bool,
    /// Its waiting commands are out of the queue for slots because this peer does not read.
    pub is_out_of_queue: bool,
    /// Since when a frame has been arriving.
    pub partial: Option<Instant>,
    /// Reading and writing, as epoll watches them now.
    pub interest: (bool, bool),
    outbox: Vec<u8>,
    sent: usize,
    descriptors: VecDeque<OwnedFd>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    Bytes,
    Nothing,
    End,
}

impl Connection {
    pub fn new(fd: OwnedFd, peer: Option<u32>) -> Self {
        Connection {
            fd,
            peer,
            arrived: Instant::now(),
            greeted: false,
            client: None,
            environments: HashMap::new(),
            commands: HashMap::new(),
            paused_commands: Vec::new(),
            backlog: 0,
            inbox: Inbox::new(GREETING_CAP),
            is_stalled: false,
            is_out_of_queue: false,
            partial: None,
            interest: (true, false),
            outbox: Vec::new(),
            sent: 0,
            descriptors: VecDeque::new(),
        }
    }

    /// Reads once what has arrived.
    pub fn receive(&mut self, scratch: &mut [u8]) -> io::Result<Received> {
        const ROOM: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS_PER_FRAME));
        let mut space = [MaybeUninit::uninit(); ROOM];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(scratch)];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let message = match rustix::net::recvmsg(&self.fd, &mut parts, &mut control, flags) {
            Ok(message) => message,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(Received::Nothing),
            Err(error) => return Err(error.into()),
        };
        let before = self.descriptors.len();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = part {
                self.descriptors.extend(fds);
            }
        }
        let n = message.bytes;
        let came = self.descriptors.len() - before;
        let cut = message.flags.contains(ReturnFlags::CTRUNC);
        if cut || came > DESCRIPTORS_PER_FRAME || self.descriptors.len() > MAX_DESCRIPTORS {
            return Err(io::Error::other("too many descriptors"));
        }
        if n == 0 {
            return Ok(Received::End);
        }
        self.inbox.push(&scratch[..n]);
        Ok(Received::Bytes)
    }

    pub fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }

    /// Descriptors have come without a frame that uses them.
    pub fn has_stray_descriptors(&self) -> bool {
        !self.is_stalled && !self.inbox.is_partial() && !self.descriptors.is_empty()
    }

    /// Its only command is being looked up. A short reply waits for the answer, so that the client wakes up only once.
    pub fn answer_is_near(&self) -> bool {
        let is_unknown = self.client.as_ref().is_some_and(|client| client.inherited.is_none());
        is_unknown && self.commands.len() == 1 && self.outbox.len() < SHORT_REPLY
    }

    pub fn reply(&mut self, reply: &Reply) {
        reply.encode(&mut self.outbox);
    }

    pub fn outbox(&mut self) -> &mut Vec<u8> {
        &mut self.outbox
    }

    /// Sends as much as the peer takes.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.outbox.len() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(&self.fd, &self.outbox[self.sent..], flags) {
                Ok(n) => self.sent += n,
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
        }
        if self.sent == self.outbox.len() {
            self.outbox.clear();
            self.outbox.shrink_to(RESUME_UNSENT);
            self.sent = 0;
        } else if self.sent > RESUME_UNSENT {
            self.outbox.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    fn unsent(&self) -> usize {
        self.outbox.len() - self.sent
    }

    pub fn is_clogged(&self) -> bool {
        self.unsent() > MAX_UNSENT
    }

    pub fn is_clear(&self) -> bool {
        self.unsent() < RESUME_UNSENT
    }

    /// It only waits for the engine to end: `wafd stop`.
    pub fn waits_for_end(&self) -> bool {
        self.greeted && self.client.is_none()
    }

    /// Whether to read more requests, and whether to send.
    pub fn wants(&self) -> (bool, bool) {
        let is_heard = self.unsent() > 0 && !self.answer_is_near();
        (self.backlog < MAX_BACKLOG && !self.is_clogged(), is_heard)
    }
}
