//! What becomes a fact, an output, an obstacle: one rule per test, with accesses written by hand and real files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use wafengine::cache::access::{Access, Mode, What};
use wafengine::cache::digest::Digest;
use wafengine::cache::entry::Entry;
use wafengine::cache::environment::Environment;
use wafengine::cache::fact::{Fact, Kind};
use wafengine::cache::obstacle::Obstacle;
use wafengine::cache::path::{Place, Root};
use wafengine::cache::status::Stamp;
use wafengine::cache::story::{understand, Dependence, Knowledge, Policy, Statuses};
use wafengine::cache::world::{Room, View, World};
use wafengine::wire::Strings;

const READS: Mode = Mode {
    reads: true,
    writes: false,
    creates: false,
    exclusive: false,
    truncates: false,
};
const WRITES: Mode = Mode {
    reads: false,
    writes: true,
    creates: true,
    exclusive: false,
    truncates: true,
};
const COMPILER: Policy = Policy {
    compiler: true,
    clock: false,
    random: false,
    folder: false,
    statuses: Statuses::Ignored,
};

/// A folder with files, and what a command does in it.
struct Scene {
    root: PathBuf,
    world: World,
    policy: Policy,
    base: Option<String>,
    folder: String,
    outputs: Option<Vec<Vec<u8>>>,
    modules: Option<&'static [u8]>,
    variables: Vec<String>,
    accesses: Vec<Access>,
    started: Stamp,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// The coarse clock has passed the present moment, by which newer kernels may have stamped a file.
fn next_tick() {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let now = Stamp {
        seconds: now.as_secs() as i64,
        nanoseconds: now.subsec_nanos(),
    };
    while Stamp::now() <= now {
        std::thread::yield_now();
    }
}

fn bytes(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

impl Scene {
    fn new(policy: Policy) -> Scene {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().canonicalize().unwrap();
        let root = root.join(format!("scene-{}-{number}", std::process::id()));
        fs::create_dir(&root).unwrap();
        Scene {
            folder: root.display().to_string(),
            root,
            world: World::new(Room::default()),
            policy,
            base: None,
            outputs: None,
            modules: None,
            variables: vec!["PATH=/bin".into()],
            accesses: Vec::new(),
            started: Stamp::now(),
        }
    }

    fn with(self, name: &str, text: &str) -> Scene {
        self.put(name, text);
        self
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The command begins, in a later tick of the clock than all that was done before.
    fn begins(mut self) -> Scene {
        next_tick();
        self.started = Stamp::now();
        let what = What::Begin {
            program: bytes("/bin/sh"),
            folder: bytes(&self.folder),
            parent: 0,
        };
        self.does(what, 0)
    }

    fn does(mut self, what: What, error: i32) -> Scene {
        let (process, error) = (1, error as u16);
        self.accesses.push(Access { process, what, error });
        self
    }

    fn opens(self, path: &str, mode: Mode, error: i32) -> Scene {
        let path = bytes(path);
        self.does(What::Open { path, mode }, error)
    }

    fn reads(self, path: &str) -> Scene {
        self.opens(path, READS, 0)
    }

    fn misses(self, path: &str) -> Scene {
        self.opens(path, READS, libc::ENOENT)
    }

    fn writes(self, path: &str) -> Scene {
        self.put(path, "result");
        self.opens(path, WRITES, 0)
    }

    fn declares(mut self, outputs: &[&str]) -> Scene {
        self.outputs = Some(outputs.iter().map(|path| bytes(path)).collect());
        self
    }

    fn place(&self) -> Place {
        Place::new(self.folder.as_bytes(), self.base.as_deref().map(str::as_bytes))
    }

    fn environment(&self) -> Environment {
        Environment::of(&Strings::from_iter(&self.variables))
    }

    fn understand(&self) -> Result<Dependence, Obstacle> {
        let knowledge = Knowledge {
            policy: self.policy,
            outputs: self.outputs.as_deref(),
            modules: self.modules,
            unseen: &["TERM"],
            observer: b"/lib/observer.so",
            started: self.started,
        };
        let (place, environment) = (self.place(), self.environment());
        understand(
            &self.accesses,
            &knowledge,
            &mut View::new(&self.world, &place, &environment),
        )
    }

    fn entry(&self) -> Entry {
        let facts = self.understand().unwrap().facts;
        Entry {
            facts,
            ..Entry::default()
        }
    }

    /// What has changed, in words.
    fn changes(&self, entry: &Entry) -> Vec<String> {
        let (place, environment) = (self.place(), self.environment());
        let changes = entry.changes(&mut View::new(&self.world, &place, &environment));
        changes.iter().map(ToString::to_string).collect()
    }

    /// The paths that facts are about, but for the program's.
    fn paths(&self) -> Vec<String> {
        let facts = self.understand().unwrap().facts;
        let paths = facts.iter().filter_map(Fact::path).map(ToString::to_string);
        paths.filter(|path| path != "/bin/sh").collect()
    }

    fn outputs(&self) -> Vec<(String, Kind)> {
        let outputs = self.understand().unwrap().outputs;
        outputs.iter().map(|made| (made.path.to_string(), made.kind)).collect()
    }

    fn obstacle(&self) -> String {
        self.understand().unwrap_err().to_string()
    }
}

fn remove(path: &str) -> What {
    What::Remove { path: bytes(path) }
}

fn rename(from: &str, to: &str) -> What {
    let (from, to) = (bytes(from), bytes(to));
    What::Rename { from, to }
}

#[test]
fn a_file_that_is_edited_and_restored_changes_the_entry_and_changes_it_back() {
    let scene = Scene::new(COMPILER).with("a.c", "one").begins().reads("a.c");
    let entry = scene.entry();
    assert_eq!(scene.changes(&entry), [""; 0]);
    scene.put("a.c", "two");
    assert_eq!(scene.changes(&entry), ["a.c has changed"]);
    scene.put("a.c", "one");
    assert_eq!(scene.changes(&entry), [""; 0]);
}

#[test]
fn an_edit_of_the_same_size_in_the_same_tick_is_always_seen() {
    let scene = Scene::new(COMPILER).with("a.c", "0000").begins().reads("a.c");
    let entry = scene.entry();
    for round in 0..500 {
        scene.put("a.c", &format!("{:04}", 1 + round % 7));
        assert_eq!(scene.changes(&entry), ["a.c has changed"], "{round}");
        scene.put("a.c", "0000");
        assert_eq!(scene.changes(&entry), [""; 0], "{round}");
    }
}

#[test]
fn a_digest_is_remembered_only_of_what_was_left_alone_for_a_tick() {
    let scene = Scene::new(COMPILER).with("a.c", "one").begins().reads("a.c");
    scene.entry();
    let before = scene.world.size().0;
    scene.put("b.c", "new");
    let scene = scene.reads("b.c");
    assert_eq!(scene.obstacle(), "b.c changed while it ran, or right before");
    assert!(scene.world.size().0 <= before + 1);
}

#[test]
fn a_header_that_appears_where_it_was_looked_for_is_named() {
    let scene = Scene::new(COMPILER)
        .with("a/f.h", "x")
        .with("b/g.h", "x")
        .begins()
        .misses("b/f.h")
        .misses("no/f.h")
        .reads("a/f.h");
    let entry = scene.entry();
    assert_eq!(scene.changes(&entry), [""; 0]);
    scene.put("b/f.h", "shadow");
    assert_eq!(scene.changes(&entry), ["b/f.h is there now, and was not"]);
    fs::remove_file(scene.root.join("b/f.h")).unwrap();
    assert_eq!(scene.changes(&entry), [""; 0]);
    scene.put("no/f.h", "shadow");
    assert_eq!(scene.changes(&entry), ["no/f.h is there now, and was not"]);
}

#[test]
fn a_header_that_appears_in_a_folder_whose_names_are_remembered_is_seen() {
    let scene = Scene::new(COMPILER).with("b/g.h", "x");
    let folder = fs::metadata(scene.root.join("b")).unwrap();
    let old = || {
        folder
            .modified()
            .unwrap()
            .elapsed()
            .is_ok_and(|age| age.as_millis() > 2100)
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    // Only a folder that was left alone for two seconds is remembered.
    while !old() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
        std::thread::park_timeout(std::time::Duration::from_millis(50));
    }
    let scene = scene.begins().misses("b/f.h").misses("b/h.h");
    let entry = scene.entry();
    assert_eq!(scene.world.size().1, 1);
    assert_eq!(scene.changes(&entry), [""; 0]);
    scene.put("b/f.h", "shadow");
    assert_eq!(scene.changes(&entry), ["b/f.h is there now, and was not"]);
    fs::remove_dir_all(scene.root.join("b")).unwrap();
    assert_eq!(scene.changes(&entry), [""; 0]);
}

#[test]
fn a_file_that_was_written_while_the_command_ran_is_an_obstacle_even_if_its_time_is_set_back() {
    let scene = Scene::new(COMPILER).with("a.h", "one").begins().reads("a.h");
    scene.put("a.h", "one");
    let file = fs::File::options().write(true).open(scene.root.join("a.h")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(scene.obstacle(), "a.h changed while it ran, or right before");
}

#[test]
fn what_was_absent_and_now_is_there_and_what_was_there_and_is_not_are_obstacles() {
    let scene = Scene::new(COMPILER).with("a.h", "").begins().misses("a.h");
    assert_eq!(scene.obstacle(), "a.h is not what it was while it ran");
    let scene = Scene::new(COMPILER).begins().reads("a.h");
    assert_eq!(scene.obstacle(), "a.h is not what it was while it ran");
}

#[test]
fn what_a_command_made_itself_is_an_output_and_no_fact() {
    let scene = Scene::new(Policy::default()).begins();
    let scene = scene.writes("a.s").reads("a.s").reads("./a.s");
    assert_eq!(scene.paths(), [""; 0]);
    assert_eq!(scene.outputs(), [("a.s".into(), Kind::File)]);
}

#[test]
fn a_temporary_file_is_neither_fact_nor_output() {
    let scene = Scene::new(COMPILER).begins().writes("tmp.s").reads("tmp.s");
    fs::remove_file(scene.root.join("tmp.s")).unwrap();
    let scene = scene.does(remove("tmp.s"), 0).writes("a.o");
    assert_eq!(scene.paths(), [""; 0]);
    assert_eq!(scene.outputs(), [("a.o".into(), Kind::File)]);
}

#[test]
fn a_made_file_that_is_renamed_is_an_output_under_its_last_name() {
    let scene = Scene::new(COMPILER).begins().writes("a.o.tmp");
    fs::rename(scene.root.join("a.o.tmp"), scene.root.join("a.o")).unwrap();
    let scene = scene.does(rename("a.o.tmp", "a.o"), 0).misses("a.o.tmp");
    assert_eq!(scene.outputs(), [("a.o".into(), Kind::File)]);
    assert_eq!(scene.paths(), [""; 0]);
}

#[test]
fn a_made_folder_that_is_renamed_takes_what_is_in_it_along() {
    let scene = Scene::new(Policy::default()).begins();
    fs::create_dir(scene.root.join("x")).unwrap();
    let scene = scene.does(What::Make { path: bytes("x") }, 0).writes("x/f");
    fs::rename(scene.root.join("x"), scene.root.join("y")).unwrap();
    let scene = scene.does(rename("x", "y"), 0);
    assert_eq!(
        scene.outputs(),
        [("y".into(), Kind::Folder), ("y/f".into(), Kind::File)]
    );
}

#[test]
fn a_compiler_may_look_at_its_result_and_remove_the_old_one_but_not_read_it() {
    let scene = Scene::new(COMPILER).with("a.o", "old").declares(&["./a.o"]).begins();
    let scene = scene.does(
        What::Look {
            path: bytes("a.o"),
            follows: true,
        },
        0,
    );
    let scene = scene.does(remove("a.o"), 0).writes("a.o");
    assert_eq!(scene.paths(), [""; 0]);
    assert_eq!(scene.outputs(), [("a.o".into(), Kind::File)]);
    let scene = Scene::new(COMPILER).with("a.o", "old").declares(&["a.o"]).begins();
    let scene = scene.reads("a.o").writes("a.o");
    assert_eq!(scene.obstacle(), "it reads a.o and makes it anew");
}

#[test]
fn a_result_that_was_not_foretold_is_an_obstacle() {
    let scene = Scene::new(COMPILER)
        .declares(&["a.o"])
        .begins()
        .writes("a.o")
        .writes("a.su");
    assert_eq!(scene.obstacle(), "it makes a.su, which was not foretold");
}

#[test]
fn the_library_that_observes_is_no_fact() {
    let path = bytes("/lib/observer.so");
    let scene = Scene::new(COMPILER).begins().does(What::Load { path }, 0);
    assert_eq!(scene.paths(), [""; 0]);
}

#[test]
fn modules_are_foretold_by_their_folder_and_ending() {
    let mut scene = Scene::new(COMPILER).with("m/x", "").declares(&["a.o"]).begins();
    scene.modules = Some(b"./m");
    let scene = scene.writes("a.o").writes("m/a.mod");
    assert_eq!(
        scene.outputs(),
        [("a.o".into(), Kind::File), ("m/a.mod".into(), Kind::File)]
    );
    assert_eq!(
        scene.writes("m/a.txt").obstacle(),
        "it makes m/a.txt, which was not foretold"
    );
}

#[test]
fn times_of_files_count_where_a_precompiled_header_was_read() {
    let policy = Policy {
        statuses: Statuses::WithPrecompiled,
        ..COMPILER
    };
    let touch = |scene: &Scene| {
        let file = fs::File::options().write(true).open(scene.root.join("a.h")).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    };
    let scene = Scene::new(policy).with("a.h", "x").with("b.h", "y").begins();
    let scene = scene.reads("a.h").reads("b.h");
    let entry = scene.entry();
    touch(&scene);
    assert_eq!(scene.changes(&entry), [""; 0]);
    let scene = Scene::new(policy).with("a.h", "x").with("b.pch", "CPCH...").begins();
    let scene = scene.reads("a.h").reads("b.pch");
    let entry = scene.entry();
    assert_eq!(scene.changes(&entry), [""; 0]);
    touch(&scene);
    assert_eq!(scene.changes(&entry), ["a.h was written anew"]);
}

#[test]
fn what_was_there_before_is_not_written_into_removed_or_renamed() {
    let update = Mode {
        reads: true,
        writes: true,
        ..Mode::default()
    };
    let scene = || Scene::new(COMPILER).with("a.a", "x").begins();
    assert_eq!(
        scene().opens("a.a", update, 0).obstacle(),
        "it writes into a.a, which was there before"
    );
    let append = Mode {
        writes: true,
        creates: true,
        ..Mode::default()
    };
    assert_eq!(
        scene().opens("a.a", append, 0).obstacle(),
        "it writes into a.a, which was there before"
    );
    assert_eq!(
        scene().does(remove("a.a"), 0).obstacle(),
        "it removes or renames a.a, which it did not make"
    );
    assert_eq!(
        scene().does(rename("a.a", "b.a"), 0).obstacle(),
        "it removes or renames a.a, which it did not make"
    );
    let new = scene().opens(
        "b.a",
        Mode {
            exclusive: true,
            ..append
        },
        0,
    );
    new.put("b.a", "y");
    assert_eq!(new.outputs(), [("b.a".into(), Kind::File)]);
}

#[test]
fn another_spelling_of_a_made_path_is_the_made_path() {
    let scene = Scene::new(Policy::default()).with("d/x", "");
    symlink("d", scene.root.join("l")).unwrap();
    let scene = scene.begins().writes("d/a.s").reads("l/a.s").reads("d/../d/a.s");
    assert_eq!(scene.paths(), [""; 0]);
    let name = scene.root.join("d/a.s").display().to_string();
    let scene = scene.reads(&name);
    assert_eq!(scene.paths(), [""; 0]);
}

#[test]
fn reading_through_a_link_that_it_made_is_an_obstacle() {
    let scene = Scene::new(Policy::default()).with("x", "secret").begins();
    symlink("x", scene.root.join("l")).unwrap();
    let scene = scene.does(What::Make { path: bytes("l") }, 0).reads("l");
    assert_eq!(scene.obstacle(), "it reads l through a link or folder that it made");
}

#[test]
fn a_result_of_two_names_is_an_obstacle() {
    let scene = Scene::new(COMPILER).begins().writes("a.o");
    fs::hard_link(scene.root.join("a.o"), scene.root.join("b.o")).unwrap();
    assert_eq!(scene.obstacle(), "it makes a.o, which is no plain file of one name");
}

#[test]
fn each_process_is_in_its_own_folder() {
    let mut scene = Scene::new(COMPILER).with("d/a.h", "x").with("a.h", "y").begins();
    scene = scene.does(What::Enter { path: bytes("d") }, 0).reads("a.h");
    let folder = bytes(&scene.folder);
    let what = What::Begin {
        program: bytes("/bin/sh"),
        folder,
        parent: 1,
    };
    let (process, error) = (2, 0);
    scene.accesses.push(Access { process, what, error });
    let what = What::Open {
        path: bytes("a.h"),
        mode: READS,
    };
    scene.accesses.push(Access { process, what, error });
    assert_eq!(scene.paths(), ["a.h", "d/a.h", "d"]);
}

#[test]
fn the_clock_random_numbers_and_devices_count_where_they_matter() {
    let strict = || Scene::new(Policy::default()).begins();
    assert_eq!(strict().does(What::Time, 0).obstacle(), "it asks for the time");
    assert_eq!(strict().does(What::Random, 0).obstacle(), "it asks for random numbers");
    assert_eq!(strict().reads("/dev/urandom").obstacle(), "it asks for random numbers");
    assert_eq!(
        strict().reads("/proc/cpuinfo").obstacle(),
        "it uses /proc/cpuinfo, which is no file"
    );
    assert_eq!(strict().reads("/dev/null").paths(), [""; 0]);
    let lenient = Scene::new(COMPILER).begins().does(What::Time, 0).does(What::Random, 0);
    assert_eq!(lenient.paths(), [""; 0]);
    let why = "static";
    assert_eq!(
        lenient.does(What::Blind { why }, 0).obstacle(),
        "it could not be observed: static"
    );
}

#[test]
fn a_compiler_has_the_variables_that_it_asked_for_and_those_that_libc_asks() {
    let mut scene = Scene::new(COMPILER).begins();
    for name in ["CPATH", "TMPDIR", "PWD", "TERM"] {
        scene = scene.does(What::Ask { name: bytes(name) }, 0);
    }
    let entry = scene.entry();
    scene
        .variables
        .extend(["TMPDIR=/t".into(), "PWD=/p".into(), "TERM=x".into(), "OTHER=1".into()]);
    assert_eq!(scene.changes(&entry), [""; 0]);
    scene.variables.extend(["CPATH=x".into(), "LC_ALL=C".into()]);
    assert_eq!(
        scene.changes(&entry),
        ["CPATH is 'x', was not set", "LC_ALL is 'C', was not set"]
    );
}

#[test]
fn any_other_command_has_all_variables_but_those_of_its_shell() {
    let mut scene = Scene::new(Policy::default()).begins();
    let entry = scene.entry();
    scene.variables.extend(["SHLVL=3".into(), "_=/x".into()]);
    assert_eq!(scene.changes(&entry), [""; 0]);
    scene.variables.push("OTHER=1".into());
    assert_eq!(scene.changes(&entry), ["there are other variables than there were"]);
}

#[test]
fn where_a_command_is_counts_if_it_asks_and_its_policy_says_so() {
    let mut scene = Scene::new(Policy {
        folder: true,
        ..COMPILER
    })
    .begins()
    .does(What::Locate, 0);
    let entry = scene.entry();
    let was = std::mem::replace(&mut scene.folder, "/other".into());
    assert_eq!(scene.changes(&entry), [format!("the folder is '/other', was '{was}'")]);
    let mut scene = Scene::new(COMPILER).begins().does(What::Locate, 0);
    let entry = scene.entry();
    scene.folder = "/other".into();
    assert_eq!(scene.changes(&entry), [""; 0]);
}

#[test]
fn two_checkouts_share_relative_paths_and_those_below_the_base() {
    let mut scene = Scene::new(COMPILER);
    for checkout in ["one", "two"] {
        scene.put(&format!("{checkout}/inc/a.h"), "a");
        scene.put(&format!("{checkout}/src/b.h"), "b");
    }
    let folder = |scene: &Scene, name: &str| scene.root.join(name).display().to_string();
    scene.base = Some(folder(&scene, "one"));
    scene.folder = folder(&scene, "one/src");
    let absolute = folder(&scene, "one/inc/a.h");
    let mut scene = scene
        .begins()
        .reads("b.h")
        .reads("../inc/a.h")
        .reads(&absolute)
        .misses("c.h");
    let entry = scene.entry();
    scene.base = Some(folder(&scene, "two"));
    scene.folder = folder(&scene, "two/src");
    assert_eq!(scene.changes(&entry), [""; 0]);
    scene.put("two/src/c.h", "shadow");
    assert_eq!(scene.changes(&entry), ["c.h is there now, and was not"]);
}

#[test]
fn a_source_that_names_the_base_folder_keeps_the_name_in_the_facts() {
    let mut scene = Scene::new(COMPILER).with("inc/a.h", "a");
    let base = scene.folder.clone();
    scene.put("a.c", &format!("int x;\n#include \"{base}/inc/a.h\"\n"));
    scene.base = Some(base.clone());
    let scene = scene.begins().reads("a.c").reads(&format!("{base}/inc/a.h"));
    let facts = scene.understand().unwrap().facts;
    assert!(facts.iter().filter_map(Fact::path).all(|path| path.root != Root::Base));
}

#[test]
fn two_headers_that_become_one_and_one_that_becomes_two_are_seen() {
    let scene = Scene::new(COMPILER).with("a.h", "same").with("b.h", "same").begins();
    let scene = scene.reads("a.h").reads("b.h");
    let entry = scene.entry();
    assert_eq!(scene.changes(&entry), [""; 0]);
    fs::remove_file(scene.root.join("b.h")).unwrap();
    symlink("a.h", scene.root.join("b.h")).unwrap();
    assert_eq!(
        scene.changes(&entry),
        ["a.h and b.h hold the same, and are not as alike or different as they were"]
    );
}

#[test]
fn a_folder_that_becomes_another_name_of_one_already_searched_is_seen() {
    let scene = Scene::new(COMPILER).with("a/x", "").with("b/x", "").begins();
    let find = |path| What::Find { path: bytes(path) };
    let scene = scene.does(find("a"), 0).does(find("b"), 0);
    let entry = scene.entry();
    fs::remove_dir_all(scene.root.join("b")).unwrap();
    symlink("a", scene.root.join("b")).unwrap();
    assert_eq!(
        scene.changes(&entry),
        ["b is the same folder as another, and was not, or the reverse"]
    );
}

#[test]
fn a_program_found_along_the_path_depends_on_the_folders_before_its_own() {
    let mut scene = Scene::new(COMPILER).with("bin/none", "");
    let first = scene.root.join("bin");
    scene.variables = vec![format!("PATH={}:/bin", first.display())];
    let scene = scene.begins().does(What::Execute { path: bytes("cat") }, 0);
    let entry = scene.entry();
    scene.put("bin/cat", "#!/bin/sh");
    let path = first.join("cat").display().to_string();
    assert_eq!(scene.changes(&entry), [format!("{path} is there now, and was not")]);
}

#[test]
fn a_folder_that_is_listed_must_not_change_and_must_not_be_where_results_go() {
    let list = || What::List { path: bytes("d") };
    let scene = Scene::new(COMPILER).with("d/x", "").begins().does(list(), 0);
    let entry = scene.entry();
    scene.put("d/x", "longer");
    assert_eq!(scene.changes(&entry), [""; 0]);
    scene.put("d/y", "");
    assert_eq!(scene.changes(&entry), ["what is in d has changed"]);
    let scene = Scene::new(COMPILER)
        .with("d/x", "")
        .begins()
        .does(list(), 0)
        .writes("d/y");
    assert_eq!(scene.obstacle(), "it lists d, where it makes files");
}

#[test]
fn a_compiler_of_the_same_name_size_and_time_but_other_content_is_another() {
    let scene = Scene::new(COMPILER).with("cc1", "AAAA").begins();
    let path = bytes("./cc1");
    let scene = scene.does(What::Execute { path }, 0);
    let entry = scene.entry();
    let time = fs::metadata(scene.root.join("cc1")).unwrap().modified().unwrap();
    scene.put("cc1", "BBBB");
    let file = fs::File::options().write(true).open(scene.root.join("cc1")).unwrap();
    file.set_modified(time).unwrap();
    assert_eq!(scene.changes(&entry), ["cc1 has changed"]);
}

#[test]
fn hostile_error_numbers_and_odd_paths_panic_nowhere() {
    for error in [0, 1, 4095, 4096, 65535] {
        for path in ["", "/", "..", "a\0b", &"x/".repeat(5000)] {
            let scene = Scene::new(Policy::default()).begins().opens(path, READS, error);
            let _ = scene.understand();
            let scene = scene.opens(path, WRITES, error).does(rename(path, path), error);
            let _ = scene.does(What::Link { path: bytes(path) }, error).understand();
        }
    }
}

#[test]
fn eight_hundred_facts_take_less_than_fifteen_kilobytes() {
    let mut scene = Scene::new(COMPILER);
    for folder in 0..30 {
        scene.put(&format!("include/folder{folder}/x.h"), "x");
    }
    for file in 0..100 {
        scene.put(&format!("include/folder29/header_{file}.h"), &format!("{file}"));
    }
    scene = scene.begins();
    for file in 0..100 {
        for folder in 22..29 {
            scene = scene.misses(&format!("include/folder{folder}/header_{file}.h"));
        }
        scene = scene.reads(&format!("include/folder29/header_{file}.h"));
    }
    let entry = scene.entry();
    assert!(entry.facts.len() > 800);
    let size = entry.encode().len();
    assert!(size < 15 << 10, "{size}");
    assert_eq!(Digest::of(&entry.encode()), Digest::of(&scene.entry().encode()));
}
