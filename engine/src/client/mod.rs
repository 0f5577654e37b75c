//! The engine's client for the command lines: one connection, one request at a time, and a deadline for every wait.
//! `start` makes sure that an engine runs. Does not know what the answers are used for.

pub mod start;

use std::fmt;
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{Pid, Signal};

use crate::bytes::frame::Inbox;
use crate::files::folder::Folder;
use crate::trust::peer::peer_of;
use crate::wire::{Hello, Reply, Request, Why, FRAME_CAP, VERSION};

/// How long a command line waits for the engine's greeting.
pub const GREETING_TIME: Duration = Duration::from_secs(5);
/// How long a build waits for the engine before it goes on without, unless `WAFD_PATIENCE` is set.
const PATIENCE: Duration = Duration::from_millis(1500);
/// The upper limit of `WAFD_PATIENCE`, in seconds.
const MOST_PATIENCE: f64 = 600.0;
/// How often we check, while we wait for a greeting, whether the engine was stopped.
const LOOK: Duration = Duration::from_millis(250);
/// Most answers are short, and the first access to memory costs time.
const CHUNK: usize = 8 << 10;
/// Enough for a greeting and a command with its environment.
const ROOM: usize = 16 << 10;

/// Why the engine does not serve us.
#[derive(Debug)]
pub enum Unserved {
    /// No engine listens.
    Absent(io::Error),
    Refused(Why, String),
    /// The engine listened, but then was gone, did not answer, or sent something invalid.
    Lost(io::Error),
}

impl fmt::Display for Unserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The usual errors need no details.
            Unserved::Absent(error) if is_not_listening(error) => {
                write!(f, "no engine runs; `wafd start` starts one, as any build does")
            }
            Unserved::Absent(error) => write!(
                f,
                "no engine runs ({error}); `wafd start` starts one, as any build does"
            ),
            Unserved::Refused(_, reason) => write!(f, "the engine refused: {reason}"),
            Unserved::Lost(error) => write!(f, "the engine does not answer: {error}"),
        }
    }
}

impl From<io::Error> for Unserved {
    fn from(error: io::Error) -> Self {
        Unserved::Lost(error)
    }
}

/// The content of a `hello` frame.
pub struct Greeting {
    pub session: [u8; 16],
    pub jobs: u32,
    pub wishes: u32,
    pub name: Vec<u8>,
}

impl Greeting {
    fn hello(self) -> Request {
        Request::Hello(Hello {
            lowest: VERSION,
            highest: VERSION,
            session: self.session,
            jobs: self.jobs,
            wishes: self.wishes,
            pid: std::process::id(),
            token: Vec::new(),
            name: self.name,
        })
    }
}

/// How long a build waits for an engine that does not answer: `WAFD_PATIENCE`, in seconds.
pub fn patience() -> Duration {
    let told = std::env::var("WAFD_PATIENCE").ok().and_then(|text| text.parse().ok());
    let told = told.filter(|seconds: &f64| *seconds > 0.0);
    told.map_or(PATIENCE, |seconds| Duration::from_secs_f64(seconds.min(MOST_PATIENCE)))
}

pub struct Client {
    stream: UnixStream,
    inbox: Inbox,
    /// The engine has answered the greeting, so its event loop runs.
    is_welcome: bool,
    pub pid: u32,
}

impl Client {
    /// Connects and greets. `jobs` is 0 for a connection that sends no commands.
    pub fn connect(folder: &Folder, session: [u8; 16], jobs: u32, name: &[u8]) -> Result<Client, Unserved> {
        let greeting = Greeting {
            session,
            jobs,
            wishes: 0,
            name: name.to_vec(),
        };
        Client::call(folder, greeting, &[], &[], GREETING_TIME)
    }

    /// Connects, greets and sends requests without waiting in between. The descriptors belong to the requests. If the
    /// engine does not greet in time, the result is `Lost`.
    pub fn call(
        folder: &Folder,
        greeting: Greeting,
        requests: &[&Request],
        descriptors: &[BorrowedFd<'_>],
        time: Duration,
    ) -> Result<Client, Unserved> {
        let deadline = Instant::now() + time;
        folder.check().map_err(|e| Unserved::Absent(io::Error::other(e)))?;
        let stream = open_socket(folder, time)?;
        let mut client = Client::resume(stream, &[]);
        let hello = greeting.hello();
        let all: Vec<_> = [&hello].into_iter().chain(requests.iter().copied()).collect();
        let sent = match client.ask(&all, descriptors) {
            // An engine that refuses us may have closed the connection before all was sent. Its reason can still be
            // read.
            Err(error) if !is_end(&error) => return Err(error.into()),
            sent => sent,
        };
        let received = client.receive_greeting(deadline);
        match received.map_err(|error| client.name_stopped(sent.err().unwrap_or(error), time))? {
            Reply::Welcome { pid, .. } => {
                client.pid = pid;
                client.is_welcome = true;
                client.patience(Some(GREETING_TIME))?;
            }
            Reply::Refused { why, reason } => {
                let reason = String::from_utf8_lossy(&reason).into_owned();
                return Err(Unserved::Refused(why, reason));
            }
            _ => return Err(unexpected().into()),
        }
        Ok(client)
    }

    /// Continues a connection over which `front.c` has greeted and asked, with the bytes received so far.
    pub fn resume(stream: UnixStream, received: &[u8]) -> Client {
        let mut inbox = Inbox::new(FRAME_CAP);
        inbox.push(received);
        Client {
            stream,
            inbox,
            is_welcome: false,
            pid: 0,
        }
    }

    pub fn send(&mut self, request: &Request) -> io::Result<()> {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        self.send_bytes(&bytes)
    }

    /// Programs such as `wafcc` do not ignore SIGPIPE, and must not end with the engine.
    fn send_bytes(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match rustix::net::send(&self.stream, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Sends requests, with the descriptors that belong to them.
    pub fn ask(&mut self, requests: &[&Request], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(ROOM);
        requests.iter().for_each(|request| request.encode(&mut bytes));
        if descriptors.is_empty() {
            return self.send_bytes(&bytes);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::other("more descriptors than a frame carries"));
        }
        let parts = [IoSlice::new(&bytes)];
        let sent = rustix::net::sendmsg(&self.stream, &parts, &mut control, SendFlags::NOSIGNAL)?;
        self.send_bytes(&bytes[sent..])
    }

    /// The next reply. Waits as long as `set_timeout` allows.
    pub fn receive(&mut self) -> io::Result<Reply> {
        let mut chunk = [0; CHUNK];
        loop {
            if let Some(frame) = self.inbox.take().map_err(io::Error::other)? {
                return Reply::decode(frame).map_err(io::Error::other);
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.inbox.push(&chunk[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The answer to the greeting. If the engine is found stopped in two checks in a row, we wait no longer.
    fn receive_greeting(&mut self, deadline: Instant) -> io::Result<Reply> {
        let engine = peer_of(&self.stream)?;
        let mut was_stopped = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // A timeout of zero would mean no timeout.
            self.patience(Some(left.clamp(Duration::from_millis(1), LOOK)))?;
            match self.receive() {
                Err(error) if is_timeout(&error) && left > LOOK => {
                    let is_stopped = is_stopped(&engine);
                    if is_stopped && was_stopped {
                        return Err(error);
                    }
                    was_stopped = is_stopped;
                }
                other => return other,
            }
        }
    }

    /// The next reply, however long it takes. Only the greeting must come in time. An engine that is found stopped in
    /// two checks in a row, `time` apart, will not answer and blocks all clients, so it is ended.
    pub fn receive_while_it_lives(&mut self, time: Duration, greeting: Duration) -> io::Result<Reply> {
        let deadline = Instant::now() + greeting;
        self.patience(Some(time))?;
        let engine = peer_of(&self.stream)?;
        let mut was_stopped = false;
        loop {
            match self.receive() {
                Err(error) if is_timeout(&error) => {}
                Ok(reply) => {
                    self.is_welcome |= matches!(reply, Reply::Welcome { .. });
                    return Ok(reply);
                }
                other => return other,
            }
            let is_stopped = is_stopped(&engine);
            if is_stopped && was_stopped {
                end_stopped(&engine);
                // The same error as if another process had killed the engine.
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            was_stopped = is_stopped;
            if !self.is_welcome && !is_stopped && Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// If the engine was stopped, the error names its process and the remedy.
    fn name_stopped(&self, error: io::Error, time: Duration) -> io::Error {
        match peer_of(&self.stream) {
            Ok(engine) if is_timeout(&error) && is_stopped(&engine) => {
                let pid = engine.pid;
                let text = format!("somebody has stopped its process {pid}; `kill -CONT {pid}` lets it go on");
                io::Error::new(error.kind(), format!("{text}, `wafd stop --now` ends it"))
            }
            _ if is_timeout(&error) => {
                let seconds = time.as_secs_f64();
                io::Error::new(error.kind(), format!("it was silent for {seconds} seconds"))
            }
            _ => error,
        }
    }

    /// How long to wait for replies from now on. `None` means without a limit, for the end of a command.
    pub fn patience(&self, time: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(time)
    }

    pub fn report(&mut self) -> io::Result<serde_json::Value> {
        self.ask_for_json(&Request::Status)
    }

    /// Asks about the cache: JSON in both directions.
    pub fn ask_cache(&mut self, question: Vec<u8>) -> io::Result<serde_json::Value> {
        self.ask_for_json(&Request::Cache { question })
    }

    fn ask_for_json(&mut self, request: &Request) -> io::Result<serde_json::Value> {
        self.send(request)?;
        match self.receive()? {
            Reply::Report { json } => Ok(serde_json::from_slice(&json)?),
            _ => Err(unexpected()),
        }
    }

    /// Has the engine open its TCP port, and returns it.
    pub fn listen(&mut self) -> io::Result<u16> {
        self.send(&Request::Listen)?;
        match self.receive()? {
            Reply::Listening { port } => Ok(port),
            _ => Err(unexpected()),
        }
    }

    /// Tells the engine to stop, and waits until it closes this connection.
    pub fn stop(mut self, now: bool, time: Option<Duration>) -> io::Result<()> {
        self.send(&Request::Stop { now })?;
        self.patience(time)?;
        match self.receive() {
            Err(error) if is_end(&error) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(unexpected()),
        }
    }
}

/// Connects with a deadline for every wait, even for the one in the queue of the socket.
fn open_socket(folder: &Folder, time: Duration) -> Result<UnixStream, Unserved> {
    let absent = |error: Errno| Unserved::Absent(error.into());
    let address = SocketAddrUnix::new(folder.socket()).map_err(absent)?;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(absent)?;
    let stream = UnixStream::from(socket);
    stream.set_read_timeout(Some(time))?;
    stream.set_write_timeout(Some(time))?;
    rustix::net::connect(&stream, &address).map_err(absent)?;
    Ok(stream)
}

/// There is no socket, or no process listens on it.
fn is_not_listening(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

pub fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Stopped by a signal (`SIGSTOP`). A debugger shows another state.
fn is_stopped(engine: &libc::ucred) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", engine.pid)).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state == Some('T')
}

/// Ends an engine that was stopped by a signal, after a wait in vain. Returns whether it was stopped.
pub fn end_if_stopped(folder: &Folder) -> bool {
    let engine = open_socket(folder, PATIENCE)
        .ok()
        .and_then(|stream| peer_of(&stream).ok());
    let stopped = engine.filter(is_stopped);
    stopped.iter().for_each(end_stopped);
    stopped.is_some()
}

/// Every client would wait for it. Its guardian cleans up, and the next client starts another engine.
fn end_stopped(engine: &libc::ucred) {
    // If it cannot be ended, because it is another user's, its clients only lose time.
    let _ = Pid::from_raw(engine.pid).map(|pid| rustix::process::kill_process(pid, Signal::KILL));
}

/// The engine has closed the connection.
pub fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

fn unexpected() -> io::Error {
    io::Error::other("an answer to something else")
}
