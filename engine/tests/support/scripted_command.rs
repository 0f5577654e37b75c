//! A folder with real files, and a command whose accesses the test defines.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use wafengine::cache::lookup::entry::Entry;
use wafengine::cache::story::obstacle::Obstacle;
use wafengine::cache::story::{understand, Dependence, Knowledge, Policy};
use wafengine::facts::environment::Environment;
use wafengine::facts::fact::{Fact, Kind};
use wafengine::facts::path::Place;
use wafengine::facts::status::Stamp;
use wafengine::facts::world::{Capacity, View, World};
use wafengine::observe::access::{Access, Mode, What};
use wafengine::wire::Strings;

use super::clock::next_tick;

pub const READS: Mode = Mode {
    reads: true,
    writes: false,
    creates: false,
    exclusive: false,
    truncates: false,
};
pub const WRITES: Mode = Mode {
    reads: false,
    writes: true,
    creates: true,
    exclusive: false,
    truncates: true,
};

/// A folder with files, and the accesses of a command.
pub struct ScriptedCommand {
    pub root: PathBuf,
    pub world: World,
    pub policy: Policy,
    pub base: Option<String>,
    pub folder: String,
    pub outputs: Option<Vec<Vec<u8>>>,
    pub modules: Option<&'static [u8]>,
    pub variables: Vec<String>,
    pub accesses: Vec<Access>,
    pub started: Stamp,
}

impl Drop for ScriptedCommand {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

pub fn bytes(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

impl ScriptedCommand {
    pub fn new(policy: Policy) -> ScriptedCommand {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().canonicalize().unwrap();
        let root = root.join(format!("scripted-command-{}-{number}", std::process::id()));
        fs::create_dir(&root).unwrap();
        ScriptedCommand {
            folder: root.display().to_string(),
            root,
            world: World::new(Capacity::default()),
            policy,
            base: None,
            outputs: None,
            modules: None,
            variables: vec!["PATH=/bin".into()],
            accesses: Vec::new(),
            started: Stamp::now(),
        }
    }

    pub fn with(self, name: &str, text: &str) -> ScriptedCommand {
        self.put(name, text);
        self
    }

    pub fn put(&self, name: &str, text: &str) {
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Starts the command, in a later tick of the clock than all changes before.
    pub fn begins(mut self) -> ScriptedCommand {
        next_tick();
        self.started = Stamp::now();
        let what = What::Begin {
            program: bytes(self.program()),
            folder: bytes(&self.folder),
            parent: 0,
            is_traced: false,
        };
        self.does(what, 0)
    }

    /// The first program: a compiler's own, or an unknown one.
    pub fn program(&self) -> &'static str {
        if self.policy.compiler {
            "/usr/bin/gcc"
        } else {
            "/bin/sh"
        }
    }

    pub fn does(mut self, what: What, error: i32) -> ScriptedCommand {
        let (process, error) = (1, error as u16);
        self.accesses.push(Access {
            process,
            what,
            error,
            identity: 0,
        });
        self
    }

    pub fn opens(self, path: &str, mode: Mode, error: i32) -> ScriptedCommand {
        let path = bytes(path);
        self.does(What::Open { path, mode }, error)
    }

    pub fn reads(self, path: &str) -> ScriptedCommand {
        self.opens(path, READS, 0)
    }

    pub fn misses(self, path: &str) -> ScriptedCommand {
        self.opens(path, READS, libc::ENOENT)
    }

    pub fn writes(self, path: &str) -> ScriptedCommand {
        self.put(path, "result");
        self.opens(path, WRITES, 0)
    }

    pub fn declares(mut self, outputs: &[&str]) -> ScriptedCommand {
        self.outputs = Some(outputs.iter().map(|path| bytes(path)).collect());
        self
    }

    pub fn place(&self) -> Place {
        Place::new(self.folder.as_bytes(), self.base.as_deref().map(str::as_bytes))
    }

    pub fn environment(&self) -> Environment {
        Environment::of(&Strings::from_iter(&self.variables))
    }

    pub fn understand(&self) -> Result<Dependence, Obstacle> {
        let knowledge = Knowledge {
            policy: self.policy,
            outputs: self.outputs.as_deref(),
            modules: self.modules,
            unseen: &["TERM"],
            observer: b"/lib/observer.so",
            ..Knowledge::since(self.started)
        };
        let (place, environment) = (self.place(), self.environment());
        understand(
            &self.accesses,
            &knowledge,
            &mut View::new(&self.world, &place, &environment),
        )
    }

    pub fn entry(&self) -> Entry {
        let facts = self.understand().unwrap().facts;
        Entry {
            facts,
            ..Entry::default()
        }
    }

    /// Descriptions of the changes.
    pub fn changes(&self, entry: &Entry) -> Vec<String> {
        let (place, environment) = (self.place(), self.environment());
        let changes = entry.changes(&mut View::new(&self.world, &place, &environment));
        changes.iter().map(|(_, change)| change.to_string()).collect()
    }

    /// The paths of the facts, without the program's own.
    pub fn paths(&self) -> Vec<String> {
        let facts = self.understand().unwrap().facts;
        let paths = facts.iter().filter_map(Fact::path).map(ToString::to_string);
        paths.filter(|path| path != self.program()).collect()
    }

    pub fn outputs(&self) -> Vec<(String, Kind)> {
        let outputs = self.understand().unwrap().outputs;
        outputs.iter().map(|made| (made.path.to_string(), made.kind)).collect()
    }

    pub fn obstacle(&self) -> String {
        self.understand().unwrap_err().to_string()
    }
}

pub fn remove(path: &str) -> What {
    What::Remove { path: bytes(path) }
}

pub fn rename(from: &str, to: &str) -> What {
    let (from, to) = (bytes(from), bytes(to));
    What::Rename { from, to }
}
