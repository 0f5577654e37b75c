//! The frames of `docs/protocol.md`: their meaning as Rust values, and those values as bytes.
//!
//! Pure. Knows nothing of sockets, nor of what is done with a request; `frame` cuts a stream into the bodies that are
//! decoded here.

use crate::jobserver::Form;
use crate::terminal::Size;

/// The highest and the lowest version that this engine speaks.
pub const VERSION: u16 = 1;
/// The largest frame before `welcome`: a stranger makes nobody allocate more.
pub const GREETING_CAP: usize = 4096;
/// The largest frame after `welcome`.
pub const FRAME_CAP: usize = 8 << 20;
/// The most output that one frame carries.
pub const OUTPUT_CAP: usize = 1 << 20;
/// The most input that a command can be given.
pub const INPUT_CAP: usize = 1 << 20;
/// How many environments a connection can define.
pub const ENVIRONMENTS: usize = 64;

const MAGIC: &[u8; 4] = b"WAFD";

/// Bytes that are no frame of ours; says why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

type Result<T> = std::result::Result<T, Malformed>;

/// Zero-terminated strings one after the other, as the wire and `execve` both have them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Strings {
    bytes: Vec<u8>,
}

impl Strings {
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.split_inclusive(|b| *b == 0).map(|s| &s[..s.len() - 1])
    }

    /// The strings with their terminating zero, for C.
    pub fn terminated(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.split_inclusive(|b| *b == 0)
    }

    pub fn len(&self) -> usize {
        self.bytes.iter().filter(|b| **b == 0).count()
    }

    /// All of them with their terminating zeros.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for Strings {
    /// Strings that hold a zero byte end at it: no program could be given more.
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut bytes = Vec::new();
        for item in items {
            bytes.extend(item.as_ref().iter().take_while(|b| **b != 0));
            bytes.push(0);
        }
        Strings { bytes }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hello {
    pub lowest: u16,
    pub highest: u16,
    pub session: [u8; 16],
    pub jobs: u32,
    pub wishes: u32,
    pub pid: u32,
    pub token: Vec<u8>,
    pub name: Vec<u8>,
}

/// `Hello::wishes`: pin each command to one processor.
pub const WISH_PIN: u32 = 1;
/// `Hello::wishes`: share the slots with nobody.
pub const WISH_OWN_SLOTS: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdio {
    Null,
    Pipe,
    Descriptor,
    /// Standard error only: where standard output goes.
    SameAsStdout,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execute {
    pub id: u32,
    pub env: u32,
    pub new_session: bool,
    /// What came of it before may be its outcome.
    pub cached: bool,
    pub stdio: [Stdio; 3],
    /// Microseconds; 0 is none.
    pub timeout: u64,
    pub cwd: Vec<u8>,
    pub argv: Strings,
    pub input: Vec<u8>,
}

/// What a build wants of its neighbours, and gives them; for its whole session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Do not start fewer commands when memory runs short.
    pub no_brake: bool,
    /// Two descriptors come with the frame: the ends of a jobserver that tokens are to be taken from.
    pub tokens: bool,
    /// Commands are told of a jobserver.
    pub serve: Option<Form>,
    /// So many hundredths of a runnable thread are the most on the machine; 0 is no limit.
    pub load: u32,
}

/// How a connection's commands are to be cached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caching {
    /// Nothing is stored.
    pub read_only: bool,
    /// Nothing is looked up.
    pub recache: bool,
    /// Folders whose names commands may share; absolute.
    pub bases: Strings,
    pub namespace: Vec<u8>,
    /// Messages are for a terminal of this size.
    pub terminal: Option<Size>,
}

/// What the cache did for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// It ran, and nothing was looked up or stored.
    Uncached = 0,
    Hit = 1,
    Miss = 2,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    Hello(Hello),
    Environment {
        env: u32,
        entries: Strings,
    },
    Execute(Box<Execute>),
    Cancel {
        id: u32,
    },
    Status,
    Stop {
        now: bool,
    },
    Listen,
    Policy(Policy),
    Caching(Caching),
    /// A question about the cache, in JSON (`wafcc::question`).
    Cache {
        question: Vec<u8>,
    },
}

/// Why a greeting was refused; the numbers are the wire's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Version = 1,
    Token = 2,
    Place = 3,
    Crowded = 4,
    Leaving = 5,
    Greeting = 6,
}

impl Why {
    pub const ALL: [Why; 6] = [
        Why::Version,
        Why::Token,
        Why::Place,
        Why::Crowded,
        Why::Leaving,
        Why::Greeting,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Why::Version => "version",
            Why::Token => "token",
            Why::Place => "place",
            Why::Crowded => "crowded",
            Why::Leaving => "leaving",
            Why::Greeting => "greeting",
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Verdict {
    #[default]
    Ran = 0,
    NotStarted = 1,
    TimedOut = 2,
    Cancelled = 3,
}

/// What could not be done for a command that was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Step {
    #[default]
    None = 0,
    Command = 1,
    Folder = 2,
    Engine = 3,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    pub id: u32,
    pub verdict: Verdict,
    pub step: Step,
    pub code: i32,
    pub queued: u64,
    pub wall: u64,
    pub user: u64,
    pub system: u64,
    pub peak: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Welcome {
        version: u16,
        pid: u32,
        slots: u32,
        engine: Vec<u8>,
    },
    Refused {
        why: Why,
        reason: Vec<u8>,
    },
    Output {
        id: u32,
        stream: u8,
        data: Vec<u8>,
    },
    Outcome(Outcome),
    Report {
        json: Vec<u8>,
    },
    Listening {
        port: u16,
    },
    /// Comes before the outcome of a command that may be cached.
    Told {
        id: u32,
        known: Known,
        words: Vec<u8>,
    },
}

// ---- bytes to values

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        if n > self.0.len() {
            return Err(Malformed("a field is longer than its frame"));
        }
        let (head, tail) = self.0.split_at(n);
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn text(&mut self) -> Result<Vec<u8>> {
        let n = self.u32()? as usize;
        Ok(self.take(n)?.to_vec())
    }

    fn strings(&mut self) -> Result<Strings> {
        let count = self.u32()? as usize;
        let n = self.u32()? as usize;
        let bytes = self.take(n)?;
        let zeros = bytes.iter().filter(|b| **b == 0).count();
        if zeros != count || bytes.last().is_some_and(|b| *b != 0) {
            return Err(Malformed("the count of strings does not match"));
        }
        Ok(Strings { bytes: bytes.to_vec() })
    }

    fn env(&mut self) -> Result<u32> {
        match self.u32()? {
            env if (env as usize) < ENVIRONMENTS => Ok(env),
            _ => Err(Malformed("the environment's number is above 63")),
        }
    }

    fn stdio(&mut self, stream: usize) -> Result<Stdio> {
        match self.u8()? {
            0 => Ok(Stdio::Null),
            1 => Ok(Stdio::Pipe),
            2 => Ok(Stdio::Descriptor),
            3 if stream == 2 => Ok(Stdio::SameAsStdout),
            _ => Err(Malformed("unknown kind of standard stream")),
        }
    }

    fn end(self) -> Result<()> {
        match self.0 {
            [] => Ok(()),
            _ => Err(Malformed("bytes after the last field")),
        }
    }
}

fn hello(r: &mut Reader<'_>) -> Result<Hello> {
    if r.take(4)? != MAGIC {
        return Err(Malformed("not a greeting"));
    }
    Ok(Hello {
        lowest: r.u16()?,
        highest: r.u16()?,
        session: r.array()?,
        jobs: r.u32()?,
        wishes: r.u32()?,
        pid: r.u32()?,
        token: r.text()?,
        name: r.text()?,
    })
}

fn environment(r: &mut Reader<'_>) -> Result<Request> {
    let env = r.env()?;
    let entries = r.strings()?;
    if entries.iter().any(|entry| !entry.contains(&b'=')) {
        return Err(Malformed("an entry of an environment is not KEY=VALUE"));
    }
    Ok(Request::Environment { env, entries })
}

fn execute(r: &mut Reader<'_>) -> Result<Execute> {
    let id = r.u32()?;
    let env = r.env()?;
    let flags = r.u8()?;
    if flags > 3 {
        return Err(Malformed("unknown flags"));
    }
    let command = Execute {
        id,
        env,
        new_session: flags & 1 != 0,
        cached: flags & 2 != 0,
        stdio: [r.stdio(0)?, r.stdio(1)?, r.stdio(2)?],
        timeout: r.u64()?,
        cwd: r.text()?,
        argv: r.strings()?,
        input: r.text()?,
    };
    if !command.cwd.starts_with(b"/") || command.cwd.contains(&0) {
        return Err(Malformed("the folder is not an absolute path"));
    }
    if command.argv.is_empty() {
        return Err(Malformed("a command has at least a name"));
    }
    if command.input.len() > INPUT_CAP {
        return Err(Malformed("the input is above 1 MiB"));
    }
    if !command.input.is_empty() && command.stdio[0] != Stdio::Pipe {
        return Err(Malformed("input without a pipe"));
    }
    Ok(command)
}

fn caching(r: &mut Reader<'_>) -> Result<Caching> {
    let flags = r.u8()?;
    if flags > 7 {
        return Err(Malformed("unknown flags"));
    }
    let size = Size {
        columns: r.u16()?,
        rows: r.u16()?,
    };
    let bases = r.strings()?;
    if bases.iter().any(|base| !base.starts_with(b"/")) {
        return Err(Malformed("a base folder is not an absolute path"));
    }
    Ok(Caching {
        read_only: flags & 1 != 0,
        recache: flags & 2 != 0,
        bases,
        namespace: r.text()?,
        terminal: (flags & 4 != 0).then_some(size),
    })
}

fn policy(r: &mut Reader<'_>) -> Result<Policy> {
    let flags = r.u8()?;
    let serve = match flags >> 2 {
        0 => None,
        1 => Some(Form::Pipe),
        2 => Some(Form::Fifo),
        _ => return Err(Malformed("unknown flags")),
    };
    Ok(Policy {
        no_brake: flags & 1 != 0,
        tokens: flags & 2 != 0,
        serve,
        load: r.u32()?,
    })
}

impl Request {
    /// Decodes what stands between a frame's length and the next frame.
    pub fn decode(frame: &[u8]) -> Result<Request> {
        let mut r = Reader(frame);
        let request = match r.u8()? {
            0x01 => Request::Hello(hello(&mut r)?),
            0x02 => environment(&mut r)?,
            0x03 => Request::Execute(Box::new(execute(&mut r)?)),
            0x04 => Request::Cancel { id: r.u32()? },
            0x05 => Request::Status,
            0x06 => match r.u8()? {
                how @ 0..=1 => Request::Stop { now: how == 1 },
                _ => return Err(Malformed("unknown way to stop")),
            },
            0x07 => Request::Listen,
            0x08 => Request::Policy(policy(&mut r)?),
            0x09 => Request::Cache { question: r.text()? },
            0x0a => Request::Caching(caching(&mut r)?),
            _ => return Err(Malformed("unknown kind of request")),
        };
        r.end()?;
        Ok(request)
    }
}

fn outcome(r: &mut Reader<'_>) -> Result<Outcome> {
    Ok(Outcome {
        id: r.u32()?,
        verdict: match r.u8()? {
            0 => Verdict::Ran,
            1 => Verdict::NotStarted,
            2 => Verdict::TimedOut,
            3 => Verdict::Cancelled,
            _ => return Err(Malformed("unknown verdict")),
        },
        step: match r.u8()? {
            0 => Step::None,
            1 => Step::Command,
            2 => Step::Folder,
            3 => Step::Engine,
            _ => return Err(Malformed("unknown step")),
        },
        code: r.i32()?,
        queued: r.u64()?,
        wall: r.u64()?,
        user: r.u64()?,
        system: r.u64()?,
        peak: r.u64()?,
    })
}

impl Reply {
    pub fn decode(frame: &[u8]) -> Result<Reply> {
        let mut r = Reader(frame);
        let reply = match r.u8()? {
            0x81 => Reply::Welcome {
                version: r.u16()?,
                pid: r.u32()?,
                slots: r.u32()?,
                engine: r.text()?,
            },
            0x82 => {
                let why = r.u8()?;
                let why = Why::ALL.into_iter().find(|w| *w as u8 == why);
                Reply::Refused {
                    why: why.ok_or(Malformed("unknown reason to refuse"))?,
                    reason: r.text()?,
                }
            }
            0x83 => Reply::Output {
                id: r.u32()?,
                stream: match r.u8()? {
                    stream @ 1..=2 => stream,
                    _ => return Err(Malformed("unknown stream")),
                },
                data: r.text()?,
            },
            0x84 => Reply::Outcome(outcome(&mut r)?),
            0x85 => Reply::Report { json: r.text()? },
            0x86 => Reply::Listening { port: r.u16()? },
            0x87 => Reply::Told {
                id: r.u32()?,
                known: match r.u8()? {
                    0 => Known::Uncached,
                    1 => Known::Hit,
                    2 => Known::Miss,
                    _ => return Err(Malformed("unknown answer of the cache")),
                },
                words: r.text()?,
            },
            _ => return Err(Malformed("unknown kind of reply")),
        };
        r.end()?;
        Ok(reply)
    }
}

// ---- values to bytes

/// Appends one frame: the kind, then what `body` writes.
fn frame(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0, 0, 0, 0, kind]);
    body(out);
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text);
}

fn put_strings(out: &mut Vec<u8>, strings: &Strings) {
    out.extend((strings.len() as u32).to_le_bytes());
    put_text(out, &strings.bytes);
}

impl Request {
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Request::Hello(h) => frame(out, 0x01, |out| {
                out.extend(MAGIC);
                out.extend(h.lowest.to_le_bytes());
                out.extend(h.highest.to_le_bytes());
                out.extend(h.session);
                for number in [h.jobs, h.wishes, h.pid] {
                    out.extend(number.to_le_bytes());
                }
                put_text(out, &h.token);
                put_text(out, &h.name);
            }),
            Request::Environment { env, entries } => frame(out, 0x02, |out| {
                out.extend(env.to_le_bytes());
                put_strings(out, entries);
            }),
            Request::Execute(command) => frame(out, 0x03, |out| {
                out.extend(command.id.to_le_bytes());
                out.extend(command.env.to_le_bytes());
                out.push(u8::from(command.new_session) | u8::from(command.cached) << 1);
                out.extend(command.stdio.map(|stdio| stdio as u8));
                out.extend(command.timeout.to_le_bytes());
                put_text(out, &command.cwd);
                put_strings(out, &command.argv);
                put_text(out, &command.input);
            }),
            Request::Cancel { id } => frame(out, 0x04, |out| out.extend(id.to_le_bytes())),
            Request::Status => frame(out, 0x05, |_| ()),
            Request::Stop { now } => frame(out, 0x06, |out| out.push((*now).into())),
            Request::Listen => frame(out, 0x07, |_| ()),
            Request::Policy(policy) => frame(out, 0x08, |out| {
                let serve = match policy.serve {
                    None => 0,
                    Some(Form::Pipe) => 4,
                    Some(Form::Fifo) => 8,
                };
                out.push(u8::from(policy.no_brake) | u8::from(policy.tokens) << 1 | serve);
                out.extend(policy.load.to_le_bytes());
            }),
            Request::Cache { question } => frame(out, 0x09, |out| put_text(out, question)),
            Request::Caching(caching) => frame(out, 0x0a, |out| {
                let terminal = u8::from(caching.terminal.is_some()) << 2;
                out.push(u8::from(caching.read_only) | u8::from(caching.recache) << 1 | terminal);
                let size = caching.terminal.unwrap_or_default();
                out.extend(size.columns.to_le_bytes());
                out.extend(size.rows.to_le_bytes());
                put_strings(out, &caching.bases);
                put_text(out, &caching.namespace);
            }),
        }
    }
}

impl Reply {
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Reply::Welcome {
                version,
                pid,
                slots,
                engine,
            } => frame(out, 0x81, |out| {
                out.extend(version.to_le_bytes());
                out.extend(pid.to_le_bytes());
                out.extend(slots.to_le_bytes());
                put_text(out, engine);
            }),
            Reply::Refused { why, reason } => frame(out, 0x82, |out| {
                out.push(*why as u8);
                put_text(out, reason);
            }),
            Reply::Output { id, stream, data } => put_output(out, *id, *stream, data),
            Reply::Outcome(o) => frame(out, 0x84, |out| {
                out.extend(o.id.to_le_bytes());
                out.extend([o.verdict as u8, o.step as u8]);
                out.extend(o.code.to_le_bytes());
                for number in [o.queued, o.wall, o.user, o.system, o.peak] {
                    out.extend(number.to_le_bytes());
                }
            }),
            Reply::Report { json } => frame(out, 0x85, |out| put_text(out, json)),
            Reply::Listening { port } => frame(out, 0x86, |out| out.extend(port.to_le_bytes())),
            Reply::Told { id, known, words } => frame(out, 0x87, |out| {
                out.extend(id.to_le_bytes());
                out.push(*known as u8);
                put_text(out, words);
            }),
        }
    }
}

/// An `output` frame from borrowed bytes: captured output is copied once only.
pub fn put_output(out: &mut Vec<u8>, id: u32, stream: u8, data: &[u8]) {
    frame(out, 0x83, |out| {
        out.extend(id.to_le_bytes());
        out.push(stream);
        put_text(out, data);
    });
}
