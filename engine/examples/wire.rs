//! Hosts on one machine, for tests and benchmarks: `wire HOSTS`, as root.
//!
//! Each host is a network namespace with one device, which is a TUN: what it sends is read here as packets, and written to the
//! device of whom it is for after the link's delay, unless it is lost or somebody is cut off. So TCP itself does what it does
//! on a bad line. Tells as JSON each host's address and the namespace, which `nsenter --net=` enters; then obeys lines of
//! standard input, answers each by one line, and ends with it. The namespaces end with their last process.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Error, Read};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};
use std::{env, mem, process, ptr};

use rustix::event::epoll;
use rustix::time::{
    timerfd_create, timerfd_settime, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec,
};

const MTU: i32 = 9000;
/// Packets that a device holds while this program does something else.
const QUEUE: i32 = 4000;
const DESTINATION: usize = 16;
/// What is not a host's number.
const STDIN: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;

struct Host {
    namespace: File,
    device: File,
    is_cut: bool,
}

struct Packet {
    due: Instant,
    to: usize,
    bytes: Box<[u8]>,
}

struct Wire {
    hosts: Vec<Host>,
    delay: Duration,
    loss: f64,
    chance: u64,
    under_way: VecDeque<Packet>,
    carried: u64,
    lost: u64,
}

fn main() -> io::Result<()> {
    let count = env::args().nth(1).and_then(|text| text.parse().ok());
    let Some(count @ 1..=250) = count else {
        return Err(Error::other("usage: wire HOSTS"));
    };
    be_prompt();
    let hosts = (0..count).map(make_host).collect::<io::Result<Vec<_>>>()?;
    let told = hosts.iter().enumerate().map(|(number, host)| tell(number, host));
    println!("[{}]", told.collect::<Vec<_>>().join(", "));
    let wire = Wire {
        hosts,
        delay: Duration::ZERO,
        loss: 0.0,
        chance: 1,
        under_way: VecDeque::new(),
        carried: 0,
        lost: 0,
    };
    wire.run()
}

/// A line does not wait for compilers, nor for the end of a timer's slack.
fn be_prompt() {
    // SAFETY: both change this thread alone.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, -15);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1000);
    }
}

fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, number as u8 + 1)
}

fn tell(number: usize, host: &Host) -> String {
    let namespace = format!("/proc/{}/fd/{}", process::id(), host.namespace.as_raw_fd());
    format!(
        "{{\"address\": \"{}\", \"namespace\": \"{namespace}\"}}",
        address(number)
    )
}

fn make_host(number: usize) -> io::Result<Host> {
    // SAFETY: this program has one thread.
    check("make a network namespace", unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    let namespace = File::open("/proc/self/ns/net")?;
    let device = open_device().map_err(|error| named("open /dev/net/tun", &error))?;
    // SAFETY: a socket of our own, which is closed when the function ends.
    let socket = unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)) };
    let set = |name: &str, request: libc::Ioctl, fill: &dyn Fn(&mut libc::ifreq)| {
        let mut asked = interface(name);
        fill(&mut asked);
        // SAFETY: the request reads one ifreq.
        check(name, unsafe { libc::ioctl(socket.as_raw_fd(), request, &asked) })
    };
    let up = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    set("lo", libc::SIOCSIFFLAGS, &|asked| asked.ifr_ifru.ifru_flags = up)?;
    set("tun0", libc::SIOCSIFMTU, &|asked| asked.ifr_ifru.ifru_mtu = MTU)?;
    set("tun0", libc::SIOCSIFTXQLEN, &|asked| asked.ifr_ifru.ifru_metric = QUEUE)?;
    set("tun0", libc::SIOCSIFADDR, &|asked| put_address(asked, address(number)))?;
    let mask = Ipv4Addr::new(255, 255, 255, 0);
    set("tun0", libc::SIOCSIFNETMASK, &|asked| put_address(asked, mask))?;
    set("tun0", libc::SIOCSIFFLAGS, &|asked| asked.ifr_ifru.ifru_flags = up)?;
    Ok(Host {
        namespace,
        device,
        is_cut: false,
    })
}

fn open_device() -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let device = options.open("/dev/net/tun")?;
    let mut asked = interface("tun0");
    asked.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request reads and writes one ifreq.
    check("TUNSETIFF", unsafe {
        libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &mut asked)
    })?;
    Ok(device)
}

fn interface(name: &str) -> libc::ifreq {
    // SAFETY: made of numbers alone.
    let mut asked: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in asked.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    asked
}

fn put_address(asked: &mut libc::ifreq, address: Ipv4Addr) {
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(address.octets()),
        },
        sin_zero: [0; 8],
    };
    // SAFETY: both are sixteen bytes.
    unsafe { ptr::write_unaligned(ptr::from_mut(&mut asked.ifr_ifru).cast(), address) };
}

fn check(what: &str, status: libc::c_int) -> io::Result<()> {
    match status {
        -1 => Err(named(what, &Error::last_os_error())),
        _ => Ok(()),
    }
}

fn named(what: &str, error: &Error) -> Error {
    Error::new(error.kind(), format!("{what}: {error}"))
}

impl Wire {
    fn run(mut self) -> io::Result<()> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (number, host) in self.hosts.iter().enumerate() {
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&poll, &host.device, data, epoll::EventFlags::IN)?;
        }
        let data = epoll::EventData::new_u64(STDIN);
        epoll::add(&poll, io::stdin(), data, epoll::EventFlags::IN)?;
        // epoll's own time-out is in milliseconds, which is what a line takes.
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(TIMER);
        epoll::add(&poll, &timer, data, epoll::EventFlags::IN)?;
        let mut events = Vec::with_capacity(16);
        loop {
            timerfd_settime(&timer, TimerfdTimerFlags::empty(), &self.alarm())?;
            match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    STDIN if !self.obey()? => return Ok(()),
                    STDIN | TIMER => {}
                    number => self.take(number as usize),
                }
            }
            self.hand_on(Instant::now());
        }
    }

    /// When the next packet is due; never, where there is none. To set it anew also takes back that it rang.
    fn alarm(&self) -> Itimerspec {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let left = self
            .under_way
            .front()
            .map(|packet| packet.due.saturating_duration_since(Instant::now()));
        let it_value = left.map_or(zero, |left| Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()).max(1),
        });
        Itimerspec {
            it_interval: zero,
            it_value,
        }
    }

    /// Whatever this host sends.
    fn take(&mut self, from: usize) {
        let mut bytes = [0; MTU as usize];
        while let Ok(size @ 1..) = (&self.hosts[from].device).read(&mut bytes) {
            let packet = &bytes[..size];
            let Some(to) = self.destination(packet) else { continue };
            if self.hosts[from].is_cut || self.hosts[to].is_cut || self.is_lost() {
                self.lost += 1;
                continue;
            }
            let mut due = Instant::now() + self.delay;
            if let Some(last) = self.under_way.back() {
                due = due.max(last.due); // nothing overtakes, also when the delay gets shorter
            }
            let bytes = packet.into();
            self.under_way.push_back(Packet { due, to, bytes });
        }
    }

    fn destination(&self, packet: &[u8]) -> Option<usize> {
        let is_ipv4 = packet[0] >> 4 == 4;
        let to: [u8; 4] = packet.get(DESTINATION..DESTINATION + 4)?.try_into().ok()?;
        (0..self.hosts.len()).find(|&number| is_ipv4 && address(number).octets() == to)
    }

    /// The same ones for the same seed and the same packets.
    fn is_lost(&mut self) -> bool {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        ((self.chance >> 11) as f64 / (1u64 << 53) as f64) < self.loss
    }

    fn hand_on(&mut self, now: Instant) {
        while self.under_way.front().is_some_and(|packet| packet.due <= now) {
            let Some(packet) = self.under_way.pop_front() else {
                return;
            };
            // A device that is full loses it, as a real one does.
            match rustix::io::write(&self.hosts[packet.to].device, &packet.bytes) {
                Ok(_) => self.carried += 1,
                Err(_) => self.lost += 1,
            }
        }
    }

    /// One line of standard input; false at its end.
    fn obey(&mut self) -> io::Result<bool> {
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line)? == 0 {
            return Ok(false);
        }
        let words: Vec<_> = line.split_whitespace().collect();
        let host = |text: &str| text.parse().ok().filter(|&number: &usize| number < self.hosts.len());
        match words[..] {
            ["delay", microseconds] => self.delay = Duration::from_micros(number(microseconds)?),
            ["loss", share, seed] => (self.loss, self.chance) = (number(share)?, number::<u64>(seed)?.max(1)),
            ["cut" | "join", text] => {
                let number = host(text).ok_or(Error::other("there is no such host"))?;
                self.hosts[number].is_cut = words[0] == "cut";
            }
            ["counts"] => {}
            _ => {
                return Err(Error::other(
                    "delay MICROSECONDS, loss SHARE SEED, cut HOST, join HOST, counts",
                ))
            }
        }
        println!("{{\"carried\": {}, \"lost\": {}}}", self.carried, self.lost);
        Ok(true)
    }
}

fn number<T: std::str::FromStr>(text: &str) -> io::Result<T> {
    text.parse()
        .map_err(|_| Error::other(format!("{text} is not a number")))
}
