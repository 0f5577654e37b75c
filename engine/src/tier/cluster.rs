//! The program `wafd-cluster`, which speaks the Remote Execution API: starts it, and gets connections to it.
//!
//! There is one program for each address. Its standard input is the *control socket*. For a connection, one end of a socket
//! pair goes over it, with a byte that says what is spoken there. When the control socket closes, the program ends.
//!
//! ```text
//! room ─► connect ─► a thread ─► the program, started when it is first needed, and again when it has died
//! ```

use std::env;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, sync_channel, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use rustix::net::{
    sendmsg, AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use super::heartbeat::Heartbeat;
use super::stream::{secret, tls};
use super::Fault;
use crate::settings::address::{Address, Limits};

/// The kinds of connections: the room's protocol, or commands to be run elsewhere.
pub const STORE: u8 = b'S';
pub const EXECUTE: u8 = b'X';
/// The variable that has the address as it was written. Other users cannot read it, and no list of processes shows it.
pub const ADDRESS: &str = "WAFD_CLUSTER";
const NAME: &str = "wafd-cluster";
/// What else of our environment the program gets: where the system's certificates are, and what it writes to the log.
const KEPT: [&str; 3] = ["SSL_CERT_FILE", "SSL_CERT_DIR", "WAFD_LOG"];
/// How much longer we wait than the program waits for the cluster. It tells in time that the cluster does not answer. We
/// wait that long only if the program itself does not answer, or starts slowly.
const MORE: Duration = Duration::from_secs(1);

/// All programs of this engine. Lookups, uploads and commands of one address share one.
static PROGRAMS: Mutex<Vec<(String, Weak<Program>)>> = Mutex::new(Vec::new());

pub struct Program {
    orders: Sender<Order>,
}

/// A connection that is wanted, and where it is passed on.
struct Order {
    kind: u8,
    reply: SyncSender<io::Result<OwnedFd>>,
}

struct Starter {
    program: PathBuf,
    /// The address as it was written.
    text: String,
    running: Option<Running>,
}

struct Running {
    child: Child,
    control: Option<OwnedFd>,
}

impl Program {
    /// Of this address. It is not started yet. An error is a mistake in the address, or in a file that it names.
    pub fn of(address: &Address) -> Result<Arc<Program>, String> {
        secret(address)?;
        tls(address)?;
        let mut programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
        programs.retain(|(_, program)| program.strong_count() > 0);
        let known = programs.iter().find(|(text, _)| *text == address.text);
        if let Some(program) = known.and_then(|(_, program)| program.upgrade()) {
            return Ok(program);
        }
        let program = Program::new(address).map_err(|error| format!("{address}: start a thread: {error}"))?;
        let program = Arc::new(program);
        programs.push((address.text.clone(), Arc::downgrade(&program)));
        Ok(program)
    }

    /// The program is started in a thread of its own: it would inherit the low priority of a thread that uploads.
    fn new(address: &Address) -> io::Result<Program> {
        let (orders, waiting) = channel();
        let mut starter = Starter {
            program: program_beside_us(),
            text: address.text.clone(),
            running: None,
        };
        let serve = move || starter.serve(&waiting);
        thread::Builder::new().name("cluster".to_owned()).spawn(serve)?;
        Ok(Program { orders })
    }

    /// A connection of this kind. If the program does not run, it is started.
    pub fn connect(&self, kind: u8, heartbeat: &Heartbeat) -> Result<OwnedFd, Fault> {
        let (reply, answer) = sync_channel(1);
        let time = heartbeat.allow(heartbeat.limits.connect);
        let silent = || Fault::Silent(format!("{NAME} did not start within {} ms", time.as_millis()));
        self.orders.send(Order { kind, reply }).map_err(|_| silent())?;
        match answer.recv_timeout(time).map_err(|_| silent())? {
            Ok(socket) => Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Fault::Failed(format!("there is no program {NAME} beside wafd")))
            }
            Err(error) => Err(Fault::Failed(format!("start {NAME}: {error}"))),
        }
    }
}

/// How long we wait for the program, which keeps these limits towards the cluster.
pub fn patient(limits: Limits) -> Limits {
    Limits {
        connect: limits.connect + MORE,
        silence: limits.silence + MORE,
        whole: limits.whole + MORE,
        pause: limits.pause,
    }
}

fn program_beside_us() -> PathBuf {
    let us = env::current_exe().unwrap_or_default();
    us.parent().unwrap_or(Path::new("/")).join(NAME)
}

impl Starter {
    /// Until the program is not needed any more.
    fn serve(&mut self, waiting: &Receiver<Order>) {
        while let Ok(Order { kind, reply }) = waiting.recv() {
            // If the caller has given up, the connection is closed.
            let _ = reply.send(self.connect(kind));
        }
    }

    fn connect(&mut self, kind: u8) -> io::Result<OwnedFd> {
        let (ours, theirs) = socket_pair(SocketType::STREAM)?;
        if let Some(running) = &self.running {
            match running.give(kind, &theirs) {
                Ok(()) => return Ok(ours),
                Err(error) => log::warn!("{NAME} has ended, and is started again: {error}"),
            }
        }
        self.running = None;
        let running = self.start()?;
        running.give(kind, &theirs)?;
        self.running = Some(running);
        Ok(ours)
    }

    fn start(&self) -> io::Result<Running> {
        // With packets, each byte comes with its own descriptor.
        let (control, theirs) = socket_pair(SocketType::SEQPACKET)?;
        let kept = KEPT.iter().filter_map(|name| Some((name, env::var_os(name)?)));
        let child = Command::new(&self.program)
            .env_clear()
            .envs(kept)
            .env(ADDRESS, &self.text)
            .stdin(theirs)
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        let control = Some(control);
        Ok(Running { child, control })
    }
}

impl Running {
    fn give(&self, kind: u8, end: &OwnedFd) -> io::Result<()> {
        let control = self.control.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let ends = [end.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        rights.push(SendAncillaryMessage::ScmRights(&ends));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(control, &[IoSlice::new(&[kind])], &mut rights, flags)?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.control = None;
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn socket_pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::address::parse_all;
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn starter(program: PathBuf) -> Starter {
        Starter {
            program,
            text: "grpc://h:1".to_owned(),
            running: None,
        }
    }

    #[test]
    fn an_address_has_one_program_as_long_as_it_is_used() {
        let address = &parse_all("grpc://localhost:1/one").unwrap()[0];
        let other = &parse_all("grpc://localhost:1/two").unwrap()[0];
        let first = Program::of(address).unwrap();
        assert!(Arc::ptr_eq(&first, &Program::of(address).unwrap()));
        assert!(!Arc::ptr_eq(&first, &Program::of(other).unwrap()));
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let error = starter("/nonexistent/wafd-cluster".into()).connect(STORE).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_program_that_has_died_is_started_again() {
        let folder = env::temp_dir().join(format!("wafd-cluster-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join("program");
        // It notes each start, and never takes a connection.
        let script = "#!/bin/sh\necho \"$WAFD_CLUSTER\" >> \"${0%/*}/starts\"\nexec sleep 60\n";
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let mut starter = starter(program);
        let starts = || fs::read_to_string(folder.join("starts")).unwrap_or_default();
        let wait = |count: usize| {
            let deadline = Instant::now() + PATIENCE;
            while starts().lines().count() < count {
                assert!(Instant::now() < deadline, "{}", starts());
                thread::yield_now();
            }
        };
        starter.connect(STORE).unwrap();
        starter.connect(EXECUTE).unwrap();
        wait(1);
        let child = &mut starter.running.as_mut().unwrap().child;
        child.kill().unwrap();
        child.wait().unwrap();
        let second = starter.connect(STORE).unwrap();
        wait(2);
        assert_eq!(starts(), "grpc://h:1\ngrpc://h:1\n");
        drop(starter);
        // The end that was given is closed with the program.
        assert_eq!(UnixStream::from(second).read(&mut [0; 1]).unwrap(), 0);
        fs::remove_dir_all(&folder).unwrap();
    }
}
