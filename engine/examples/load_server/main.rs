//! Gets values from a server, or puts some, over many connections at once: `load_server --help`, for `utils/bench.py`.
//!
//! One thread serves all connections. Each busy connection makes one request at a time. The results are printed as JSON.

mod connection;
mod protocol;
mod value;

use std::io::{self, Error};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use std::{fs, mem};

use clap::Parser;
use rustix::event::epoll;

use connection::{Connection, Progress};
use protocol::{Operation, Protocol};

const PATIENCE: Duration = Duration::from_secs(60);

/// The command line.
#[derive(Parser)]
struct Words {
    /// http, redis or room
    language: String,
    address: String,
    /// put or get
    act: String,
    /// of each value, in bytes; at most 1 MiB
    #[arg(long, default_value_t = 1024)]
    size: usize,
    /// connections that are busy
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// more that make one request at first, and are then kept
    #[arg(long, default_value_t = 0)]
    idle: usize,
    /// requests in all
    #[arg(long, default_value_t = 1000)]
    count: u64,
    /// so many different ones [as many as requests]
    #[arg(long)]
    keys: Option<u64>,
    /// the number of the first value
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// whose memory is looked at before there are connections, and when there are all; with commas
    #[arg(long, value_delimiter = ',')]
    processes: Vec<u32>,
}

struct Load {
    address: SocketAddr,
    protocol: Protocol,
    operation: Operation,
    connections: usize,
    idle: usize,
    count: u64,
    keys: u64,
    first: u64,
    processes: Vec<u32>,
}

/// How many requests have begun, and the latencies of those that are done.
struct Course {
    begun: u64,
    latencies: Vec<Duration>,
}

fn main() -> io::Result<()> {
    let load = parse().map_err(|error| Error::other(format!("{error}; see load_server --help")))?;
    allow_many_files()?;
    let before = resident(&load.processes);
    let mut connections = load.connect()?;
    let after = resident(&load.processes);
    let (mut latencies, wall, used) = load.run(&mut connections)?;
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share).round() as usize].as_secs_f64() * 1e6;
    let each = 1e6 / latencies.len() as f64;
    println!(
        "{{\"rate\": {:.1}, \"p50\": {:.1}, \"p99\": {:.1}, \"most\": {:.1}, \"client\": {:.3}, \
         \"resident_before\": {before}, \"resident_after\": {after}}}",
        latencies.len() as f64 / wall.as_secs_f64(),
        at(0.5),
        at(0.99),
        at(1.0),
        used.as_secs_f64() * each,
    );
    Ok(())
}

fn parse() -> Result<Load, String> {
    let words = Words::parse();
    let operation = match &words.act[..] {
        "put" => Operation::Put,
        "get" => Operation::Get,
        operation => return Err(format!("{operation} is neither put nor get")),
    };
    let keys = words.keys.unwrap_or(words.count);
    if !(value::STAMP..=value::MOST).contains(&words.size) || words.connections == 0 || words.count == 0 || keys == 0 {
        return Err("sizes are from 16 bytes to 1 MiB, and of the rest there has to be one at least".to_owned());
    }
    let Words {
        language,
        address,
        first,
        ..
    } = words;
    let protocol = Protocol::new(&language, &address, words.size, first..first + keys);
    Ok(Load {
        address: address.parse().map_err(|_| format!("{address} is no address"))?,
        protocol: protocol.ok_or("it speaks http, redis or room")?,
        operation,
        connections: words.connections,
        idle: words.idle,
        count: words.count,
        keys,
        first,
        processes: words.processes,
    })
}

impl Load {
    fn number(&self, nth: u64) -> u64 {
        self.first + nth % self.keys
    }

    /// Opens all connections, the busy ones first. If some are to be idle, each connection makes one request.
    fn connect(&self) -> io::Result<Vec<Connection>> {
        let connect = |nth| {
            let mut connection = Connection::open(self.address, &self.protocol, PATIENCE)?;
            if self.idle > 0 {
                connection.request_and_wait(&self.protocol, self.operation, self.number(nth))?;
            }
            connection.set_nonblocking()?;
            Ok(connection)
        };
        (0..(self.connections + self.idle) as u64).map(connect).collect()
    }

    /// Returns all latencies, the total time, and this program's processor time.
    fn run(&self, connections: &mut [Connection]) -> io::Result<(Vec<Duration>, Duration, Duration)> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (number, connection) in connections.iter().enumerate() {
            epoll::add(&poll, &connection.stream, data(number), epoll::EventFlags::IN)?;
        }
        let mut course = Course {
            begun: 0,
            latencies: Vec::with_capacity(self.count as usize),
        };
        let (started, before) = (Instant::now(), used());
        for (number, connection) in connections.iter_mut().take(self.connections).enumerate() {
            self.next(connection, &mut course)?;
            watch(&poll, connection, number)?;
        }
        let mut events = Vec::with_capacity(1024);
        while (course.latencies.len() as u64) < self.count {
            let patience = rustix::event::Timespec {
                tv_sec: PATIENCE.as_secs() as i64,
                tv_nsec: 0,
            };
            if epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&patience))? == 0 {
                return Err(Error::other("the server does not answer"));
            }
            for event in events.drain(..) {
                let number = event.data.u64() as usize;
                let connection = &mut connections[number];
                if connection.go_on(&self.protocol, self.operation)? == Progress::Done {
                    course.latencies.push(connection.began.elapsed());
                    self.next(connection, &mut course)?;
                }
                watch(&poll, connection, number)?;
            }
        }
        Ok((course.latencies, started.elapsed(), used().saturating_sub(before)))
    }

    /// Lets a connection make the next request, if any is left.
    fn next(&self, connection: &mut Connection, course: &mut Course) -> io::Result<()> {
        if course.begun == self.count {
            return Ok(());
        }
        let number = self.number(course.begun);
        course.begun += 1;
        connection.request(&self.protocol, self.operation, number)
    }
}

fn data(number: usize) -> epoll::EventData {
    epoll::EventData::new_u64(number as u64)
}

/// Lets epoll report that a connection can be written to only while there is something to write.
fn watch(poll: &std::os::fd::OwnedFd, connection: &mut Connection, number: usize) -> io::Result<()> {
    let wants = connection.has_unsent();
    if mem::replace(&mut connection.is_watched, wants) != wants {
        let flags = match wants {
            true => epoll::EventFlags::IN | epoll::EventFlags::OUT,
            false => epoll::EventFlags::IN,
        };
        epoll::modify(poll, &connection.stream, data(number), flags)?;
    }
    Ok(())
}

fn allow_many_files() -> io::Result<()> {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    Ok(rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)?)
}

/// The resident memory of all processes together, in bytes.
fn resident(processes: &[u32]) -> u64 {
    let of_one = |process: &u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    processes.iter().filter_map(of_one).sum::<u64>() * 1024
}

fn used() -> Duration {
    // SAFETY: it fills what it is given.
    let usage = unsafe {
        let mut usage = mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}
