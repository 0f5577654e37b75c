//! One client's connection: bytes and descriptors in, bytes out, and what the client has said of itself.
//!
//! Does input and output without ever waiting. Knows nothing of what requests mean.

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

/// A connection whose peer does not read: its commands' pipes are left alone above this …
const CLOGGED: usize = 4 << 20;
/// … and read again below this.
const CLEAR: usize = 1 << 20;
/// The most bytes of commands that wait for a slot; above it no more requests are read.
const BACKLOG: usize = 64 << 20;
/// A welcome, and no more than that, may wait for the answer that follows it.
const PROMPT: usize = 256;
/// Descriptors that came ahead of the frames that want them.
const DESCRIPTORS: usize = 16;
const DESCRIPTORS_PER_FRAME: usize = 3;

/// What a client's commands are to be given.
pub struct Inherited {
    pub reader: context::Reader,
    pub context: Arc<Context>,
    pub adjustments: Arc<Vec<Adjustment>>,
    pub control_group: Option<Arc<OwnedFd>>,
}

/// What came with the greeting.
pub struct Client {
    pub session: SessionId,
    pub pid: u32,
    /// Absent until a command is to run, for clients that wish it so.
    pub inherited: Option<Inherited>,
    pub pin: bool,
    /// How its commands are to be cached.
    pub wishes: Arc<Wishes>,
    /// What the cache can tell nothing of is given back.
    pub only_known: bool,
    /// For commands that come before it is known where it lives.
    pub umask: Option<u32>,
    /// What it was told of the inputs of its commands.
    pub numbers: Numbers,
}

pub struct Connection {
    pub fd: OwnedFd,
    /// The process at the other end of a Unix socket, by the kernel's word.
    pub peer: Option<u32>,
    pub arrived: Instant,
    pub greeted: bool,
    /// Absent for connections that send no command.
    pub client: Option<Client>,
    pub environments: HashMap<u32, Arc<Strings>>,
    /// Commands by the client's own number for them.
    pub live: HashMap<u32, CommandKey>,
    /// Commands whose pipes are not read because this peer does not read.
    pub paused: Vec<CommandKey>,
    /// Bytes of requests that wait for a slot.
    pub backlog: usize,
    pub inbox: Inbox,
    /// Requests were left in the inbox because this peer does not read.
    pub stalled: bool,
    /// Its waiting commands stand in no queue because this peer does not read.
    pub holding: bool,
    /// Since when a frame has been arriving.
    pub partial: Option<Instant>,
    /// What epoll watches for, to tell it only of changes.
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
            live: HashMap::new(),
            paused: Vec::new(),
            backlog: 0,
            inbox: Inbox::new(GREETING_CAP),
            stalled: false,
            holding: false,
            partial: None,
            interest: (true, false),
            outbox: Vec::new(),
            sent: 0,
            descriptors: VecDeque::new(),
        }
    }

    /// Takes what has arrived, once.
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
        if cut || came > DESCRIPTORS_PER_FRAME || self.descriptors.len() > DESCRIPTORS {
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

    /// Descriptors came that no frame wants.
    pub fn has_strays(&self) -> bool {
        !self.stalled && !self.inbox.is_partial() && !self.descriptors.is_empty()
    }

    /// All that it has asked for is looked up just now: it need not be woken twice.
    pub fn is_nearly_answered(&self) -> bool {
        let is_unknown = self.client.as_ref().is_some_and(|client| client.inherited.is_none());
        is_unknown && self.live.len() == 1 && self.outbox.len() < PROMPT
    }

    pub fn reply(&mut self, reply: &Reply) {
        reply.encode(&mut self.outbox);
    }

    pub fn outbox(&mut self) -> &mut Vec<u8> {
        &mut self.outbox
    }

    /// Sends what the peer takes.
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
            self.outbox.shrink_to(CLEAR);
            self.sent = 0;
        } else if self.sent > CLEAR {
            self.outbox.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    fn unsent(&self) -> usize {
        self.outbox.len() - self.sent
    }

    pub fn is_clogged(&self) -> bool {
        self.unsent() > CLOGGED
    }

    pub fn is_clear(&self) -> bool {
        self.unsent() < CLEAR
    }

    /// It is there to see the engine end: a `wafd stop` that waits.
    pub fn is_watching(&self) -> bool {
        self.greeted && self.client.is_none()
    }

    /// (more requests are wanted, something is left to send)
    pub fn wants(&self) -> (bool, bool) {
        let is_heard = self.unsent() > 0 && !self.is_nearly_answered();
        (self.backlog < BACKLOG && !self.is_clogged(), is_heard)
    }
}
