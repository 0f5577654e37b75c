//! Which accesses become facts, and which changes the facts detect. One rule per test, with accesses written by hand and
//! real files.

use std::fs;
use std::os::unix::fs::{symlink, MetadataExt};
use std::time::{Duration, UNIX_EPOCH};

use crate::support::clock::COMPILER;
use crate::support::scripted_command::{bytes, ScriptedCommand, READS};
use wafengine::bytes::digest::Digest;
use wafengine::cache::story::{Policy, Statuses};
use wafengine::facts::fact::Fact;
use wafengine::observe::access::{Access, What};

#[test]
fn a_file_that_is_edited_and_restored_changes_the_entry_and_changes_it_back() {
    let command = ScriptedCommand::new(COMPILER).with("a.c", "one").begins().reads("a.c");
    let entry = command.entry();
    assert_eq!(command.changes(&entry), [""; 0]);
    command.put("a.c", "two");
    assert_eq!(command.changes(&entry), ["a.c has changed"]);
    command.put("a.c", "one");
    assert_eq!(command.changes(&entry), [""; 0]);
}

#[test]
fn an_edit_of_the_same_size_in_the_same_tick_is_always_seen() {
    let command = ScriptedCommand::new(COMPILER).with("a.c", "0000").begins().reads("a.c");
    let entry = command.entry();
    for round in 0..500 {
        command.put("a.c", &format!("{:04}", 1 + round % 7));
        assert_eq!(command.changes(&entry), ["a.c has changed"], "{round}");
        command.put("a.c", "0000");
        assert_eq!(command.changes(&entry), [""; 0], "{round}");
    }
}

#[test]
fn a_digest_is_remembered_only_if_the_file_was_unchanged_for_a_tick() {
    let command = ScriptedCommand::new(COMPILER).with("a.c", "one").begins().reads("a.c");
    command.entry();
    let before = command.world.size().0;
    command.put("b.c", "new");
    let command = command.reads("b.c");
    assert_eq!(command.obstacle(), "b.c changed while it ran, or right before");
    assert!(command.world.size().0 <= before + 1);
}

#[test]
fn a_header_that_appears_where_it_was_looked_for_is_named() {
    let command = ScriptedCommand::new(COMPILER)
        .with("a/f.h", "x")
        .with("b/g.h", "x")
        .begins()
        .misses("b/f.h")
        .misses("no/f.h")
        .reads("a/f.h");
    let entry = command.entry();
    assert_eq!(command.changes(&entry), [""; 0]);
    command.put("b/f.h", "shadow");
    assert_eq!(command.changes(&entry), ["b/f.h is there now, and was not"]);
    fs::remove_file(command.root.join("b/f.h")).unwrap();
    assert_eq!(command.changes(&entry), [""; 0]);
    command.put("no/f.h", "shadow");
    assert_eq!(command.changes(&entry), ["no/f.h is there now, and was not"]);
}

#[test]
fn a_header_that_appears_in_a_folder_with_remembered_names_is_seen() {
    let command = ScriptedCommand::new(COMPILER).with("b/g.h", "x");
    let folder = fs::metadata(command.root.join("b")).unwrap();
    let old = || {
        folder
            .modified()
            .unwrap()
            .elapsed()
            .is_ok_and(|age| age.as_millis() > 2100)
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    // Only the names in a folder that did not change for two seconds are remembered.
    while !old() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
        std::thread::park_timeout(std::time::Duration::from_millis(50));
    }
    let command = command.begins().misses("b/f.h").misses("b/h.h");
    let entry = command.entry();
    assert_eq!(command.world.size().1, 1);
    assert_eq!(command.changes(&entry), [""; 0]);
    command.put("b/f.h", "shadow");
    assert_eq!(command.changes(&entry), ["b/f.h is there now, and was not"]);
    fs::remove_dir_all(command.root.join("b")).unwrap();
    assert_eq!(command.changes(&entry), [""; 0]);
}

#[test]
fn the_observing_library_is_no_fact() {
    let path = bytes("/lib/observer.so");
    let command = ScriptedCommand::new(COMPILER).begins().does(What::Load { path }, 0);
    assert_eq!(command.paths(), [""; 0]);
}

#[test]
fn times_of_files_count_if_a_precompiled_header_was_read() {
    let policy = Policy {
        statuses: Statuses::WithPrecompiled,
        ..COMPILER
    };
    let touch = |command: &ScriptedCommand| {
        let file = fs::File::options().write(true).open(command.root.join("a.h")).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    };
    let command = ScriptedCommand::new(policy).with("a.h", "x").with("b.h", "y").begins();
    let command = command.reads("a.h").reads("b.h");
    let entry = command.entry();
    touch(&command);
    assert_eq!(command.changes(&entry), [""; 0]);
    let command = ScriptedCommand::new(policy)
        .with("a.h", "x")
        .with("b.pch", "CPCH...")
        .begins();
    let command = command.reads("a.h").reads("b.pch");
    let entry = command.entry();
    assert_eq!(command.changes(&entry), [""; 0]);
    touch(&command);
    assert_eq!(command.changes(&entry), ["a.h was written anew"]);
}

#[test]
fn each_process_is_in_its_own_folder() {
    let mut command = ScriptedCommand::new(COMPILER)
        .with("d/a.h", "x")
        .with("a.h", "y")
        .begins();
    command = command.does(What::Enter { path: bytes("d") }, 0).reads("a.h");
    let folder = bytes(&command.folder);
    let what = What::Begin {
        program: bytes(command.program()),
        folder,
        parent: 1,
        is_traced: false,
    };
    let (process, error) = (2, 0);
    command.accesses.push(Access {
        process,
        what,
        error,
        identity: 0,
    });
    let what = What::Open {
        path: bytes("a.h"),
        mode: READS,
    };
    command.accesses.push(Access {
        process,
        what,
        error,
        identity: 0,
    });
    assert_eq!(command.paths(), ["a.h", "d/a.h", "d"]);
}

#[test]
fn the_clock_random_numbers_and_devices_are_obstacles_except_for_compilers() {
    let strict = || ScriptedCommand::new(Policy::default()).begins();
    assert_eq!(strict().does(What::Time, 0).obstacle(), "it asks for the time");
    assert_eq!(strict().does(What::Random, 0).obstacle(), "it asks for random numbers");
    assert_eq!(strict().reads("/dev/urandom").obstacle(), "it asks for random numbers");
    let unknown_program = || {
        let program = || bytes("/bin/tar");
        let (folder, parent) = (bytes(&strict().folder), 0);
        strict().does(
            What::Begin {
                program: program(),
                folder,
                parent,
                is_traced: false,
            },
            0,
        )
    };
    assert_eq!(
        unknown_program().does(What::Measure, 0).obstacle(),
        "it asks for the time"
    );
    assert_eq!(
        unknown_program().does(What::Number, 0).obstacle(),
        "it asks for random numbers"
    );
    // Each shell asks for its process number at its start.
    strict().does(What::Number, 0).entry();
    assert_eq!(
        strict().reads("/proc/cpuinfo").obstacle(),
        "it uses /proc/cpuinfo, which is no file"
    );
    assert_eq!(strict().reads("/dev/null").paths(), [""; 0]);
    let lenient = ScriptedCommand::new(COMPILER)
        .begins()
        .does(What::Time, 0)
        .does(What::Random, 0);
    let lenient = lenient.does(What::Measure, 0).does(What::Number, 0);
    assert_eq!(lenient.paths(), [""; 0]);
    let why = "static";
    assert_eq!(
        lenient.does(What::Blind { why }, 0).obstacle(),
        "it could not be observed: static"
    );
}

#[test]
fn a_compiler_depends_on_the_variables_that_it_or_libc_reads() {
    let mut command = ScriptedCommand::new(COMPILER).begins();
    for name in ["CPATH", "TMPDIR", "PWD", "TERM"] {
        command = command.does(What::Ask { name: bytes(name) }, 0);
    }
    let entry = command.entry();
    command
        .variables
        .extend(["TMPDIR=/t".into(), "PWD=/p".into(), "TERM=x".into(), "OTHER=1".into()]);
    assert_eq!(command.changes(&entry), [""; 0]);
    command.variables.extend(["CPATH=x".into(), "LC_ALL=C".into()]);
    assert_eq!(
        command.changes(&entry),
        ["CPATH is 'x', was not set", "LC_ALL is 'C', was not set"]
    );
}

#[test]
fn any_other_command_depends_on_all_variables_except_those_of_its_shell() {
    let mut command = ScriptedCommand::new(Policy::default()).begins();
    let entry = command.entry();
    command.variables.extend(["SHLVL=3".into(), "_=/x".into()]);
    assert_eq!(command.changes(&entry), [""; 0]);
    command.variables.push("OTHER=1".into());
    assert_eq!(command.changes(&entry), ["there are other variables than there were"]);
}

#[test]
fn the_folder_counts_if_the_command_asks_for_it_and_the_policy_says_so() {
    let mut command = ScriptedCommand::new(Policy {
        folder: true,
        ..COMPILER
    })
    .begins()
    .does(What::Locate, 0);
    let entry = command.entry();
    let was = std::mem::replace(&mut command.folder, "/other".into());
    assert_eq!(
        command.changes(&entry),
        [format!("the folder is '/other', was '{was}'")]
    );
    let mut command = ScriptedCommand::new(COMPILER).begins().does(What::Locate, 0);
    let entry = command.entry();
    command.folder = "/other".into();
    assert_eq!(command.changes(&entry), [""; 0]);
}

#[test]
fn a_compilers_comparison_of_pwd_with_its_folder_is_no_fact() {
    let checks = |policy: Policy, second: &str| {
        let mut command = ScriptedCommand::new(policy);
        let pwd = command.folder.clone();
        command.variables.push(format!("PWD={pwd}"));
        let finds = |path: &str| What::Find { path: bytes(path) };
        let command = command.begins().does(What::Ask { name: bytes("PWD") }, 0);
        let command = command.does(finds(&pwd), 0).does(finds(second), 0);
        command.paths().contains(&pwd)
    };
    assert!(!checks(COMPILER, "."));
    assert!(checks(COMPILER, ".."));
    let policy = Policy {
        folder: true,
        ..COMPILER
    };
    assert!(checks(policy, "."));
}

#[test]
fn a_command_with_anchored_paths_depends_on_its_folder() {
    let mut command = ScriptedCommand::new(COMPILER).begins().does(What::Anchor, 0);
    let entry = command.entry();
    let was = std::mem::replace(&mut command.folder, "/other".into());
    assert_eq!(
        command.changes(&entry),
        [format!("the folder is '/other', was '{was}'")]
    );
}

#[test]
fn the_folder_of_a_shell_counts_only_if_another_program_asks_for_it() {
    let policy = Policy {
        shell: true,
        ..Policy::default()
    };
    let begins = |program: &str, folder: &str, process: u32| Access {
        process,
        what: What::Begin {
            program: bytes(program),
            folder: bytes(folder),
            parent: 1,
            is_traced: false,
        },
        error: 0,
        identity: 0,
    };
    let ask = || What::Ask { name: bytes("PWD") };
    // The program, its process, what it asks for, and whether the folder counts then.
    for (program, process, asks, counts) in [
        ("/bin/dash", 1, None, false),
        ("/bin/dash", 1, Some(What::Locate), false),
        ("/bin/cat", 1, None, false),
        ("/bin/cat", 2, None, false),
        ("/bin/cat", 1, Some(What::Locate), true),
        ("/bin/cat", 2, Some(What::Locate), true),
        ("/bin/cat", 2, Some(ask()), true),
        ("/bin/dash", 1, Some(What::Anchor), true),
        ("/bin/cp", 2, None, true),
        ("/bin/dash", 2, None, true),
    ] {
        let mut command = ScriptedCommand::new(policy).with("a", "").begins();
        let folder = command.folder.clone();
        command.accesses = vec![begins("/bin/dash", &folder, 1)];
        if (program, process) != ("/bin/dash", 1) {
            command.accesses.push(begins(program, &folder, process));
        }
        command.accesses.extend(asks.clone().map(|what| Access {
            process,
            what,
            error: 0,
            identity: 0,
        }));
        let entry = command.entry();
        let has_folder = entry.facts.iter().any(|fact| matches!(fact, Fact::Folder { .. }));
        assert_eq!(has_folder, counts, "{program} in process {process} asks {asks:?}");
    }
}

#[test]
fn two_checkouts_share_relative_paths_and_paths_below_the_base() {
    let mut command = ScriptedCommand::new(COMPILER);
    for checkout in ["one", "two"] {
        command.put(&format!("{checkout}/inc/a.h"), "a");
        command.put(&format!("{checkout}/src/b.h"), "b");
    }
    let folder = |command: &ScriptedCommand, name: &str| command.root.join(name).display().to_string();
    command.base = Some(folder(&command, "one"));
    command.folder = folder(&command, "one/src");
    let absolute = folder(&command, "one/inc/a.h");
    let mut command = command
        .begins()
        .reads("b.h")
        .reads("../inc/a.h")
        .reads(&absolute)
        .misses("c.h");
    let entry = command.entry();
    command.base = Some(folder(&command, "two"));
    command.folder = folder(&command, "two/src");
    assert_eq!(command.changes(&entry), [""; 0]);
    command.put("two/src/c.h", "shadow");
    assert_eq!(command.changes(&entry), ["c.h is there now, and was not"]);
}

#[test]
fn if_a_source_names_a_base_folder_the_names_of_the_bases_are_a_fact() {
    let mut command = ScriptedCommand::new(COMPILER).with("inc/a.h", "a");
    let base = command.folder.clone();
    command.put("a.c", "int x;\n");
    command.put("b.c", &format!("int x;\n#include \"{base}/inc/a.h\"\n"));
    command.base = Some(base.clone());
    let mut command = command.begins().reads("a.c").reads(&format!("{base}/inc/a.h"));
    let facts = command.understand().unwrap().facts;
    assert!(!facts.iter().any(Fact::is_about_bases));
    command = command.reads("b.c");
    let facts = command.understand().unwrap().facts;
    assert!(facts.iter().any(Fact::is_about_bases));
}

#[test]
fn a_name_that_begins_like_that_of_a_base_makes_the_names_of_the_bases_a_fact() {
    let mut command = ScriptedCommand::new(COMPILER);
    command.put("one/a.c", "a");
    command.put("one-more/a.h", "a");
    let name = |command: &ScriptedCommand, name: &str| command.root.join(name).display().to_string();
    let beside = name(&command, "one-more/a.h");
    command.base = Some(name(&command, "two"));
    command.folder = name(&command, "one");
    let mut command = command.begins().reads("a.c").reads(&beside);
    assert!(!command.understand().unwrap().facts.iter().any(Fact::is_about_bases));
    let entry = command.entry();
    command.base = Some(name(&command, "one"));
    assert!(command.understand().unwrap().facts.iter().any(Fact::is_about_bases));
    let told = format!("{beside} begins like the checkout's folder, and is not in it");
    assert_eq!(command.changes(&entry), [told]);
}

#[test]
fn two_equal_headers_that_become_one_file_are_seen() {
    let command = ScriptedCommand::new(COMPILER)
        .with("a.h", "same")
        .with("b.h", "same")
        .begins();
    let command = command.reads("a.h").reads("b.h");
    let entry = command.entry();
    assert_eq!(command.changes(&entry), [""; 0]);
    fs::remove_file(command.root.join("b.h")).unwrap();
    symlink("a.h", command.root.join("b.h")).unwrap();
    assert_eq!(
        command.changes(&entry),
        ["a.h and b.h hold the same, and are not as alike or different as they were"]
    );
}

/// Headers with the same content. Some of them are the same file.
struct Twins {
    command: ScriptedCommand,
    /// For each header, the number of the first header that is the same file.
    files: Vec<usize>,
    /// The seconds in which the headers were written.
    seconds: Vec<u64>,
}

impl Twins {
    const COUNT: usize = 40;

    fn new() -> Twins {
        let files = (0..Self::COUNT).map(|i| if i % 8 == 7 { i - 3 } else { i }).collect();
        let seconds = (0..Self::COUNT as u64).map(|i| 1000 + i % 3).collect();
        let command = ScriptedCommand::new(COMPILER);
        let mut twins = Twins {
            command,
            files,
            seconds,
        };
        twins.make();
        twins.command = (0..Self::COUNT).fold(twins.command.begins(), |command, i| command.reads(&format!("{i}.h")));
        twins
    }

    fn make(&self) {
        for (i, file) in self.files.iter().enumerate() {
            let [path, first] = [i, *file].map(|i| self.command.root.join(format!("{i}.h")));
            let _ = fs::remove_file(&path);
            if i == *file {
                fs::write(&path, "#pragma once\n").unwrap();
                let time = UNIX_EPOCH + Duration::from_secs(self.seconds[i]);
                let file = fs::File::options().write(true).open(&path).unwrap();
                file.set_modified(time).unwrap();
            } else {
                fs::hard_link(&first, &path).unwrap();
            }
        }
    }

    /// For each pair, whether the two are the same file, and whether they have the same time.
    fn pairs(&self) -> Vec<(bool, bool)> {
        let named = |i| fs::metadata(self.command.root.join(format!("{i}.h"))).unwrap();
        let all: Vec<_> = (0..Self::COUNT)
            .map(named)
            .map(|found| (found.ino(), found.mtime()))
            .collect();
        let pairs = all
            .iter()
            .flat_map(|one| all.iter().map(move |two| (one.0 == two.0, one.1 == two.1)));
        pairs.collect()
    }
}

#[test]
fn many_equal_headers_are_one_fact_that_holds_while_no_pair_changes() {
    let mut twins = Twins::new();
    let (entry, then) = (twins.command.entry(), twins.pairs());
    let facts = entry.facts.iter().filter(|fact| matches!(fact, Fact::Twins { .. }));
    assert_eq!(facts.count(), 1);
    assert!(entry.encode().len() < 100 + 60 * Twins::COUNT);
    let (files, seconds) = (twins.files.clone(), twins.seconds.clone());
    let (mut held, mut failed) = (0, 0);
    for turn in 0..240 {
        (twins.files, twins.seconds) = (files.clone(), seconds.clone());
        let (at, other) = (turn * 7 % Twins::COUNT, turn * 11 % (turn * 7 % Twins::COUNT).max(1));
        let (old, new) = (1000 + turn as u64 % 3, 1000 + turn as u64 / 7 % 5);
        match turn % 4 {
            0 => twins.files[at] = twins.files[other],
            1 => twins.files[at] = at,
            2 => twins.seconds[at] = new,
            _ => twins
                .seconds
                .iter_mut()
                .filter(|second| **second == old)
                .for_each(|second| *second = new),
        }
        twins.make();
        let holds = twins.command.changes(&entry).is_empty();
        assert_eq!(
            holds,
            twins.pairs() == then,
            "turn {turn}: {:?} {:?}",
            twins.files,
            twins.seconds
        );
        held += usize::from(holds);
        failed += usize::from(!holds);
    }
    assert!(held > 20 && failed > 20, "held {held}, failed {failed}");
}

#[test]
fn empty_headers_are_twins_too() {
    let command = ScriptedCommand::new(COMPILER).with("a.h", "").with("b.h", "").begins();
    let command = command.reads("a.h").reads("b.h");
    let entry = command.entry();
    assert_eq!(command.changes(&entry), [""; 0]);
    fs::remove_file(command.root.join("b.h")).unwrap();
    fs::hard_link(command.root.join("a.h"), command.root.join("b.h")).unwrap();
    assert_eq!(command.changes(&entry).len(), 1);
}

#[test]
fn a_searched_folder_that_becomes_a_link_to_another_one_is_seen() {
    let command = ScriptedCommand::new(COMPILER).with("a/x", "").with("b/x", "").begins();
    let find = |path| What::Find { path: bytes(path) };
    let command = command.does(find("a"), 0).does(find("b"), 0);
    let entry = command.entry();
    fs::remove_dir_all(command.root.join("b")).unwrap();
    symlink("a", command.root.join("b")).unwrap();
    assert_eq!(
        command.changes(&entry),
        ["b is the same folder as another, and was not, or the reverse"]
    );
}

#[test]
fn a_program_found_in_path_depends_on_the_folders_before_its_own() {
    let mut command = ScriptedCommand::new(COMPILER).with("bin/none", "");
    let first = command.root.join("bin");
    command.variables = vec![format!("PATH={}:/bin", first.display())];
    let command = command.begins().does(What::Execute { path: bytes("cat") }, 0);
    let entry = command.entry();
    command.put("bin/cat", "#!/bin/sh");
    let path = first.join("cat").display().to_string();
    assert_eq!(command.changes(&entry), [format!("{path} is there now, and was not")]);
}

#[test]
fn a_compiler_with_other_content_but_the_same_size_and_time_is_seen() {
    let command = ScriptedCommand::new(COMPILER).with("cc1", "AAAA").begins();
    let path = bytes("./cc1");
    let command = command.does(What::Execute { path }, 0);
    let entry = command.entry();
    let time = fs::metadata(command.root.join("cc1")).unwrap().modified().unwrap();
    command.put("cc1", "BBBB");
    let file = fs::File::options().write(true).open(command.root.join("cc1")).unwrap();
    file.set_modified(time).unwrap();
    assert_eq!(command.changes(&entry), ["cc1 has changed"]);
}

#[test]
fn eight_hundred_facts_take_less_than_fifteen_kilobytes() {
    let mut command = ScriptedCommand::new(COMPILER);
    for folder in 0..30 {
        command.put(&format!("include/folder{folder}/x.h"), "x");
    }
    for file in 0..100 {
        command.put(&format!("include/folder29/header_{file}.h"), &format!("{file}"));
    }
    command = command.begins();
    for file in 0..100 {
        for folder in 22..29 {
            command = command.misses(&format!("include/folder{folder}/header_{file}.h"));
        }
        command = command.reads(&format!("include/folder29/header_{file}.h"));
    }
    let entry = command.entry();
    assert!(entry.facts.len() > 800);
    let size = entry.encode().len();
    assert!(size < 15 << 10, "{size}");
    assert_eq!(Digest::of(&entry.encode()), Digest::of(&command.entry().encode()));
}
