//! The thread that accepts connections and passes them to the workers. It also waits for signals, and reads tokens and
//! certificates again when their files change.

use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{info, warn};
use rustix::event::{epoll, Timespec};

use super::mailbox::{Arrival, Mailbox, Message};
use super::metrics::{add, Rejection};
use super::shared::Shared;
use super::tls::CertificateFiles;
use super::token_file::TokenFile;

const SIGNALS: u64 = u64::MAX;
/// How often the files of tokens and certificates are checked.
const TICK: Duration = Duration::from_secs(1);
/// How long no connection is accepted after an error, such as too few descriptors.
const ERROR_PAUSE: Duration = Duration::from_millis(100);
/// How long no connection is accepted while workers are behind.
const CATCH_UP: Duration = Duration::from_millis(1);

pub fn listen(address: SocketAddr) -> Result<TcpListener, String> {
    let named = |error: io::Error| format!("listen on {address}: {error}");
    let listener = TcpListener::bind(address).map_err(named)?;
    listener.set_nonblocking(true).map_err(named)?;
    // The system lowers this to its own limit.
    let _ = rustix::net::listen(&listener, 4096);
    Ok(listener)
}

/// A listening socket.
pub struct Port {
    pub listener: TcpListener,
    /// It never uses TLS, even if the other ports do.
    pub is_plain: bool,
}

pub struct Listener {
    pub shared: Arc<Shared>,
    pub workers: Vec<Arc<Mailbox>>,
    pub ports: Vec<Port>,
    pub signals: OwnedFd,
    pub tokens: TokenFile,
    pub certificates: Option<CertificateFiles>,
}

impl Listener {
    /// Accepts connections until a signal comes.
    pub fn run(mut self) -> io::Result<()> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (number, port) in (0..).zip(&self.ports) {
            let number = epoll::EventData::new_u64(number);
            epoll::add(&epoll, &port.listener, number, epoll::EventFlags::IN)?;
        }
        let signals = epoll::EventData::new_u64(SIGNALS);
        epoll::add(&epoll, &self.signals, signals, epoll::EventFlags::IN)?;
        let mut space = [MaybeUninit::uninit(); 16];
        let mut ticked = Instant::now();
        let mut next = 0;
        loop {
            let wait = Timespec {
                tv_sec: TICK.as_secs() as i64,
                tv_nsec: 0,
            };
            let numbers: Vec<u64> = match epoll::wait(&epoll, &mut space, Some(&wait)) {
                Ok((events, _)) => events.iter().map(|event| event.data.u64()).collect(),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            if numbers.contains(&SIGNALS) {
                return Ok(());
            }
            for number in numbers {
                self.accept(number as usize, &mut next);
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.check_tokens();
                self.check_certificates();
            }
        }
    }

    fn accept(&self, number: usize, next: &mut usize) {
        while let Some(port) = self.ports.get(number) {
            if self.is_behind() {
                return std::thread::sleep(CATCH_UP);
            }
            let (socket, peer) = match port.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    warn!("take a connection: {error}");
                    return std::thread::sleep(ERROR_PAUSE);
                }
            };
            let metrics = &self.shared.metrics;
            add(&metrics.arrived, 1);
            if self.shared.authenticated() >= self.shared.limits.connections {
                metrics.count_rejection(Rejection::Crowded);
                continue;
            }
            add(&metrics.open, 1);
            *next = (*next + 1) % self.workers.len();
            let is_plain = port.is_plain;
            self.workers[*next].put(Message::Arrived(Arrival { socket, peer, is_plain }));
        }
    }

    /// Whether the workers have not yet ended the oldest connections without a token. Meanwhile new connections wait in the
    /// kernel.
    fn is_behind(&self) -> bool {
        self.shared.unauthenticated() > 2 * self.shared.max_unauthenticated()
    }

    fn check_certificates(&mut self) {
        match self.certificates.as_mut().and_then(CertificateFiles::changed) {
            None => {}
            Some(Err(error)) => warn!("{error}; the certificates stay as they were"),
            Some(Ok(tls)) => {
                info!("certificates were read again");
                self.shared.set_tls(tls);
            }
        }
    }

    /// Ends the connections whose token is not valid any more.
    fn revoke(&self) {
        self.workers.iter().for_each(|worker| worker.put(Message::Tokens));
    }

    fn check_tokens(&mut self) {
        match self.tokens.changed() {
            None => {}
            // The new file may have been meant to add the first token.
            Some(Err(error)) if self.shared.is_open() => {
                warn!("{error}; nobody is admitted without a token from now on");
                self.shared.close();
                self.revoke();
            }
            Some(Err(error)) => warn!("{error}; the tokens stay as they were"),
            Some(Ok(tokens)) => {
                info!("tokens were read again");
                if tokens.is_empty() && !self.shared.is_open() {
                    warn!("there are no tokens any more: nobody is admitted; start again to serve without tokens");
                }
                self.shared.set_tokens(tokens);
                self.revoke();
            }
        }
    }
}
