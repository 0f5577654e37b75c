//! Simulates a network of hosts on one machine, for tests and benchmarks: `wire HOSTS`, as root.
//!
//! Each host is a network namespace with one TUN device. This program reads the packets that a host sends, and writes each to
//! the device of its receiver after the delay of the line, unless the packet is lost or one of the hosts is cut off. So TCP
//! behaves as on a bad line. The program prints each host's address and namespace, which `nsenter --net=` enters, as JSON.
//! Then each line of standard input is a command, which gets one line as its answer. The program ends with its input. A
//! namespace ends with its last process.

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
// Events that are not the number of a host.
const STDIN: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;

struct Host {
    namespace: File,
    device: File,
    is_cut: bool,
    /// How often it sent data after data had come. A client waits no more often than that.
    turns: u64,
    has_heard: bool,
}

struct Packet {
    due: Instant,
    to: usize,
    bytes: Box<[u8]>,
}

struct Network {
    hosts: Vec<Host>,
    delay: Duration,
    loss: f64,
    random_state: u64,
    under_way: VecDeque<Packet>,
    delivered: u64,
    lost: u64,
}

fn main() -> io::Result<()> {
    let count = env::args().nth(1).and_then(|text| text.parse().ok());
    let Some(count @ 1..=250) = count else {
        return Err(Error::other("usage: wire HOSTS"));
    };
    raise_priority();
    let hosts = (0..count).map(make_host).collect::<io::Result<Vec<_>>>()?;
    let described = hosts.iter().enumerate().map(|(number, host)| describe(number, host));
    println!("[{}]", described.collect::<Vec<_>>().join(", "));
    let network = Network {
        hosts,
        delay: Duration::ZERO,
        loss: 0.0,
        random_state: 1,
        under_way: VecDeque::new(),
        delivered: 0,
        lost: 0,
    };
    network.run()
}

/// Packets must not wait for compilers, nor for the slack of timers.
fn raise_priority() {
    // SAFETY: both change this thread alone.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, -15);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1000);
    }
}

fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, number as u8 + 1)
}

fn describe(number: usize, host: &Host) -> String {
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
    let set = |name: &str, code: libc::Ioctl, fill: &dyn Fn(&mut libc::ifreq)| {
        let mut request = interface(name);
        fill(&mut request);
        // SAFETY: the request reads one ifreq.
        check(name, unsafe { libc::ioctl(socket.as_raw_fd(), code, &request) })
    };
    let up = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    set("lo", libc::SIOCSIFFLAGS, &|request| request.ifr_ifru.ifru_flags = up)?;
    set("tun0", libc::SIOCSIFMTU, &|request| request.ifr_ifru.ifru_mtu = MTU)?;
    set("tun0", libc::SIOCSIFTXQLEN, &|request| {
        request.ifr_ifru.ifru_metric = QUEUE
    })?;
    set("tun0", libc::SIOCSIFADDR, &|request| {
        put_address(request, address(number))
    })?;
    let mask = Ipv4Addr::new(255, 255, 255, 0);
    set("tun0", libc::SIOCSIFNETMASK, &|request| put_address(request, mask))?;
    set("tun0", libc::SIOCSIFFLAGS, &|request| request.ifr_ifru.ifru_flags = up)?;
    Ok(Host {
        namespace,
        device,
        is_cut: false,
        turns: 0,
        has_heard: false,
    })
}

fn open_device() -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let device = options.open("/dev/net/tun")?;
    let mut request = interface("tun0");
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request reads and writes one ifreq.
    check("TUNSETIFF", unsafe {
        libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &mut request)
    })?;
    Ok(device)
}

fn interface(name: &str) -> libc::ifreq {
    // SAFETY: made of numbers alone.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn put_address(request: &mut libc::ifreq, address: Ipv4Addr) {
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(address.octets()),
        },
        sin_zero: [0; 8],
    };
    // SAFETY: both are sixteen bytes.
    unsafe { ptr::write_unaligned(ptr::from_mut(&mut request.ifr_ifru).cast(), address) };
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

impl Network {
    fn run(mut self) -> io::Result<()> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (number, host) in self.hosts.iter().enumerate() {
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&poll, &host.device, data, epoll::EventFlags::IN)?;
        }
        let data = epoll::EventData::new_u64(STDIN);
        epoll::add(&poll, io::stdin(), data, epoll::EventFlags::IN)?;
        // The time-out of epoll is in milliseconds, which is too coarse: a line has delays of about one.
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
                    STDIN if !self.run_command()? => return Ok(()),
                    STDIN | TIMER => {}
                    number => self.take(number as usize),
                }
            }
            self.deliver(Instant::now());
        }
    }

    /// The time when the next packet is due. Setting the timer again also makes it unreadable.
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

    /// Takes all packets that this host has sent.
    fn take(&mut self, from: usize) {
        let mut bytes = [0; MTU as usize];
        while let Ok(size @ 1..) = (&self.hosts[from].device).read(&mut bytes) {
            let packet = &bytes[..size];
            let Some(to) = self.destination(packet) else { continue };
            if self.hosts[from].has_heard && has_data(packet) {
                self.hosts[from].turns += 1;
                self.hosts[from].has_heard = false;
            }
            if self.hosts[from].is_cut || self.hosts[to].is_cut || self.is_lost() {
                self.lost += 1;
                continue;
            }
            let mut due = Instant::now() + self.delay;
            if let Some(last) = self.under_way.back() {
                due = due.max(last.due); // packets keep their order if the delay gets shorter
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

    /// The choice depends only on the seed and on the number of earlier packets.
    fn is_lost(&mut self) -> bool {
        self.random_state ^= self.random_state << 13;
        self.random_state ^= self.random_state >> 7;
        self.random_state ^= self.random_state << 17;
        ((self.random_state >> 11) as f64 / (1u64 << 53) as f64) < self.loss
    }

    fn deliver(&mut self, now: Instant) {
        while self.under_way.front().is_some_and(|packet| packet.due <= now) {
            let Some(packet) = self.under_way.pop_front() else {
                return;
            };
            // A full device loses the packet, like a real one.
            match rustix::io::write(&self.hosts[packet.to].device, &packet.bytes) {
                Ok(_) => {
                    self.delivered += 1;
                    self.hosts[packet.to].has_heard |= has_data(&packet.bytes);
                }
                Err(_) => self.lost += 1,
            }
        }
    }

    /// Runs the command in the next line of standard input. False at its end.
    fn run_command(&mut self) -> io::Result<bool> {
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line)? == 0 {
            return Ok(false);
        }
        let words: Vec<_> = line.split_whitespace().collect();
        let host = |text: &str| text.parse().ok().filter(|&number: &usize| number < self.hosts.len());
        match words[..] {
            ["delay", microseconds] => self.delay = Duration::from_micros(number(microseconds)?),
            ["loss", share, seed] => (self.loss, self.random_state) = (number(share)?, number::<u64>(seed)?.max(1)),
            ["cut" | "join", text] => {
                let number = host(text).ok_or(Error::other("there is no such host"))?;
                self.hosts[number].is_cut = words[0] == "cut";
            }
            ["counts"] => {}
            ["turns", text] => {
                let number = host(text).ok_or(Error::other("there is no such host"))?;
                println!("{{\"turns\": {}}}", self.hosts[number].turns);
                return Ok(true);
            }
            _ => {
                return Err(Error::other(
                    "delay MICROSECONDS, loss SHARE SEED, cut HOST, join HOST, counts, turns HOST",
                ))
            }
        }
        println!("{{\"carried\": {}, \"lost\": {}}}", self.delivered, self.lost);
        Ok(true)
    }
}

/// Whether a packet is one of TCP, and more than an acknowledgement.
fn has_data(packet: &[u8]) -> bool {
    const TCP: u8 = 6;
    let header = usize::from(packet[0] & 15) * 4;
    match (packet.get(9), packet.get(header + 12)) {
        (Some(&TCP), Some(offset)) => packet.len() > header + usize::from(offset >> 4) * 4,
        _ => false,
    }
}

fn number<T: std::str::FromStr>(text: &str) -> io::Result<T> {
    text.parse()
        .map_err(|_| Error::other(format!("{text} is not a number")))
}
