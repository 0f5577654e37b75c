//! A tier on Redis, or on a server with the same protocol. The crate knows the protocol. The connections are ours, so that
//! each wait has a limit.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::{Cmd, ErrorKind, Parser, RedisResult, ToRedisArgs, Value};
use rustls::ClientConfig;

use super::heartbeat::Heartbeat;
use super::stream::{fault, secret, tls, Stream};
use super::values::{Name, Values};
use super::{Fault, Shape};
use crate::settings::address::Address;

/// With the limit of a value, this limits how much memory one answer may take.
const BATCH: usize = 64;
/// A connection that was idle for longer may be dead. Finding that out would cost a time-out.
const MAX_IDLE: Duration = Duration::from_secs(30);

pub struct Redis {
    address: Address,
    password: Option<String>,
    tls: Option<Arc<ClientConfig>>,
    /// Idle connections, and since when.
    idle: Mutex<Vec<(Instant, Connection)>>,
}

struct Connection {
    stream: Stream,
    parser: Parser,
}

/// Reads until an answer would exceed the limit.
struct Capped<'a> {
    stream: &'a mut Stream,
    left: usize,
}

impl Read for Capped<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "too much"));
        }
        let length = buffer.len().min(self.left);
        let read = self.stream.read(&mut buffer[..length])?;
        self.left -= read;
        match read {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => Ok(read),
        }
    }
}

impl Redis {
    pub fn new(address: &Address) -> Result<Redis, String> {
        Ok(Redis {
            password: secret(address)?,
            tls: tls(address)?,
            address: address.clone(),
            idle: Mutex::default(),
        })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Instant, Connection)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(&self, heartbeat: &Arc<Heartbeat>) -> Result<Connection, Fault> {
        let stream = Stream::connect(&self.address, self.tls.as_ref(), heartbeat);
        let mut connection = Connection {
            stream: stream.map_err(|error| fault(&error, heartbeat))?,
            parser: Parser::new(),
        };
        let mut greetings = Vec::new();
        if let Some(password) = &self.password {
            greetings.push(command("AUTH", (&self.address.user, password)));
        }
        if !self.address.path.is_empty() {
            greetings.push(command("SELECT", &self.address.path));
        }
        connection.ask(&greetings, 0, heartbeat)?;
        Ok(connection)
    }

    /// The server may have closed an idle connection meanwhile. Then another one is used, once.
    fn ask(&self, cmds: &[Cmd], largest: usize, heartbeat: &Arc<Heartbeat>) -> Result<Vec<Value>, Fault> {
        let idle = self.idle().pop();
        let idle = idle.filter(|(since, _)| since.elapsed() < MAX_IDLE);
        let was_idle = idle.is_some();
        let connection = idle.map_or_else(|| self.connect(heartbeat), |(_, connection)| Ok(connection))?;
        let answer = self.ask_over(connection, cmds, largest, heartbeat);
        match answer {
            Err(Fault::Failed(_)) if was_idle => self.ask_over(self.connect(heartbeat)?, cmds, largest, heartbeat),
            Err(Fault::Silent(_)) => {
                // The other idle connections may be closed, too.
                self.idle().clear();
                answer
            }
            answer => answer,
        }
    }

    fn ask_over(
        &self,
        mut connection: Connection,
        cmds: &[Cmd],
        largest: usize,
        heartbeat: &Arc<Heartbeat>,
    ) -> Result<Vec<Value>, Fault> {
        let answers = connection.ask(cmds, largest, heartbeat)?;
        self.idle().push((Instant::now(), connection));
        Ok(answers)
    }
}

impl Connection {
    /// Sends all requests together, and reads an answer to each.
    fn ask(&mut self, cmds: &[Cmd], largest: usize, heartbeat: &Arc<Heartbeat>) -> Result<Vec<Value>, Fault> {
        const OVERHEAD: usize = 64 << 10;
        self.stream.set_heartbeat(heartbeat);
        let packed: Vec<_> = cmds.iter().flat_map(Cmd::get_packed_command).collect();
        let sent = self.stream.write_all(&packed);
        sent.and_then(|()| self.stream.flush())
            .map_err(|error| fault(&error, heartbeat))?;
        let mut capped = Capped {
            stream: &mut self.stream,
            left: largest + OVERHEAD,
        };
        let parser = &mut self.parser;
        cmds.iter()
            .map(|_| check_answer(parser.parse_value(&mut capped), heartbeat))
            .collect()
    }
}

fn command(name: &str, arguments: impl ToRedisArgs) -> Cmd {
    let mut cmd = redis::cmd(name);
    cmd.arg(arguments);
    cmd
}

fn check_answer(answer: RedisResult<Value>, heartbeat: &Heartbeat) -> Result<Value, Fault> {
    match answer {
        Ok(Value::ServerError(error)) => Err(refusal(error.code())),
        Ok(value) => Ok(value),
        Err(error) if error.is_timeout() => Err(fault(&io::ErrorKind::TimedOut.into(), heartbeat)),
        Err(error) if error.kind() == ErrorKind::IoError || error.is_connection_dropped() => {
            Err(fault(&io::ErrorKind::UnexpectedEof.into(), heartbeat))
        }
        Err(error) => Err(match error.code() {
            Some(code) => refusal(code),
            None => Fault::garbled(),
        }),
    }
}

/// The code of an error alone: its text can be anything, and is different each time.
fn refusal(code: &str) -> Fault {
    let code: String = code.chars().filter(char::is_ascii_alphanumeric).take(20).collect();
    let remedy = match code.as_str() {
        "NOAUTH" | "WRONGPASS" => ": give the right password, as in redis://:PASSWORD@HOST",
        "MOVED" | "ASK" | "CROSSSLOT" | "CLUSTERDOWN" => ": it is a part of a cluster; name a proxy in front of it",
        "OOM" => ": it is full and evicts nothing; set its maxmemory-policy to allkeys-lru",
        _ => "",
    };
    Fault::Failed(format!("it refused: {code}{remedy}"))
}

fn name_of(name: &Name) -> String {
    match name {
        Name::Bundle(key) => format!("wafd:1:entries:{key}"),
        Name::Blob(digest) => format!("wafd:1:blob:{digest}"),
    }
}

impl Values for Redis {
    fn shape(&self) -> Shape {
        Shape {
            workers: 2,
            batch: BATCH,
            uploads: 1,
        }
    }

    fn get(&self, names: &[Name], largest: usize, heartbeat: &Arc<Heartbeat>) -> Result<Vec<Option<Vec<u8>>>, Fault> {
        // With single commands, because some servers have no MGET. They are sent together, so this takes no longer.
        let cmds: Vec<_> = names.iter().map(|name| command("GET", name_of(name))).collect();
        let bytes = |value| match value {
            Value::BulkString(bytes) => Ok(Some(bytes)),
            Value::Nil => Ok(None),
            _ => Err(Fault::garbled()),
        };
        self.ask(&cmds, largest, heartbeat)?.into_iter().map(bytes).collect()
    }

    fn has(&self, name: &Name, heartbeat: &Arc<Heartbeat>) -> Result<bool, Fault> {
        Ok(self.ask(&[command("EXISTS", name_of(name))], 0, heartbeat)? == [Value::Int(1)])
    }

    fn put(&self, name: &Name, value: &[u8], heartbeat: &Arc<Heartbeat>) -> Result<(), Fault> {
        match self.ask(&[command("SET", (name_of(name), value))], 0, heartbeat)?[..] {
            [Value::Okay] => Ok(()),
            _ => Err(Fault::garbled()),
        }
    }
}
