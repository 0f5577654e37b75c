//! The frames of `docs/protocol.md` as Rust values. `decode` reads them from bytes, `encode` writes them.
//!
//! Pure. Knows no sockets, and does not know what a request does. `bytes::frame` splits a stream into the frames that
//! are decoded here.

mod decode;
mod encode;
mod reason;

pub use encode::put_output;
pub use reason::{Known, MissReason, Told, UncachedReason, Unkept, UnstoredReason, Why};

pub use crate::bytes::fields::Malformed;
pub use crate::bytes::frame::GREETING_CAP;

/// The only version of the protocol that this engine speaks.
pub const VERSION: u16 = 1;
/// The largest frame after `welcome`.
pub const FRAME_CAP: usize = 8 << 20;
/// The most output in one frame.
pub const OUTPUT_CAP: usize = 1 << 20;
/// The most input of a command.
pub const INPUT_CAP: usize = 1 << 20;
/// The most environments of a connection.
pub const ENVIRONMENTS: usize = 64;

const MAGIC: &[u8; 4] = b"WAFD";

/// Zero-terminated strings in one buffer, as both the wire and `execve` use them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Strings {
    bytes: Vec<u8>,
}

impl Strings {
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.split_inclusive(|b| *b == 0).map(|s| &s[..s.len() - 1])
    }

    /// The strings with their terminating zeros, for C.
    pub fn terminated(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.split_inclusive(|b| *b == 0)
    }

    pub fn len(&self) -> usize {
        self.bytes.iter().filter(|b| **b == 0).count()
    }

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
    /// A string with a zero byte is cut there, since no program could get more of it.
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

/// Flag of `Hello::wishes`: pin each command to one processor.
pub const WISH_PIN: u32 = 1;
/// Do not share the slots with other builds.
pub const WISH_OWN_SLOTS: u32 = 2;
/// Examine the client's process only when a command has to run.
pub const WISH_LATE: u32 = 4;
/// Return commands that the cache knows nothing of, without running them.
pub const WISH_KNOWN: u32 = 8;
/// Tell where commands ran that could run on a cluster.
pub const WISH_ELSEWHERE: u32 = 32;
/// The wishes contain the client's umask, from bit `UMASK_SHIFT` on.
pub const WISH_UMASK: u32 = 16;
pub const UMASK_SHIFT: u32 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdio {
    Null,
    Pipe,
    Descriptor,
    /// Standard error only: the same as standard output.
    SameAsStdout,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execute {
    pub id: u32,
    pub env: u32,
    pub new_session: bool,
    /// It may be answered by a stored result.
    pub cached: bool,
    /// It may be any command, not only a known kind of compile: its recorded accesses are enough.
    pub by_facts: bool,
    /// Send the command's inputs with its outcome.
    pub inputs: bool,
    pub stdio: [Stdio; 3],
    /// Microseconds. 0 means no timeout.
    pub timeout: u64,
    pub cwd: Vec<u8>,
    pub argv: Strings,
    pub input: Vec<u8>,
    /// The files that the command makes, as its client declares them. Entries of shared stores may write only these.
    /// Empty if none are declared.
    pub outputs: Strings,
}

/// How `MAKEFLAGS` names a jobserver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Two inherited descriptors, which every `make` with jobs understands.
    Pipe,
    /// A path: `make` since 4.4, `ninja` since 1.13.
    Fifo,
}

/// Limits of a session beside other builds, and what it offers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Start as many commands as before when memory runs short.
    pub no_brake: bool,
    /// Two descriptors come with the frame: the ends of a jobserver's pipe, from which tokens are taken.
    pub tokens: bool,
    /// Give commands a jobserver of this form.
    pub serve: Option<Form>,
    /// The most runnable threads on the machine, in hundredths. 0 means no limit.
    pub load: u32,
    /// Start commands only when they fit into memory: into so many bytes, and into what is available. 0 means no size.
    pub memory: Option<u64>,
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Size {
    pub columns: u16,
    pub rows: u16,
}

/// How the commands of a connection are to be cached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caching {
    /// Store nothing.
    pub read_only: bool,
    /// Look nothing up.
    pub recache: bool,
    /// The folder of the checkout in which a command runs is one of the `bases`.
    pub share_checkouts: bool,
    /// Folders whose names may differ between checkouts. Absolute.
    pub bases: Strings,
    pub namespace: Vec<u8>,
    /// The store that the client uses. Absolute, or empty for the engine's store.
    pub store: Vec<u8>,
    /// An absolute folder, which gets the entry of each command.
    pub export: Option<Vec<u8>>,
    /// The stores that machines share, as the setting names them, in place of those that the engine has.
    pub remote: Option<Vec<u8>>,
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
    /// A question about the cache, in JSON (`report::question`).
    Cache {
        question: Vec<u8>,
    },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Verdict {
    #[default]
    Ran = 0,
    NotStarted = 1,
    TimedOut = 2,
    Cancelled = 3,
}

/// Which step failed for a command that was not started. For a command that ran: how it was started.
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

/// What became of a command that went to a cluster, or could have gone there. Times are in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// From its arrival until it went there.
    pub after: u64,
    /// How long it was there. Zero if it never went.
    pub there: u64,
    /// How long it ran here, too, before its result came from there.
    pub here: u64,
    /// The cluster, without secrets.
    pub address: String,
    /// Why its result is not from there. Empty if it is.
    pub words: String,
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
    /// The inputs of a command, as numbers of texts (`cache::lookup::inputs`).
    Inputs {
        id: u32,
        /// The number of the first new text. Zero means that all earlier texts are forgotten.
        first: u32,
        new: Strings,
        /// The digest of the outputs.
        result: [u8; 32],
        numbers: Vec<u32>,
    },
    /// For clients that wish to know.
    Elsewhere {
        id: u32,
        elsewhere: Elsewhere,
    },
}
