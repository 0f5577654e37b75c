//! A connection, and the request that is under way on it.

use std::cell::RefCell;
use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::speech::{Act, Message, Speech};

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
    /// For when it can be written to.
    pub is_watched: bool,
    number: u64,
    message: Message,
    length: usize,
    written: usize,
    /// Exchanges of this request, and frames of this answer, that are over.
    exchanges: usize,
    frames: usize,
    /// The beginning of a frame, until it tells its length; then, how much of it is still to come.
    beginning: Vec<u8>,
    is_last: bool,
    left: usize,
}

impl Connection {
    /// One that waits for each answer, as long as nothing else is said.
    pub fn open(address: SocketAddr, speech: &Speech, patience: Duration) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        let message = speech.greeting().unwrap_or_default();
        let mut connection = Connection {
            stream,
            began: Instant::now(),
            is_watched: false,
            number: 0,
            length: message.length(speech),
            message,
            written: 0,
            exchanges: 0,
            frames: 0,
            beginning: Vec::new(),
            is_last: false,
            left: 0,
        };
        if connection.has_more_to_say() {
            connection.say(speech)?;
            while !connection.hear(speech, Act::Get)? {}
        }
        Ok(connection)
    }

    pub fn go_on_without_waiting(&self) -> io::Result<()> {
        self.stream.set_nonblocking(true)
    }

    pub fn ask_and_wait(&mut self, speech: &Speech, act: Act, number: u64) -> io::Result<()> {
        self.ask(speech, act, number)?;
        while self.go_on(speech, act)? == Progress::Waits {}
        Ok(())
    }

    pub fn ask(&mut self, speech: &Speech, act: Act, number: u64) -> io::Result<()> {
        self.began = Instant::now();
        self.number = number;
        self.exchanges = 0;
        self.say_next(speech, act).map(|_| ())
    }

    fn say_next(&mut self, speech: &Speech, act: Act) -> io::Result<Progress> {
        let Some(message) = speech.message(act, self.number, self.exchanges) else {
            return Ok(Progress::Done);
        };
        self.length = message.length(speech);
        (self.message, self.written, self.frames) = (message, 0, 0);
        self.say(speech)?;
        Ok(Progress::Waits)
    }

    pub fn has_more_to_say(&self) -> bool {
        self.written < self.length
    }

    fn say(&mut self, speech: &Speech) -> io::Result<()> {
        while self.has_more_to_say() {
            let (message, mut stream) = (&self.message, &self.stream);
            match message.write(speech, self.written, |parts| stream.write_vectored(parts)) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(size) => self.written += size,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Says and hears what can be said and heard now.
    pub fn go_on(&mut self, speech: &Speech, act: Act) -> io::Result<Progress> {
        if self.has_more_to_say() {
            self.say(speech)?;
        }
        match self.hear(speech, act) {
            Ok(false) => Ok(Progress::Waits),
            Ok(true) => {
                self.exchanges += 1;
                self.say_next(speech, act)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Progress::Waits),
            Err(error) => Err(error),
        }
    }

    /// Reads once; whether the answer is whole.
    fn hear(&mut self, speech: &Speech, act: Act) -> io::Result<bool> {
        READ.with_borrow_mut(|buffer| {
            let size = (&self.stream).read(buffer)?;
            match size {
                0 => Err(Error::other("the server closed a connection")),
                _ => self.take(speech, act, &buffer[..size]),
            }
        })
    }

    fn take(&mut self, speech: &Speech, act: Act, mut bytes: &[u8]) -> io::Result<bool> {
        while !bytes.is_empty() {
            if self.left == 0 {
                let known = self.beginning.len();
                self.beginning.extend(&bytes[..bytes.len().min(1024)]);
                let Some(frame) = speech.frame(act, self.number, &self.beginning, self.frames)? else {
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
