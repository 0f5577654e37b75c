//! Asks a server for values, or gives it some, over many connections at once: `load_server --help`, for `utils/bench.py`.
//!
//! One thread, one request under way on each busy connection. Every latency is kept; what comes of them is told as JSON.

mod connection;
mod speech;
mod value;

use std::io::{self, Error};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use std::{fs, mem};

use lexopt::prelude::*;
use rustix::event::epoll;

use connection::{Connection, Progress};
use speech::{Act, Speech};

const USAGE: &str = "\
usage: load_server http|redis|room ADDRESS put|get [OPTIONS]
  --size BYTES       of each value, at most 1 MiB [1024]
  --connections N    that are busy [1]
  --idle N           more that make one request at first, and are then kept [0]
  --count N          requests in all [1000]
  --keys N           so many different ones [as many as requests]
  --first N          the number of the first value [0]
  --processes P,P    whose memory is looked at before there are connections, and when there are all
";
const PATIENCE: Duration = Duration::from_secs(60);

struct Load {
    address: SocketAddr,
    speech: Speech,
    act: Act,
    connections: usize,
    idle: usize,
    count: u64,
    keys: u64,
    first: u64,
    processes: Vec<u32>,
}

/// What happened to one request after the other.
struct Course {
    begun: u64,
    latencies: Vec<Duration>,
}

fn main() -> io::Result<()> {
    let load = parse().map_err(|error| Error::other(format!("{error}\n{USAGE}")))?;
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

fn parse() -> Result<Load, lexopt::Error> {
    let mut parser = lexopt::Parser::from_env();
    let mut words = Vec::new();
    let (mut size, mut connections, mut idle) = (1024, 1, 0);
    let (mut count, mut keys, mut first) = (1000, None, 0);
    let mut processes = Vec::new();
    while let Some(arg) = parser.next()? {
        match arg {
            Value(word) => words.push(word.string()?),
            Long("size") => size = parser.value()?.parse()?,
            Long("connections") => connections = parser.value()?.parse()?,
            Long("idle") => idle = parser.value()?.parse()?,
            Long("count") => count = parser.value()?.parse()?,
            Long("keys") => keys = Some(parser.value()?.parse()?),
            Long("first") => first = parser.value()?.parse()?,
            Long("processes") => processes = parser.value()?.parse_with(numbers)?,
            other => return Err(other.unexpected()),
        }
    }
    let [language, address, act] = &words[..] else {
        return Err("who is asked for what?".into());
    };
    let act = match &act[..] {
        "put" => Act::Put,
        "get" => Act::Get,
        _ => return Err(format!("{act} is neither put nor get").into()),
    };
    let keys = keys.unwrap_or(count);
    if !(value::STAMP..=value::MOST).contains(&size) || connections == 0 || count == 0 || keys == 0 {
        return Err("sizes are from 16 bytes to 1 MiB, and of the rest there has to be one at least".into());
    }
    Ok(Load {
        address: address.parse().map_err(|_| format!("{address} is no address"))?,
        speech: Speech::new(language, address, size, first..first + keys).ok_or("it speaks http, redis or room")?,
        act,
        connections,
        idle,
        count,
        keys,
        first,
        processes,
    })
}

fn numbers(text: &str) -> Result<Vec<u32>, std::num::ParseIntError> {
    text.split(',').map(str::parse).collect()
}

impl Load {
    fn number(&self, nth: u64) -> u64 {
        self.first + nth % self.keys
    }

    /// All of them, each with one request behind it; the busy ones come first.
    fn connect(&self) -> io::Result<Vec<Connection>> {
        let connect = |nth| {
            let mut connection = Connection::open(self.address, &self.speech, PATIENCE)?;
            if self.idle > 0 {
                connection.ask_and_wait(&self.speech, self.act, self.number(nth))?;
            }
            connection.go_on_without_waiting()?;
            Ok(connection)
        };
        (0..(self.connections + self.idle) as u64).map(connect).collect()
    }

    /// All latencies, how long it took together, and this program's processor time.
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
                if connection.go_on(&self.speech, self.act)? == Progress::Done {
                    course.latencies.push(connection.began.elapsed());
                    self.next(connection, &mut course)?;
                }
                watch(&poll, connection, number)?;
            }
        }
        Ok((course.latencies, started.elapsed(), used().saturating_sub(before)))
    }

    /// Has a connection make the next request, as long as there is one.
    fn next(&self, connection: &mut Connection, course: &mut Course) -> io::Result<()> {
        if course.begun == self.count {
            return Ok(());
        }
        let number = self.number(course.begun);
        course.begun += 1;
        connection.ask(&self.speech, self.act, number)
    }
}

fn data(number: usize) -> epoll::EventData {
    epoll::EventData::new_u64(number as u64)
}

/// Hears of a connection that can be written to only while there is something to write.
fn watch(poll: &std::os::fd::OwnedFd, connection: &mut Connection, number: usize) -> io::Result<()> {
    let wants = connection.has_more_to_say();
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

/// Bytes that processes have in memory together.
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
