//! From the accesses of a command to the things on which its result depends.
//!
//! The accesses are applied one by one, in order (`accesses`). What the command made itself is no input, and what it made
//! and removed is no output. At the end, the remaining observations are compared with the file system, and become facts
//! (`outcome`). If the two differ, or if something cannot be known, there is an obstacle with a name. The room knows neither
//! how accesses are recorded nor how facts are stored.

mod accesses;
pub mod obstacle;
pub mod outcome;
mod places;
pub mod shell;
mod unread;

use std::collections::BTreeSet;

use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use crate::facts::fact::{Fact, Kind};
use crate::facts::path::{split, Path};
use crate::facts::status::Stamp;
use crate::facts::world::View;
use crate::observe::access::{Access, Bytes};
use crate::observe::known_programs::{ProgramRules, UNKNOWN};
use obstacle::Obstacle;

/// An entry with more facts would take longer to check than most commands take to run. A precompiled header of Boost has
/// 19,000 facts, which take some milliseconds.
pub const MOST_FACTS: usize = 250_000;

/// The rules for a kind of command. By default nothing is known of it, and everything counts. Each process still has the
/// rules of its own program: a script that calls a compiler is no compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The command line of a known compiler: its outputs are known in advance.
    pub compiler: bool,
    /// Its result may contain the name of the folder in which it was made.
    pub folder: bool,
    /// Its first program is a shell, which always knows its folder, and its line does not show it.
    pub shell: bool,
    pub statuses: Statuses,
    /// Its command line asks for this machine's processor.
    pub processor: bool,
    /// It asks for the number of a process.
    pub number: bool,
    /// Its compiler opens the standard output by a name.
    pub prints: bool,
    /// Texts of comments are left out of sources and headers of the build.
    pub without_comments: bool,
}

/// For which accesses of a known compiler, or of another command, sizes and times count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statuses {
    Ignored,
    /// Only if it reads files that compilers prepared: they compare the times of the sources of these.
    WithPrecompiled,
    Kept,
    /// According to the rules of each program.
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
            prints: false,
            without_comments: false,
        }
    }
}

/// The knowledge about one command, besides its accesses.
#[derive(Debug, Clone, Copy)]
pub struct Knowledge<'a> {
    pub policy: Policy,
    /// The outputs that its arguments name. `None` if all that it makes is its result.
    pub outputs: Option<&'a [Bytes]>,
    /// A folder in which a known compiler may also make modules.
    pub modules: Option<&'a [u8]>,
    /// Variables that a known compiler reads, and that do not show in its result.
    pub unseen: &'a [&'a str],
    /// The library that observes the command. It is no input.
    pub observer: &'a [u8],
    /// `Stamp::now()` from before the command was started.
    pub started: Stamp,
    /// The words of its command line, if only those macros show in its result that it uses.
    pub words: Option<&'a [Bytes]>,
    /// What it printed about its sources.
    pub messages: &'a [u8],
    /// Macros that its command line defines, with values that its key leaves out.
    pub macros: &'a [Bytes],
    /// It can be run a second time, to see whether its result shows the time or random numbers. Names of programs of which
    /// this is to be seen, besides those that are known.
    pub rehearsed: Option<&'a [Bytes]>,
    /// It has failed. Then it may also remove what is in the places of its outputs.
    pub has_failed: bool,
}

impl Knowledge<'_> {
    /// A command of which no more is known than when it was started.
    pub fn since(started: Stamp) -> Self {
        Knowledge {
            policy: Policy::default(),
            outputs: None,
            modules: None,
            unseen: &[],
            observer: b"",
            started,
            words: None,
            messages: &[],
            macros: &[],
            rehearsed: None,
            has_failed: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    pub path: Path,
    /// Which of the outputs it is that the arguments name.
    pub number: Option<usize>,
    /// A file, a program, a folder or a link.
    pub kind: Kind,
    /// When it was written, if the command has set that time.
    pub dated: Option<Stamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dependence {
    pub facts: Vec<Fact>,
    /// Folders come before the files in them.
    pub outputs: Vec<Made>,
    /// Why only a second run can show whether the result is always the same.
    pub doubt: Option<Doubt>,
    /// All programs that have run are known compilers or linkers.
    pub is_compiled: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// What it asked for first.
    pub why: Obstacle,
    /// The folders in which it has changed something, by their absolute names. None is in another one.
    pub folders: Vec<Bytes>,
}

/// The command's relation to the file at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Fate {
    /// The command has not made it.
    #[default]
    Foreign,
    Made,
    /// Made, and then removed or renamed.
    Gone,
}

/// How the command has made something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Shape {
    /// By opening a file.
    #[default]
    File,
    Folder,
    /// It may be a link, or another name of something.
    Odd,
}

#[derive(Debug, Clone, Default)]
struct PathState {
    fate: Fate,
    shape: Shape,
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
    /// Listed by rustc.
    Crates,
    Absent {
        follows: bool,
    },
    Refused {
        opens: bool,
        error: u16,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Observation {
    how: How,
    path: Path,
    /// How the spellings of one path find each other.
    name: Bytes,
    /// By a program to which its own results make no difference.
    careless: bool,
    /// What was found, as in `Access::identity`; 0 if it is not known.
    seen: u64,
}

struct Analysis<'v, 'w, 'k> {
    view: &'v mut View<'w>,
    knowledge: &'k Knowledge<'k>,
    /// The numbers of the outputs that its arguments name.
    declared: FxHashMap<Bytes, usize>,
    modules: Option<Bytes>,
    /// The folder of each process.
    folders: FxHashMap<u32, Path>,
    /// The rules for the program of each process.
    rules: FxHashMap<u32, ProgramRules>,
    /// The processes that the second witness observes.
    traced: FxHashSet<u32>,
    /// The processes of which it is known that they make no system calls by their own instructions.
    guarded: FxHashSet<u32>,
    /// Programs and libraries, of all processes.
    code: FxHashMap<Bytes, Code>,
    /// Those of each process that is not known to be guarded.
    unguarded: FxHashMap<u32, Vec<(Bytes, ProgramRules)>>,
    /// The process of the present access, and its rules.
    process: u32,
    now: ProgramRules,
    /// The second witness observes this process.
    is_traced: bool,
    /// The identity of what the present access has found.
    seen: u64,
    /// All programs read variables one by one; all are compilers; some are compilers.
    all_ask: bool,
    all_compile: bool,
    some_compile: bool,
    /// Some programs may read the standard input.
    some_listen: bool,
    /// Processes that have opened their first file.
    reading: FxHashSet<u32>,
    first: Option<Path>,
    paths: FxHashMap<Bytes, PathState>,
    /// It made something that may be a folder.
    makes_folders: bool,
    observations: FxHashSet<Observation>,
    asked: BTreeSet<Bytes>,
    /// Known compilers have asked for `PATH`, to look for their parts.
    searches: bool,
    /// It may have learned from files, or from the system, which processor this is.
    knows_processor: bool,
    /// One of its shells has asked for its process number, as all shells do.
    asked_number: bool,
    /// The files that were read by shells, or by processes that may be forks of shells.
    scripts_read: FxHashSet<Bytes>,
    asks_folder: bool,
    /// The process of a shell whose line does not show its folder, until it becomes another program.
    shell: Option<u32>,
    /// All programs except that shell read variables one by one.
    others_ask: bool,
    /// A program other than that shell has asked for its folder.
    others_ask_folder: bool,
    /// Some of its paths are right for its folder only.
    is_anchored: bool,
    /// The processes whose programs ask for times and random numbers, and seldom show them.
    asking_idly: FxHashMap<u32, bool>,
    /// The processes whose programs may tell the time of a file.
    telling_times: FxHashMap<u32, bool>,
    /// The processes that have loaded Java's virtual machine.
    virtual_machines: FxHashSet<u32>,
    /// What an idle question was about, the first time.
    doubt: Option<Obstacle>,
    /// How it listed folders, by their identities.
    listings: FxHashMap<u64, Listings>,
    /// How the names of the crates begin that rustc has read.
    used_crates: BTreeSet<Bytes>,
    /// The folder of its tool chain, for each process of rustc.
    toolchains: FxHashMap<u32, Bytes>,
}

/// A program or library, for all processes that have run or loaded it.
#[derive(Debug, Clone, Copy)]
struct Code {
    /// All of its system calls are seen, or it is known that it makes none by its own instructions.
    is_seen: bool,
    /// It may seed tables and measure by its own instructions.
    seeds: bool,
}

/// All readings of one folder.
#[derive(Debug, Default)]
struct Listings {
    begun: usize,
    /// The digests of the names, of those that went on to the end.
    names: Vec<u64>,
    /// For rustc, the names of crates in the reading that has not come to its end, and in all others.
    crates: Vec<Bytes>,
    ended: Vec<Vec<Bytes>>,
}

impl Listings {
    fn end_crates(&mut self) {
        let mut crates = std::mem::take(&mut self.crates);
        crates.sort_unstable();
        self.ended.push(crates);
    }
}

/// Computes what a command depends on that made these accesses, and what it made.
pub fn understand(accesses: &[Access], knowledge: &Knowledge, view: &mut View) -> Result<Dependence, Obstacle> {
    // Most accesses of a compile are to paths of their own.
    let most = accesses.len().min(MOST_FACTS);
    let mut analysis = Analysis {
        view,
        knowledge,
        declared: FxHashMap::default(),
        modules: None,
        folders: FxHashMap::default(),
        rules: FxHashMap::default(),
        traced: FxHashSet::default(),
        guarded: FxHashSet::default(),
        code: FxHashMap::default(),
        unguarded: FxHashMap::default(),
        process: 0,
        now: UNKNOWN,
        is_traced: false,
        seen: 0,
        all_ask: true,
        all_compile: true,
        some_compile: knowledge.policy.compiler,
        some_listen: false,
        reading: FxHashSet::default(),
        first: None,
        paths: FxHashMap::with_capacity_and_hasher(most, FxBuildHasher),
        makes_folders: false,
        observations: FxHashSet::with_capacity_and_hasher(most, FxBuildHasher),
        asked: BTreeSet::new(),
        searches: false,
        knows_processor: false,
        asked_number: false,
        scripts_read: FxHashSet::default(),
        asks_folder: false,
        shell: None,
        others_ask: true,
        others_ask_folder: false,
        is_anchored: false,
        asking_idly: FxHashMap::default(),
        telling_times: FxHashMap::default(),
        virtual_machines: FxHashSet::default(),
        doubt: None,
        listings: FxHashMap::default(),
        used_crates: BTreeSet::new(),
        toolchains: FxHashMap::default(),
    };
    analysis.declare();
    let idle = analysis.find_idle(accesses);
    for (at, access) in accesses.iter().enumerate() {
        if idle.contains(&at) {
            continue;
        }
        analysis.apply(access)?;
        if analysis.observations.len() > MOST_FACTS {
            return Err(Obstacle::TooMany);
        }
    }
    analysis.end()
}

impl Analysis<'_, '_, '_> {
    fn declare(&mut self) {
        for (number, given) in self.knowledge.outputs.unwrap_or_default().iter().enumerate() {
            let path = self.view.place.path(&Path::here(), given);
            let name = self.name(&path);
            self.declared.entry(name).or_insert(number);
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
        self.declared.contains_key(name) || self.modules.as_ref().is_some_and(is_module)
    }
}
