//! One connection to an engine, which may obey the protocol or not, as a test wants.

use std::collections::{HashMap, HashSet};
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use wafengine::bytes::frame::Inbox;
use wafengine::wire::{Hello, Outcome, Reply, Request, Step, Strings, Verdict, Why, FRAME_CAP, OUTPUT_CAP};

use super::order::Order;
use super::sandbox::DEADLINE;

/// The result of a command.
#[derive(Debug)]
pub struct Finished {
    pub outcome: Outcome,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Finished {
    /// The output of a command that succeeded.
    #[track_caller]
    pub fn text(&self) -> String {
        let stderr = String::from_utf8_lossy(&self.stderr);
        assert_eq!(
            (self.outcome.verdict, self.outcome.code),
            (Verdict::Ran, 0),
            "{stderr}\n{:?}",
            self.outcome
        );
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The command ran and ended with this code: an exit status, or minus a signal.
    #[track_caller]
    pub fn ended(&self, code: i32) {
        assert_eq!(
            (self.outcome.verdict, self.outcome.code),
            (Verdict::Ran, code),
            "{self:?}"
        );
    }

    /// The command could not be started for this reason.
    #[track_caller]
    pub fn not_started(&self, step: Step, errno: i32) {
        let Outcome {
            verdict,
            step: found,
            code,
            ..
        } = self.outcome;
        assert_eq!((verdict, found, code), (Verdict::NotStarted, step, errno));
        assert_eq!((&self.stdout[..], &self.stderr[..]), (&b""[..], &b""[..]));
    }
}

pub struct Peer {
    pub stream: UnixStream,
    /// The engine's process, after `welcome`.
    pub pid: i32,
    inbox: Inbox,
    live: HashMap<u32, [Vec<u8>; 2]>,
    finished: HashMap<u32, Finished>,
    /// The numbers of finished commands, in order.
    pub order: Vec<u32>,
    next: u32,
    seen: HashSet<u32>,
}

pub fn hello(session: [u8; 16], jobs: u32) -> Hello {
    Hello {
        lowest: 1,
        highest: 1,
        session,
        jobs,
        wishes: 0,
        pid: std::process::id(),
        token: Vec::new(),
        name: b"test".to_vec(),
    }
}

pub fn bytes_of(request: &Request) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.encode(&mut bytes);
    bytes
}

impl Peer {
    #[track_caller]
    pub fn unix(socket: &Path) -> Peer {
        Peer::of(UnixStream::connect(socket).unwrap_or_else(|e| panic!("connect to {socket:?}: {e}")))
    }

    #[track_caller]
    pub fn tcp(port: u16) -> Peer {
        // Reading, writing and timeouts are the same for all sockets.
        Peer::of(OwnedFd::from(TcpStream::connect(("127.0.0.1", port)).unwrap()))
    }

    pub fn of(stream: impl Into<OwnedFd>) -> Peer {
        let stream = UnixStream::from(stream.into());
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        Peer {
            stream,
            pid: 0,
            inbox: Inbox::new(FRAME_CAP),
            live: HashMap::new(),
            finished: HashMap::new(),
            order: Vec::new(),
            next: 0,
            seen: HashSet::new(),
        }
    }

    // ---- sending

    #[track_caller]
    pub fn write(&mut self, bytes: &[u8]) {
        self.try_write(bytes).unwrap();
    }

    /// As `write`, if the engine may have closed the connection already.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::net::send(&self.stream, rest, SendFlags::NOSIGNAL) {
                Ok(n) => rest = &rest[n..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    #[track_caller]
    pub fn send(&mut self, request: &Request) {
        self.write(&bytes_of(request));
    }

    /// Sends bytes with descriptors.
    pub fn write_with(&mut self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
        let parts = [IoSlice::new(bytes)];
        let sent = rustix::net::sendmsg(&self.stream, &parts, &mut control, SendFlags::NOSIGNAL)?;
        self.try_write(&bytes[sent..])
    }

    // ---- receiving

    /// The next reply. `None` if the engine has closed the connection.
    #[track_caller]
    pub fn receive(&mut self) -> Option<Reply> {
        let mut chunk = [0; 1 << 16];
        loop {
            if let Some(frame) = self.inbox.take().expect("the engine speaks the protocol") {
                return Some(Reply::decode(frame).expect("the engine speaks the protocol"));
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    assert!(!self.inbox.is_partial(), "the connection ended inside a frame");
                    return None;
                }
                Ok(n) => self.inbox.push(&chunk[..n]),
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::ConnectionReset => return None,
                    _ => panic!("nothing came in time: {error}"),
                },
            }
        }
    }

    /// The engine closes the connection without another reply.
    #[track_caller]
    pub fn is_closed(&mut self) {
        if let Some(reply) = self.receive() {
            panic!("not closed but answered: {reply:?}");
        }
    }

    /// Whether something has arrived, or the connection has ended.
    pub fn has_news(&self) -> bool {
        let mut fds = [rustix::event::PollFd::new(&self.stream, rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&now)).unwrap() > 0
    }

    // ---- requests and replies

    #[track_caller]
    pub fn greet(&mut self, hello: &Hello) -> Reply {
        self.send(&Request::Hello(hello.clone()));
        self.receive().expect("an answer to the greeting")
    }

    #[track_caller]
    pub fn welcome(&mut self, hello: &Hello) {
        match self.greet(hello) {
            Reply::Welcome { pid, .. } => self.pid = pid as i32,
            other => panic!("not welcome: {other:?}"),
        }
    }

    /// Greets, is refused for this reason, and sees the end of the connection.
    #[track_caller]
    pub fn refused(&mut self, hello: &Hello, expected: Why) -> String {
        match self.greet(hello) {
            Reply::Refused { why, reason } if why == expected => {
                self.is_closed();
                String::from_utf8(reason).unwrap()
            }
            other => panic!("not refused for {expected:?}: {other:?}"),
        }
    }

    pub fn define<T: AsRef<[u8]>>(&mut self, env: u32, entries: impl IntoIterator<Item = T>) {
        let entries: Strings = entries.into_iter().collect();
        self.send(&Request::Environment { env, entries });
    }

    /// Gives a command the next number.
    pub fn number(&mut self, order: &Order) -> Request {
        let mut execute = order.0.clone();
        execute.id = self.next;
        self.next += 1;
        self.expect(execute.id);
        Request::Execute(Box::new(execute))
    }

    /// A command with this number was sent.
    pub fn expect(&mut self, id: u32) {
        assert!(self.live.insert(id, Default::default()).is_none());
    }

    #[track_caller]
    pub fn submit(&mut self, order: &Order) -> u32 {
        let request = self.number(order);
        self.send(&request);
        self.next - 1
    }

    #[track_caller]
    pub fn submit_with(&mut self, order: &Order, descriptors: &[BorrowedFd<'_>]) -> u32 {
        let request = self.number(order);
        self.write_with(&bytes_of(&request), descriptors).unwrap();
        self.next - 1
    }

    /// Handles one reply, which must be about a command that was sent and has not finished.
    #[track_caller]
    pub fn take(&mut self, reply: Reply) {
        match reply {
            Reply::Output { id, stream, data } => {
                assert!(data.len() <= OUTPUT_CAP, "{} bytes in one frame", data.len());
                let streams = self.live.get_mut(&id).expect("output of a live command");
                streams[stream as usize - 1].extend(data);
            }
            Reply::Outcome(outcome) => {
                let [stdout, stderr] = self.live.remove(&outcome.id).expect("outcome of a live command");
                self.order.push(outcome.id);
                self.finished.insert(
                    outcome.id,
                    Finished {
                        outcome,
                        stdout,
                        stderr,
                    },
                );
            }
            other => panic!("unexpected: {other:?}"),
        }
    }

    /// Waits for a command's outcome.
    #[track_caller]
    pub fn finish(&mut self, id: u32) -> Finished {
        while !self.finished.contains_key(&id) {
            let reply = self.receive().expect("the connection lasts until the outcome");
            self.take(reply);
        }
        self.finished.remove(&id).unwrap()
    }

    /// Handles the replies that have arrived. Returns whether this command has finished.
    #[track_caller]
    pub fn has_finished(&mut self, id: u32) -> bool {
        while self.has_news() {
            let reply = self.receive().expect("the connection lasts");
            self.take(reply);
        }
        self.finished.contains_key(&id)
    }

    #[track_caller]
    pub fn run(&mut self, order: &Order) -> Finished {
        let id = self.submit(order);
        self.finish(id)
    }

    #[track_caller]
    pub fn report(&mut self) -> serde_json::Value {
        self.send(&Request::Status);
        loop {
            match self.receive() {
                Some(Reply::Report { json }) => return serde_json::from_slice(&json).unwrap(),
                Some(reply) => self.take(reply),
                None => panic!("closed instead of a report"),
            }
        }
    }
}

impl Write for Peer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.stream, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
