//! The accesses of an observed command on which its result may depend, in the order in which each process made them.
//!
//! Paths are as the process gave them. Relative paths refer to the folder of the process, and neither links nor `..` are
//! resolved. A process without a `Begin` (a fork) has absolute paths only.

pub type Bytes = Vec<u8>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    pub process: u32,
    pub what: What,
    /// 0, or the `errno` with which it failed.
    pub error: u16,
    /// The identity of what was found: of a file as `identity` makes it, of a link's target or a resolved path as
    /// `identity_of_text` does. 0 if it is not known.
    pub identity: u64,
}

impl Access {
    /// A successful access. The identity of the file is not known.
    pub fn of(process: u32, what: What) -> Access {
        Access {
            process,
            what,
            error: 0,
            identity: 0,
        }
    }

    /// Nothing is known of the command, for this reason.
    pub fn blind(why: &'static str) -> Access {
        Access::of(0, What::Blind { why })
    }
}

/// A number that differs between files: the other side of `wafpark_identity` in `engine/park/record.c`.
pub fn identity(device: u64, inode: u64) -> u64 {
    let mixed = inode.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ device.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    mixed.max(1)
}

/// A number that differs between texts: FNV-1a, as in `wafpark_digest`.
pub fn identity_of_text(text: &[u8]) -> u64 {
    add_text(NO_TEXT, text).max(1)
}

/// The number of no text yet, and of a text with more behind it.
pub const NO_TEXT: u64 = 0xcbf2_9ce4_8422_2325;

pub fn add_text(before: u64, more: &[u8]) -> u64 {
    let step = |digest: u64, byte: &u8| (digest ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    more.iter().fold(before, step)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A program begins in this process. An `Execute` comes before, unless the command begins with it.
    Begin {
        program: Bytes,
        folder: Bytes,
        parent: u32,
        /// The second witness observes it, which sees all system calls and no variables.
        is_traced: bool,
    },
    /// The process executes this program, itself or in a child that it makes for this.
    Execute {
        path: Bytes,
    },
    /// A library was loaded into it.
    Load {
        path: Bytes,
    },
    /// It goes into a folder.
    Enter {
        path: Bytes,
    },
    Open {
        path: Bytes,
        mode: Mode,
    },
    /// It asks whether something is there: `access` and the like.
    Find {
        path: Bytes,
    },
    /// It asks for something's status: `stat`, or `lstat`, which does not follow a link.
    Look {
        path: Bytes,
        follows: bool,
    },
    /// It reads where a link points to.
    Link {
        path: Bytes,
    },
    /// It resolves all links in a path.
    Resolve {
        path: Bytes,
    },
    /// It lists a folder.
    List {
        path: Bytes,
    },
    /// It has read all names of a folder: the identity of the folder, and the digest of the names, as `names_digest` makes it.
    Listed {
        folder: u64,
        names: u64,
    },
    /// rustc has read a name that may be a crate's in the folder with this identity. A `Listed` follows the last one.
    Crate {
        folder: u64,
        name: Bytes,
    },
    /// From now on, a system call that does not come from libc makes the command `Blind`.
    Guarded,
    /// It asks for a variable.
    Ask {
        name: Bytes,
    },
    /// It asks in which folder it is.
    Locate,
    /// The program gave a path by a descriptor, or in a fork. It is recorded as an absolute path, and is right for this
    /// folder only.
    Anchor,
    /// It asks for the time.
    Time,
    /// It converts a time to a date. Compilers do so only to write it into their results.
    Date,
    /// It asks for randomness.
    Random,
    /// It asks how long it or the machine has run, or how busy the machine is.
    Measure,
    /// It asks for the number of a process.
    Number,
    Rename {
        from: Bytes,
        to: Bytes,
    },
    Remove {
        path: Bytes,
    },
    /// It makes a folder, a link, or something else that has no content.
    Make {
        path: Bytes,
        /// It is a folder.
        is_folder: bool,
    },
    /// It did something that cannot be observed, for this reason. So nothing is known of the command.
    Blind {
        why: &'static str,
    },
}

impl What {
    /// The paths of what it makes, changes or removes.
    pub fn written(&self) -> Vec<&Bytes> {
        match self {
            What::Open { path, mode } if mode.writes => vec![path],
            What::Remove { path } | What::Make { path, .. } => vec![path],
            What::Rename { from, to } => vec![from, to],
            _ => Vec::new(),
        }
    }

    /// Its paths and names.
    pub fn texts(&mut self) -> Vec<&mut Bytes> {
        match self {
            What::Begin { program, folder, .. } => vec![program, folder],
            What::Rename { from, to } => vec![from, to],
            What::Execute { path }
            | What::Load { path }
            | What::Enter { path }
            | What::Open { path, .. }
            | What::Find { path }
            | What::Look { path, .. }
            | What::Link { path }
            | What::Resolve { path }
            | What::List { path }
            | What::Remove { path }
            | What::Make { path, .. }
            | What::Ask { name: path } => vec![path],
            What::Locate
            | What::Anchor
            | What::Time
            | What::Date
            | What::Random
            | What::Measure
            | What::Number
            | What::Listed { .. }
            | What::Crate { .. }
            | What::Guarded
            | What::Blind { .. } => Vec::new(),
        }
    }
}

/// How a file was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mode {
    pub reads: bool,
    pub writes: bool,
    /// The file is made if it is not there.
    pub creates: bool,
    /// The file is made, or the opening fails.
    pub exclusive: bool,
    /// The previous content is removed.
    pub truncates: bool,
}
