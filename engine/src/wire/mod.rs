//! The frames of `docs/protocol.md`: their meaning as Rust values, which `decode` makes of bytes and `encode` makes bytes.
//!
//! Pure. Knows nothing of sockets, nor of what is done with a request; `bytes::frame` cuts a stream into the bodies that are
//! decoded here.

mod decode;
mod encode;
mod told;

pub use encode::put_output;
pub use told::{Known, MissReason, Told, UncachedReason, Unkept, UnstoredReason};

pub use crate::bytes::fields::Malformed;
pub use crate::bytes::frame::GREETING_CAP;

/// The highest and the lowest version that this engine speaks.
pub const VERSION: u16 = 1;
/// The largest frame after `welcome`.
pub const FRAME_CAP: usize = 8 << 20;
/// The most output that one frame carries.
pub const OUTPUT_CAP: usize = 1 << 20;
/// The most input that a command can be given.
pub const INPUT_CAP: usize = 1 << 20;
/// How many environments a connection can define.
pub const ENVIRONMENTS: usize = 64;

const MAGIC: &[u8; 4] = b"WAFD";

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
/// Look at where the client lives only when a command is to run.
pub const WISH_LATE: u32 = 4;
/// What the cache can tell nothing of is not run but given back.
pub const WISH_KNOWN: u32 = 8;
/// With this the wishes hold the client's umask, from this bit on.
pub const WISH_UMASK: u32 = 16;
pub const UMASK_SHIFT: u32 = 16;

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
    /// Though it may be no compile that the cache knows: what it is seen to do is enough.
    pub by_facts: bool,
    /// With its outcome, the client is told what it depended on.
    pub inputs: bool,
    pub stdio: [Stdio; 3],
    /// Microseconds; 0 is none.
    pub timeout: u64,
    pub cwd: Vec<u8>,
    pub argv: Strings,
    pub input: Vec<u8>,
    /// The files that the command is to make, as its client names them: only there, what others have stored may write. None are declared if this is empty.
    pub outputs: Strings,
}

/// How a jobserver is named in `MAKEFLAGS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Two inherited descriptors, as every `make` with jobs understands it.
    Pipe,
    /// A path: `make` from 4.4, `ninja` from 1.13.
    Fifo,
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

/// As many characters as a line has, and as many lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Size {
    pub columns: u16,
    pub rows: u16,
}

/// How a connection's commands are to be cached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caching {
    /// Nothing is stored.
    pub read_only: bool,
    /// Nothing is looked up.
    pub recache: bool,
    /// The folder of the checkout is one whose name commands may share.
    pub share_checkouts: bool,
    /// Folders whose names commands may share; absolute.
    pub bases: Strings,
    pub namespace: Vec<u8>,
    /// The store that is meant; absolute, or empty for whichever there is.
    pub store: Vec<u8>,
    /// Messages are for a terminal of this size.
    pub terminal: Option<Size>,
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

/// What could not be done for a command that was not started, and how one was that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Step {
    #[default]
    None = 0,
    Command = 1,
    Folder = 2,
    Engine = 3,
    /// It was forked from a parked program.
    Parked = 4,
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
        told: Told,
    },
    /// What a command depended on, as numbers of texts (`cache::inputs`).
    Inputs {
        id: u32,
        /// The number of the first of the new texts; with zero, those before are forgotten.
        first: u32,
        new: Strings,
        /// Of what the command made.
        result: [u8; 32],
        numbers: Vec<u32>,
    },
}
