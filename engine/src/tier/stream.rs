//! A connection by TCP, perhaps with TLS, or by a Unix socket, that waits for its peer no longer than a heartbeat allows.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{set_socket_timeout, Timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::heartbeat::Heartbeat;
use super::Fault;
use crate::settings::address::Address;

/// A socket whose waits are limited.
struct Timed {
    socket: OwnedFd,
    heartbeat: Arc<Heartbeat>,
    /// In polling mode, its user does the waiting.
    is_polled: bool,
}

impl Timed {
    fn new(socket: OwnedFd, heartbeat: &Arc<Heartbeat>) -> Timed {
        Timed {
            socket,
            heartbeat: heartbeat.clone(),
            is_polled: false,
        }
    }

    /// A time-out of zero would mean none.
    fn set_time(&self, which: Timeout) -> io::Result<()> {
        if self.is_polled {
            return Ok(());
        }
        let left = self.heartbeat.listen();
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(set_socket_timeout(&self.socket, which, Some(left))?),
        }
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.set_time(Timeout::Recv)?;
        let (read, _) = rustix::net::recv(&self.socket, buffer, RecvFlags::empty())?;
        Ok(read)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.set_time(Timeout::Send)?;
        Ok(rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Transport {
    Plain(Timed),
    Tls(Box<StreamOwned<ClientConnection, Timed>>),
}

pub struct Stream(Transport);

impl Stream {
    pub fn connect(
        address: &Address,
        tls: Option<&Arc<ClientConfig>>,
        heartbeat: &Arc<Heartbeat>,
    ) -> io::Result<Stream> {
        let time = heartbeat.allow(heartbeat.limits.connect);
        let socket = match &address.socket {
            Some(path) => connect_unix(path)?,
            None => connect_tcp(address, time)?,
        };
        let Some(tls) = tls else {
            return Ok(Stream::over(socket, heartbeat));
        };
        let timed = Timed::new(socket, heartbeat);
        let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
        let session = ClientConnection::new(tls.clone(), name).map_err(io::Error::other)?;
        Ok(Stream(Transport::Tls(Box::new(StreamOwned::new(session, timed)))))
    }

    /// A connection that there is already.
    pub fn over(socket: OwnedFd, heartbeat: &Arc<Heartbeat>) -> Stream {
        Stream(Transport::Plain(Timed::new(socket, heartbeat)))
    }

    fn timed(&mut self) -> &mut Timed {
        match &mut self.0 {
            Transport::Plain(timed) => timed,
            Transport::Tls(stream) => &mut stream.sock,
        }
    }

    /// The heartbeat that limits the waits from now on.
    pub fn set_heartbeat(&mut self, heartbeat: &Arc<Heartbeat>) {
        self.timed().heartbeat = heartbeat.clone();
    }

    /// From now on no call blocks: the caller polls.
    pub fn set_nonblocking(&mut self) -> io::Result<()> {
        let timed = self.timed();
        timed.is_polled = true;
        Ok(rustix::io::ioctl_fionbio(&timed.socket, true)?)
    }

    /// Whether bytes that were accepted must still be sent.
    pub fn is_sending(&self) -> bool {
        match &self.0 {
            Transport::Plain(_) => false,
            Transport::Tls(stream) => stream.conn.wants_write(),
        }
    }
}

fn connect_tcp(address: &Address, time: Duration) -> io::Result<OwnedFd> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for place in (address.host.as_str(), address.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&place, time) {
            Ok(connected) => {
                connected.set_nodelay(true)?;
                return Ok(connected.into());
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// If the server's queue is full, this fails at once. It would wait for ever without the flag.
fn connect_unix(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Err(rustix::io::Errno::NOENT) => return Err(io::ErrorKind::ConnectionRefused.into()),
        connected => connected?,
    }
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket)
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Transport::Plain(timed) => timed.socket.as_fd(),
            Transport::Tls(stream) => stream.sock.socket.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Transport::Plain(timed) => timed.read(buffer),
            Transport::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Transport::Plain(timed) => timed.write(bytes),
            Transport::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Transport::Plain(timed) => timed.flush(),
            Transport::Tls(stream) => stream.flush(),
        }
    }
}

/// The reason of a failure, in one of few texts, under which failures are counted.
pub fn fault(error: &io::Error, heartbeat: &Heartbeat) -> Fault {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut,
        UnexpectedEof, WouldBlock,
    };
    let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let words = match error.kind() {
        TimedOut | WouldBlock => {
            let time = heartbeat.limits.silence.as_millis();
            return Fault::Silent(format!("it did not answer within {time} ms"));
        }
        ConnectionRefused => "nobody listens there",
        ConnectionReset | ConnectionAborted | UnexpectedEof => "it closed the connection",
        HostUnreachable | NetworkUnreachable => "there is no way to it",
        _ => match refused {
            Some(error) => return Fault::Failed(format!("TLS with it failed: {error}")),
            None => "the connection failed",
        },
    };
    log::debug!("{words}: {error}");
    Fault::Failed(words.to_owned())
}

/// For servers whose certificate was signed by an authority that the system trusts, or by the one that is named.
pub fn tls(address: &Address) -> Result<Option<Arc<ClientConfig>>, String> {
    if !address.is_secure {
        return Ok(None);
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(address)?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| format!("{address}: TLS: {error}"))?;
    Ok(Some(Arc::new(
        builder.with_root_certificates(roots).with_no_client_auth(),
    )))
}

pub fn certificates(address: &Address) -> Result<Vec<CertificateDer<'static>>, String> {
    let Some(path) = &address.ca else {
        return Ok(rustls_native_certs::load_native_certs().certs);
    };
    let read = |path: &Path| {
        let bytes = fs::read(path).map_err(|error| error.to_string())?;
        let all = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
        all.map_err(|error| format!("{error:?}"))
    };
    match read(path) {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(format!(
            "{address}: {} has no certificate; ca is a file in PEM",
            path.display()
        )),
        Err(why) => Err(format!(
            "{address}: read {}: {why}; ca is a file in PEM",
            path.display()
        )),
    }
}

/// The password or token: the content of its file, otherwise the one in the address.
pub fn secret(address: &Address) -> Result<Option<String>, String> {
    let Some(path) = &address.token_file else {
        return Ok(address.password.clone());
    };
    let text = fs::read_to_string(path).map_err(|error| format!("{address}: read {}: {error}", path.display()))?;
    match text.lines().next().map(str::trim).filter(|line| !line.is_empty()) {
        Some(line) => Ok(Some(line.to_owned())),
        None => Err(format!("{address}: the first line of {} is empty", path.display())),
    }
}
