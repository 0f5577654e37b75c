//! A connection, and the request that it is making.

use std::cell::RefCell;
use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::protocol::{Message, Operation, Protocol};

const BUFFER: usize = 256 << 10;

thread_local! {
    static READ: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER]);
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Waits,
    Done,
}

pub struct Connection {
    pub stream: TcpStream,
    pub began: Instant,
    /// Whether epoll reports when it can be written to.
    pub is_watched: bool,
    number: u64,
    message: Message,
    length: usize,
    written: usize,
    /// How many exchanges of this request, and frames of this reply, are complete.
    exchanges: usize,
    frames: usize,
    /// The beginning of a frame, until its length is known. Then `left` bytes of it are still to come.
    beginning: Vec<u8>,
    is_last: bool,
    left: usize,
}

impl Connection {
    /// Opens a connection that blocks, until `set_nonblocking`.
    pub fn open(address: SocketAddr, protocol: &Protocol, patience: Duration) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        let message = protocol.greeting().unwrap_or_default();
        let mut connection = Connection {
            stream,
            began: Instant::now(),
            is_watched: false,
            number: 0,
            length: message.length(protocol),
            message,
            written: 0,
            exchanges: 0,
            frames: 0,
            beginning: Vec::new(),
            is_last: false,
            left: 0,
        };
        if connection.has_unsent() {
            connection.send(protocol)?;
            while !connection.receive(protocol, Operation::Get)? {}
        }
        Ok(connection)
    }

    pub fn set_nonblocking(&self) -> io::Result<()> {
        self.stream.set_nonblocking(true)
    }

    pub fn request_and_wait(&mut self, protocol: &Protocol, operation: Operation, number: u64) -> io::Result<()> {
        self.request(protocol, operation, number)?;
        while self.go_on(protocol, operation)? == Progress::Waits {}
        Ok(())
    }

    pub fn request(&mut self, protocol: &Protocol, operation: Operation, number: u64) -> io::Result<()> {
        self.began = Instant::now();
        self.number = number;
        self.exchanges = 0;
        self.send_next(protocol, operation).map(|_| ())
    }

    fn send_next(&mut self, protocol: &Protocol, operation: Operation) -> io::Result<Progress> {
        let Some(message) = protocol.message(operation, self.number, self.exchanges) else {
            return Ok(Progress::Done);
        };
        self.length = message.length(protocol);
        (self.message, self.written, self.frames) = (message, 0, 0);
        self.send(protocol)?;
        Ok(Progress::Waits)
    }

    pub fn has_unsent(&self) -> bool {
        self.written < self.length
    }

    fn send(&mut self, protocol: &Protocol) -> io::Result<()> {
        while self.has_unsent() {
            let (message, mut stream) = (&self.message, &self.stream);
            match message.write(protocol, self.written, |parts| stream.write_vectored(parts)) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(size) => self.written += size,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends and receives as much as possible without waiting.
    pub fn go_on(&mut self, protocol: &Protocol, operation: Operation) -> io::Result<Progress> {
        if self.has_unsent() {
            self.send(protocol)?;
        }
        match self.receive(protocol, operation) {
            Ok(false) => Ok(Progress::Waits),
            Ok(true) => {
                self.exchanges += 1;
                self.send_next(protocol, operation)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Progress::Waits),
            Err(error) => Err(error),
        }
    }

    /// Reads once. Returns whether the reply is complete.
    fn receive(&mut self, protocol: &Protocol, operation: Operation) -> io::Result<bool> {
        READ.with_borrow_mut(|buffer| {
            let size = (&self.stream).read(buffer)?;
            match size {
                0 => Err(Error::other("the server closed a connection")),
                _ => self.take(protocol, operation, &buffer[..size]),
            }
        })
    }

    fn take(&mut self, protocol: &Protocol, operation: Operation, mut bytes: &[u8]) -> io::Result<bool> {
        while !bytes.is_empty() {
            if self.left == 0 {
                let known = self.beginning.len();
                self.beginning.extend(&bytes[..bytes.len().min(1024)]);
                let Some(frame) = protocol.frame(operation, self.number, &self.beginning, self.frames)? else {
                    bytes = &bytes[self.beginning.len() - known..];
                    continue;
                };
                self.beginning.clear();
                self.frames += 1;
                self.is_last = frame.is_last;
                self.left = frame.length - known;
            }
            let size = bytes.len().min(self.left);
            self.left -= size;
            bytes = &bytes[size..];
        }
        Ok(self.left == 0 && self.beginning.is_empty() && self.is_last)
    }
}
