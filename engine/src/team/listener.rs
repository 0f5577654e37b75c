//! The thread that takes connections and hands them out, and hears signals and changes of tokens and certificates.

use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{info, warn};
use rustix::event::{epoll, Timespec};

use super::mailbox::{Arrival, Letter, Mailbox};
use super::metrics::{add, Turned};
use super::shared::Shared;
use super::tls::Papers;
use super::token_file::TokenFile;

const SIGNALS: u64 = u64::MAX;
/// How often tokens and certificates are looked at, and how long we take no connections when there are no descriptors for them.
const TICK: Duration = Duration::from_secs(1);
const BREATH: Duration = Duration::from_millis(100);
/// For workers to catch up.
const MOMENT: Duration = Duration::from_millis(1);

pub fn listen(address: SocketAddr) -> Result<TcpListener, String> {
    let named = |error: io::Error| format!("listen on {address}: {error}");
    let listener = TcpListener::bind(address).map_err(named)?;
    listener.set_nonblocking(true).map_err(named)?;
    // As many at once as the system lets wait.
    let _ = rustix::net::listen(&listener, 4096);
    Ok(listener)
}

/// An address that is listened on.
pub struct Port {
    pub listener: TcpListener,
    /// Without TLS, also where the other ports have it.
    pub is_plain: bool,
}

pub struct Listener {
    pub shared: Arc<Shared>,
    pub workers: Vec<Arc<Mailbox>>,
    pub ports: Vec<Port>,
    pub signals: OwnedFd,
    pub tokens: TokenFile,
    pub papers: Option<Papers>,
}

impl Listener {
    /// Takes connections until a signal comes.
    pub fn run(mut self) -> io::Result<()> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let numbered = (0..).zip(&self.ports);
        for (number, port) in numbered {
            epoll::add(
                &epoll,
                &port.listener,
                epoll::EventData::new_u64(number),
                epoll::EventFlags::IN,
            )?;
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
                self.look_at_tokens();
                self.look_at_papers();
            }
        }
    }

    fn accept(&self, number: usize, next: &mut usize) {
        while let Some(port) = self.ports.get(number) {
            if self.is_behind() {
                return std::thread::sleep(MOMENT);
            }
            let (socket, peer) = match port.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    warn!("take a connection: {error}");
                    return std::thread::sleep(BREATH);
                }
            };
            let metrics = &self.shared.metrics;
            add(&metrics.arrived, 1);
            if self.shared.known.now() >= self.shared.limits.connections {
                metrics.turn(Turned::Crowded);
                continue;
            }
            add(&metrics.open, 1);
            *next = (*next + 1) % self.workers.len();
            let is_plain = port.is_plain;
            self.workers[*next].put(Letter::Arrived(Arrival { socket, peer, is_plain }));
        }
    }

    /// Workers turn away the oldest of those without a token, and are behind with that: the next ones wait in the kernel.
    fn is_behind(&self) -> bool {
        self.shared.strangers() > 2 * self.shared.most_strangers()
    }

    fn look_at_papers(&mut self) {
        match self.papers.as_mut().and_then(Papers::changed) {
            None => {}
            Some(Err(error)) => warn!("{error}; the certificates stay as they were"),
            Some(Ok(tls)) => {
                info!("certificates were read again");
                self.shared.set_tls(tls);
            }
        }
    }

    /// Connections whose token does not hold any more end.
    fn revoke(&self) {
        self.workers.iter().for_each(|worker| worker.put(Letter::Tokens));
    }

    fn look_at_tokens(&mut self) {
        match self.tokens.changed() {
            None => {}
            // Somebody may have meant to add one.
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
