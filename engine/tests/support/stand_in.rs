//! A process that the engine takes for the client, while the test uses the connection.
//!
//! The process connects and then becomes a shell, so the kernel names it as the peer. It runs what the test tells it,
//! so that a test can change the umask, namespace or group of the "client" at any time. Both have the connection, which
//! ends when the stand-in has ended and the test has dropped its `Peer`.

use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketType,
};

use super::peer::Peer;
use super::process;
use super::sandbox::Sandbox;

pub struct StandIn {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl StandIn {
    /// Starts a shell. `prepare` runs before it connects, like code between `fork` and `exec`.
    pub fn start(
        sandbox: &Sandbox,
        prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
    ) -> (StandIn, Peer) {
        StandIn::run(sandbox, &["sh"], prepare).expect("a stand-in")
    }

    /// Starts any program that ends as a shell in the same process. It is an error if the shell does not answer.
    pub fn run(
        sandbox: &Sandbox,
        program: &[&str],
        mut prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<(StandIn, Peer)> {
        let address = SocketAddrUnix::new(sandbox.socket())?;
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // SAFETY: only system calls, on memory that was allocated before.
        unsafe {
            command.pre_exec(move || {
                prepare()?;
                let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
                rustix::net::connect(&socket, &address)?;
                hand_over(&theirs, socket.as_fd())?;
                // The descriptor stays open in the shell.
                std::mem::forget(socket);
                Ok(())
            });
        }
        let mut child = command.spawn()?;
        drop(command);
        let connection = take_over(&ours)?;
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut stand_in = StandIn { child, orders, answers };
        stand_in.ask("echo here")?;
        Ok((stand_in, Peer::of(connection)))
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Has the shell run a script.
    #[track_caller]
    pub fn tell(&mut self, script: &str) {
        assert_eq!(self.ask(&format!("{script}; echo done")).unwrap(), "done\n");
    }

    fn ask(&mut self, script: &str) -> io::Result<String> {
        let mut line = String::new();
        writeln!(self.orders, "{script}")?;
        self.orders.flush()?;
        match self.answers.read_line(&mut line)? {
            0 => Err(io::Error::other("the stand-in has ended")),
            _ => Ok(line),
        }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        process::kill(self.pid(), libc::SIGKILL);
        let _ = self.child.wait();
    }
}

fn hand_over(channel: &UnixStream, fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    rustix::net::sendmsg(channel, &[IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn take_over(channel: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    let mut parts = [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(channel, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let fds = control.drain().find_map(|part| match part {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    fds.ok_or_else(|| io::Error::other("no connection"))
}
