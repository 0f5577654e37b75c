//! The facts of an entry hold if and only if its command would see again what it saw. This is tested with random files,
//! commands and edits.
//!
//! `FACTS_SEEDS=from..to` selects other random seeds. A failure names its seed.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::support::clock::next_tick;
use wafengine::cache::lookup::entry::Entry;
use wafengine::cache::story::obstacle::Obstacle;
use wafengine::cache::story::{understand, Dependence, Knowledge, Policy, Statuses};
use wafengine::facts::environment::Environment;
use wafengine::facts::fact::Kind;
use wafengine::facts::file_view::{status, status_of_name};
use wafengine::facts::path::Place;
use wafengine::facts::status::{Stamp, Status};
use wafengine::facts::world::{Capacity, View, World};
use wafengine::observe::access::{Access, Mode, What};
use wafengine::wire::Strings;

const NAMES: [&str; 4] = ["f0", "f1", "f2", "f3"];
const FOLDERS: [&str; 3] = ["d0", "d1", "d2"];
const CONTENTS: [&str; 3] = ["one", "two", ""];
const EDITS: usize = 12;

struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn one<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }

    /// A path to something that may be there, in one of many spellings.
    fn path(&mut self, root: &Path) -> String {
        let (folder, name) = (self.one(&FOLDERS), self.one(&NAMES));
        match self.below(9) {
            0 => folder.to_string(),
            1 => format!("{}/{folder}/{name}", root.display()),
            2 => format!("{}/../{folder}/{name}", self.one(&FOLDERS)),
            3 => format!("{folder}/{name}/{}", self.one(&NAMES)),
            4 => format!("./{folder}//{name}"),
            5 => format!("{folder}/{name}/"),
            _ => format!("{folder}/{name}"),
        }
    }
}

/// The device and inode of a file.
type Identity = (u64, u64);

/// Everything that a command saw and that may change its result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Seen {
    /// The result of each step, as text.
    steps: Vec<String>,
    /// The folders that it looked at.
    folders: BTreeMap<String, Identity>,
    /// The files that it read: their contents, identities, and seconds of modification.
    files: BTreeMap<String, (Vec<u8>, Identity, i64)>,
}

impl Seen {
    fn is_same(&self, other: &Seen) -> bool {
        self.steps == other.steps && self.same_folders() == other.same_folders() && self.twins() == other.twins()
    }

    /// For each pair of folders, whether they are one.
    fn same_folders(&self) -> Vec<bool> {
        let all: Vec<_> = self.folders.values().collect();
        all.iter()
            .flat_map(|one| all.iter().map(move |two| one == two))
            .collect()
    }

    fn twins(&self) -> Vec<(bool, bool)> {
        let all: Vec<_> = self.files.values().collect();
        let pairs = all.iter().flat_map(|one| all.iter().map(move |two| (one, two)));
        let twins = pairs.filter(|(one, two)| one.0 == two.0);
        twins.map(|(one, two)| (one.1 == two.1, one.2 == two.2)).collect()
    }
}

/// Executes the steps of a command, and records its accesses and what it sees.
struct Player<'a> {
    root: &'a Path,
    compiler: bool,
    here: PathBuf,
    seen: Seen,
    accesses: Vec<Access>,
}

impl Player<'_> {
    fn play(root: &Path, compiler: bool, steps: &[What]) -> (Seen, Vec<Access>) {
        let mut player = Player {
            root,
            compiler,
            here: root.to_path_buf(),
            seen: Seen::default(),
            accesses: vec![begin(root, if compiler { "/usr/bin/gcc" } else { "/bin/sh" })],
        };
        steps.iter().for_each(|step| player.step(step));
        (player.seen, player.accesses)
    }

    fn step(&mut self, what: &What) {
        let (words, error) = match self.see(what) {
            Ok(words) => (words, 0),
            Err(error) => (format!("error {error}"), error.raw_os_error().unwrap()),
        };
        let (words, what) = match (what, error) {
            (What::Link { path }, libc::EINVAL) => (self.kind(&self.at(path), false), what.clone()),
            _ => (words, what.clone()),
        };
        self.seen.steps.push(words);
        let error = error as u16;
        self.accesses.push(Access {
            process: 1,
            what,
            error,
            identity: 0,
        });
    }

    fn at(&self, given: &[u8]) -> PathBuf {
        let given = String::from_utf8(given.to_vec()).unwrap();
        // `join` would normalize the path, but the file system must get it as it is.
        if given.starts_with('/') {
            given.into()
        } else {
            format!("{}/{given}", self.here.display()).into()
        }
    }

    fn kind(&mut self, path: &Path, follows: bool) -> String {
        let found = look(path, follows).unwrap();
        if found.kind() == Kind::Folder {
            let key = format!("{} {follows}", path.display());
            self.seen.folders.insert(key, (found.device, found.inode));
        }
        found.kind().to_string()
    }

    /// What a status call shows to a compiler, or to another program.
    fn status(&mut self, at: &Path, follows: bool) -> std::io::Result<String> {
        let found = look(at, follows)?;
        Ok(match found.kind() {
            _ if self.compiler => self.kind(at, follows),
            Kind::Folder => format!("a folder {}", found.mode),
            _ => format!("{} {} {:?}", found.size, found.mode, found.written),
        })
    }

    fn see(&mut self, what: &What) -> std::io::Result<String> {
        match what {
            What::Open { path, mode } if mode.writes => {
                fs::write(self.at(path), "result")?;
                Ok("written".into())
            }
            What::Open { path, .. } | What::Execute { path } => {
                let at = self.at(path);
                let mut file = fs::File::open(&at)?;
                let found = file.metadata()?;
                if found.is_dir() {
                    return Ok(self.kind(&at, true));
                }
                let mut text = Vec::new();
                file.read_to_end(&mut text)?;
                if self.compiler && matches!(what, What::Open { .. }) && !at.to_string_lossy().contains("/o") {
                    let seen = (text.clone(), (found.dev(), found.ino()), found.mtime());
                    self.seen.files.insert(at.display().to_string(), seen);
                }
                Ok(format!("reads {text:?}"))
            }
            What::Find { path } => {
                let at = self.at(path);
                self.status(&at, true)
            }
            What::Look { path, follows } => {
                let at = self.at(path);
                self.status(&at, *follows)
            }
            What::Link { path } => Ok(format!("leads to {:?}", fs::read_link(self.at(path))?)),
            What::Resolve { path } => Ok(format!("is {:?}", fs::canonicalize(self.at(path))?)),
            What::List { path } => {
                let mut names = Vec::new();
                for item in fs::read_dir(self.at(path))? {
                    let item = item?;
                    names.push(format!("{:?} {:?}", item.file_name(), item.file_type()?));
                }
                // The result of an unknown program may depend on the order.
                if self.compiler {
                    names.sort();
                }
                Ok(names.concat())
            }
            What::Enter { path } => {
                let at = self.at(path);
                fs::read_dir(&at)?;
                self.here = at.clone();
                Ok(self.kind(&at, true))
            }
            What::Rename { from, to } => {
                fs::rename(self.at(from), self.at(to))?;
                Ok(String::new())
            }
            What::Remove { path } => {
                fs::remove_file(self.at(path))?;
                Ok(String::new())
            }
            other => unreachable!("{other:?} {}", self.root.display()),
        }
    }
}

fn look(path: &Path, follows: bool) -> Result<Status, std::io::Error> {
    use std::os::unix::ffi::OsStrExt;
    let path = path.as_os_str().as_bytes();
    let found = if follows { status(path) } else { status_of_name(path) };
    Ok(found?)
}

fn begin(root: &Path, program: &str) -> Access {
    let what = What::Begin {
        program: program.as_bytes().to_vec(),
        folder: root.display().to_string().into(),
        parent: 0,
        is_traced: false,
    };
    let (process, error) = (1, 0);
    Access {
        process,
        what,
        error,
        identity: 0,
    }
}

fn random_step(dice: &mut Dice, root: &Path) -> What {
    let path = dice.path(root).into_bytes();
    let own = |dice: &mut Dice| format!("{}/{}", root.display(), dice.one(&["o0", "o1"])).into_bytes();
    let reads = Mode {
        reads: true,
        ..Mode::default()
    };
    let writes = Mode {
        writes: true,
        creates: true,
        truncates: true,
        ..Mode::default()
    };
    match dice.below(16) {
        0 | 1 => What::Find { path },
        2 | 3 => What::Look { path, follows: true },
        4 => What::Look { path, follows: false },
        5 => What::Link { path },
        6 => What::Resolve { path },
        7 => What::List { path },
        8 => What::Enter { path },
        // Without a slash, it would be searched in `PATH`.
        9 => What::Execute {
            path: if path[0] == b'/' {
                path
            } else {
                [b"./", path.as_slice()].concat()
            },
        },
        10 => What::Open {
            path: own(dice),
            mode: writes,
        },
        11 => What::Rename {
            from: own(dice),
            to: own(dice),
        },
        12 => What::Remove { path: own(dice) },
        13 => What::Open {
            path: own(dice),
            mode: reads,
        },
        _ => What::Open { path, mode: reads },
    }
}

fn remove(path: &Path) {
    if path.is_dir() && !path.is_symlink() {
        fs::remove_dir_all(path).unwrap();
    } else {
        let _ = fs::remove_file(path);
    }
}

/// Changes something at a random place, often without changing the size, and in the same tick of the clock.
fn edit(dice: &mut Dice, root: &Path) {
    let folder = root.join(dice.one(&FOLDERS));
    if dice.below(14) == 0 {
        remove(&folder);
    }
    if dice.below(30) == 0 && !folder.exists() {
        let _ = symlink(dice.one(&FOLDERS), &folder);
    }
    if !folder.is_dir() {
        remove(&folder);
        fs::create_dir(&folder).unwrap();
    }
    let path = folder.join(dice.one(&NAMES));
    match dice.below(10) {
        0 => remove(&path),
        1 => {
            remove(&path);
            fs::create_dir(&path).unwrap();
        }
        2 => {
            remove(&path);
            symlink(format!("../{}/{}", dice.one(&FOLDERS), dice.one(&NAMES)), &path).unwrap();
        }
        3 => {
            let _ = fs::File::open(&path).map(|file| file.set_modified(std::time::UNIX_EPOCH));
        }
        4 => {
            let mode = if dice.below(2) == 0 { 0o755 } else { 0o644 };
            if path.exists() {
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
        5 => {
            let other = root.join(dice.one(&FOLDERS)).join(dice.one(&NAMES));
            if path.is_file() && other.parent().unwrap().is_dir() {
                let _ = fs::rename(&path, &other);
            }
        }
        _ => {
            let _ = fs::write(&path, dice.one(&CONTENTS));
        }
    }
}

struct Case {
    root: PathBuf,
    compiler: bool,
    place: Place,
    environment: Environment,
}

impl Drop for Case {
    fn drop(&mut self) {
        remove(&self.root);
    }
}

impl Case {
    fn new(seed: u64, compiler: bool) -> Case {
        let root = std::env::temp_dir().canonicalize().unwrap();
        let root = root.join(format!("facts-{}-{seed}-{compiler}", std::process::id()));
        fs::create_dir(&root).unwrap();
        Case {
            place: Place::new(root.display().to_string().as_bytes(), None),
            environment: Environment::of(&Strings::from_iter(["A=1", "PATH=/bin"])),
            root,
            compiler,
        }
    }

    fn understand(&self, world: &World, accesses: &[Access], started: Stamp) -> Result<Dependence, Obstacle> {
        let compiler = self.compiler;
        let knowledge = Knowledge {
            policy: Policy {
                compiler,
                statuses: Statuses::Ignored,
                ..Policy::default()
            },
            ..Knowledge::since(started)
        };
        understand(
            accesses,
            &knowledge,
            &mut View::new(world, &self.place, &self.environment),
        )
    }

    fn run(&self, seed: u64, world: &World) -> (usize, usize) {
        let mut dice = Dice::new(seed);
        (0..10).for_each(|_| edit(&mut dice, &self.root));
        next_tick();
        let started = Stamp::now();
        let steps: Vec<What> = (0..1 + dice.below(12))
            .map(|_| random_step(&mut dice, &self.root))
            .collect();
        let (seen, accesses) = Player::play(&self.root, self.compiler, &steps);
        let found = match self.understand(world, &accesses, started) {
            Ok(found) => found,
            Err(Obstacle::Changed(path)) => {
                let kept = look(&self.root.join(&path), false);
                panic!("seed {seed}: {path} did not change since {started:?}: {kept:?} {accesses:#?}")
            }
            Err(_) => return (0, 0),
        };
        let facts = found.facts;
        let entry = Entry {
            facts,
            ..Entry::default()
        };
        let entry = Entry::decode(&entry.encode()).expect("what was encoded");
        let (mut held, mut failed) = (0, 0);
        for turn in 0..EDITS {
            for made in ["o0", "o1"] {
                remove(&self.root.join(made));
            }
            let check = entry.check(&mut View::new(world, &self.place, &self.environment));
            let (sees, _) = Player::play(&self.root, self.compiler, &steps);
            assert_eq!(
                check.is_ok(),
                sees.is_same(&seen),
                "seed {seed}, compiler {}, turn {turn}: {check:?}\nsteps {steps:#?}\nsaw {seen:#?}\nsees {sees:#?}\nfacts {:#?}",
                self.compiler,
                entry.facts
            );
            held += usize::from(check.is_ok());
            failed += usize::from(check.is_err());
            edit(&mut dice, &self.root);
        }
        (held, failed)
    }
}

fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("FACTS_SEEDS") else {
        return 0..400;
    };
    let (from, to) = text.split_once("..").expect("FROM..TO");
    from.parse().unwrap()..to.parse().unwrap()
}

fn holds_for(compiler: bool) {
    // All cases share one `World`, because the file system uses inode numbers again.
    let world = World::new(Capacity { files: 64, folders: 32 });
    let (mut held, mut failed) = (0, 0);
    for seed in seeds() {
        let (h, f) = Case::new(seed, compiler).run(seed, &world);
        (held, failed) = (held + h, failed + f);
    }
    println!("held {held}, failed {failed}");
    assert!(held > 0 && failed > 0);
}

#[test]
fn an_entry_of_a_compiler_holds_if_and_only_if_it_would_see_the_same() {
    holds_for(true);
}

#[test]
fn an_entry_of_any_command_holds_if_and_only_if_it_would_see_the_same() {
    holds_for(false);
}
