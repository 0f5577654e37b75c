//! From what a command did to what its result depends on.
//!
//! Told access by access, in order (`deeds`): what the command made itself is no input, what it made and removed is no
//! output. At its end the claims that are left are compared with the world and become facts (`outcome`); where the two
//! disagree, or where nothing can be known, there is an obstacle with a name. Knows neither how accesses are noted nor how
//! facts are stored.

mod deeds;
pub mod obstacle;
pub mod outcome;
mod places;
pub mod shell;

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::facts::fact::{Fact, Kind};
use crate::facts::path::{split, Path};
use crate::facts::status::Stamp;
use crate::facts::world::View;
use crate::observe::access::{Access, Bytes};
use crate::observe::known_programs::{ProgramRules, UNKNOWN};
use obstacle::Obstacle;

/// An entry with more would take longer to check than most commands to run.
pub const MOST_FACTS: usize = 20_000;

/// What is known of a command's kind. The default knows nothing, and has everything count. Each of its processes is judged by its own
/// program all the same: a script or another program that stands before a compiler is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// A known compiler's command line: what it makes is foretold.
    pub compiler: bool,
    /// Its result may tell the name of the folder in which it was made.
    pub folder: bool,
    /// Its first program is a shell, which always knows where it is, and its line does not tell that.
    pub shell: bool,
    pub statuses: Statuses,
    /// Its command line asks for this machine's processor.
    pub processor: bool,
    /// And for the number of a process.
    pub number: bool,
}

/// Whether sizes and times count of what a known compiler, or another command, reads or looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statuses {
    Ignored,
    /// If it reads what compilers prepared: they compare the times of what that was made of.
    WithPrecompiled,
    Kept,
    /// As the rules of each program are.
    ByProgram,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            compiler: false,
            folder: true,
            shell: false,
            statuses: Statuses::ByProgram,
            processor: false,
            number: false,
        }
    }
}

/// What is known of one command beside what it did.
#[derive(Debug, Clone, Copy)]
pub struct Knowledge<'a> {
    pub policy: Policy,
    /// What it may make, as its arguments name it; `None` if whatever it makes is its result.
    pub outputs: Option<&'a [Bytes]>,
    /// A folder in which a known compiler may make modules beside.
    pub modules: Option<&'a [u8]>,
    /// Variables that do not show in the result of a known compiler, though it asks for them.
    pub unseen: &'a [&'a str],
    /// The library that observes it, which is no part of it.
    pub observer: &'a [u8],
    /// `Stamp::now()` from before it was started.
    pub started: Stamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    pub path: Path,
    /// A file, a program, a folder or a link.
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dependence {
    pub facts: Vec<Fact>,
    /// Folders come before what is in them.
    pub outputs: Vec<Made>,
}

/// What a command has done to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Fate {
    #[default]
    Foreign,
    Made,
    /// Made, and removed or renamed.
    Gone,
}

#[derive(Debug, Clone, Default)]
struct Trace {
    fate: Fate,
    /// It may be a link, or another name of something: it was not made by opening it.
    is_odd: bool,
    was_read: bool,
    was_absent: bool,
    was_removed: bool,
    shown: Option<Path>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum How {
    Read,
    /// Executed or loaded: read, but not by the compiler.
    Run,
    There {
        follows: bool,
    },
    Status {
        follows: bool,
    },
    Target,
    Resolve,
    List,
    Absent {
        follows: bool,
    },
    Refused {
        opens: bool,
        error: u16,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Claim {
    how: How,
    path: Path,
    /// By which spellings of one path know each other.
    name: Bytes,
    /// By a program to which its own results make no difference.
    careless: bool,
    /// What was found, as `Access::identity` tells it; 0 if that is not known.
    seen: u64,
}

struct Story<'v, 'w, 'k> {
    view: &'v mut View<'w>,
    knowledge: &'k Knowledge<'k>,
    declared: FxHashSet<Bytes>,
    modules: Option<Bytes>,
    /// In which folder each process is.
    folders: FxHashMap<u32, Path>,
    /// How the program of each process is.
    rules: FxHashMap<u32, ProgramRules>,
    /// Those that the second witness observes.
    traced: FxHashSet<u32>,
    /// Programs and libraries of these: all of their calls are seen, those by their own instructions, too.
    traced_code: FxHashMap<Bytes, ProgramRules>,
    /// Those of the process of which is told.
    now: ProgramRules,
    /// It is one of those that the second witness observes.
    is_traced: bool,
    /// What the access of which is told has found.
    seen: u64,
    /// All programs ask for variables one by one; all compile; some do.
    all_ask: bool,
    all_compile: bool,
    some_compile: bool,
    /// Some may read the standard input.
    some_listen: bool,
    /// Processes that have opened their first file.
    reading: FxHashSet<u32>,
    first: Option<Path>,
    traces: FxHashMap<Bytes, Trace>,
    /// It made something that may be a folder.
    makes_folders: bool,
    claims: FxHashSet<Claim>,
    asked: BTreeSet<Bytes>,
    /// It may have been told by files, or by the system, what the processor is.
    knows_processor: bool,
    /// A shell of it has asked for the number of its process, as all do.
    knows_number: bool,
    /// What shells have read, or others that may be forks of them.
    heard: FxHashSet<Bytes>,
    locates: bool,
    /// The process of a shell that does not tell where it is, until that becomes something else.
    shell: Option<u32>,
    /// All programs but that shell ask for variables one by one.
    others_ask: bool,
    /// Somebody else than that shell has asked where it is.
    others_locate: bool,
    /// Some of its paths hold for its folder only.
    is_anchored: bool,
}

/// What a command that did all this depends on, and what it made.
pub fn understand(accesses: &[Access], knowledge: &Knowledge, view: &mut View) -> Result<Dependence, Obstacle> {
    let mut story = Story {
        view,
        knowledge,
        declared: FxHashSet::default(),
        modules: None,
        folders: FxHashMap::default(),
        rules: FxHashMap::default(),
        traced: FxHashSet::default(),
        traced_code: FxHashMap::default(),
        now: UNKNOWN,
        is_traced: false,
        seen: 0,
        all_ask: true,
        all_compile: true,
        some_compile: knowledge.policy.compiler,
        some_listen: false,
        reading: FxHashSet::default(),
        first: None,
        traces: FxHashMap::default(),
        makes_folders: false,
        claims: FxHashSet::default(),
        asked: BTreeSet::new(),
        knows_processor: false,
        knows_number: false,
        heard: FxHashSet::default(),
        locates: false,
        shell: None,
        others_ask: true,
        others_locate: false,
        is_anchored: false,
    };
    story.declare();
    let idle = story.find_idle(accesses);
    for (at, access) in accesses.iter().enumerate() {
        if idle.contains(&at) {
            continue;
        }
        story.tell(access)?;
        if story.claims.len() > MOST_FACTS {
            return Err(Obstacle::TooMany);
        }
    }
    story.end()
}

impl Story<'_, '_, '_> {
    fn declare(&mut self) {
        for given in self.knowledge.outputs.unwrap_or_default() {
            let path = self.view.place.path(&Path::here(), given);
            let name = self.name(&path);
            self.declared.insert(name);
        }
        if let Some(given) = self.knowledge.modules {
            let path = self.view.place.path(&Path::here(), given);
            let name = self.view.place.absolute(&path);
            self.modules = Some(self.real(&name).unwrap_or(name));
        }
    }

    fn is_foretold(&self, name: &Bytes) -> bool {
        let is_module = |folder: &Bytes| {
            let is_there = split(name).is_some_and(|(parent, _)| parent == folder);
            is_there && (name.ends_with(b".mod") || name.ends_with(b".smod"))
        };
        self.declared.contains(name) || self.modules.as_ref().is_some_and(is_module)
    }
}
