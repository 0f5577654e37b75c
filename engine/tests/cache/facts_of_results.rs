//! The outputs of a command, and the obstacles to storing them. One rule per test, as in facts.rs.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::clock::COMPILER;
use crate::support::scripted_command::{bytes, remove, rename, ScriptedCommand, READS, WRITES};
use wafengine::cache::story::Policy;
use wafengine::facts::fact::Kind;
use wafengine::observe::access::{Mode, What};

#[test]
fn an_input_that_was_written_during_the_command_is_an_obstacle_even_with_an_old_time() {
    let command = ScriptedCommand::new(COMPILER).with("a.h", "one").begins().reads("a.h");
    command.put("a.h", "one");
    let file = fs::File::options().write(true).open(command.root.join("a.h")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(command.obstacle(), "a.h changed while it ran, or right before");
}

#[test]
fn inputs_that_appeared_or_vanished_are_obstacles() {
    let command = ScriptedCommand::new(COMPILER).with("a.h", "").begins().misses("a.h");
    assert_eq!(command.obstacle(), "a.h is not what it was while it ran");
    let command = ScriptedCommand::new(COMPILER).begins().reads("a.h");
    assert_eq!(command.obstacle(), "a.h is not what it was while it ran");
}

#[test]
fn a_file_that_the_command_made_is_an_output_and_no_fact() {
    let command = ScriptedCommand::new(Policy::default()).begins();
    let command = command.writes("a.s").reads("a.s").reads("./a.s");
    assert_eq!(command.paths(), [""; 0]);
    assert_eq!(command.outputs(), [("a.s".into(), Kind::File)]);
}

#[test]
fn a_temporary_file_is_neither_a_fact_nor_an_output() {
    let command = ScriptedCommand::new(COMPILER).begins().writes("tmp.s").reads("tmp.s");
    fs::remove_file(command.root.join("tmp.s")).unwrap();
    let command = command.does(remove("tmp.s"), 0).writes("a.o");
    assert_eq!(command.paths(), [""; 0]);
    assert_eq!(command.outputs(), [("a.o".into(), Kind::File)]);
}

#[test]
fn an_output_that_is_renamed_has_its_last_name() {
    let command = ScriptedCommand::new(COMPILER).begins().writes("a.o.tmp");
    fs::rename(command.root.join("a.o.tmp"), command.root.join("a.o")).unwrap();
    let command = command.does(rename("a.o.tmp", "a.o"), 0).misses("a.o.tmp");
    assert_eq!(command.outputs(), [("a.o".into(), Kind::File)]);
    assert_eq!(command.paths(), [""; 0]);
}

#[test]
fn outputs_in_a_renamed_folder_have_their_new_paths() {
    let command = ScriptedCommand::new(Policy::default()).begins();
    fs::create_dir(command.root.join("x")).unwrap();
    let command = command
        .does(
            What::Make {
                path: bytes("x"),
                is_folder: true,
            },
            0,
        )
        .writes("x/f");
    fs::rename(command.root.join("x"), command.root.join("y")).unwrap();
    let command = command.does(rename("x", "y"), 0);
    assert_eq!(
        command.outputs(),
        [("y".into(), Kind::Folder), ("y/f".into(), Kind::File)]
    );
}

#[test]
fn a_compiler_may_look_at_its_old_output_and_remove_it_but_not_read_it() {
    let command = ScriptedCommand::new(COMPILER)
        .with("a.o", "old")
        .declares(&["./a.o"])
        .begins();
    let command = command.does(
        What::Look {
            path: bytes("a.o"),
            follows: true,
        },
        0,
    );
    let command = command.does(remove("a.o"), 0).writes("a.o");
    assert_eq!(command.paths(), [""; 0]);
    assert_eq!(command.outputs(), [("a.o".into(), Kind::File)]);
    let command = ScriptedCommand::new(COMPILER)
        .with("a.o", "old")
        .declares(&["a.o"])
        .begins();
    let command = command.reads("a.o").writes("a.o");
    assert_eq!(command.obstacle(), "it reads a.o and makes it anew");
}

#[test]
fn an_unexpected_output_is_an_obstacle() {
    let command = ScriptedCommand::new(COMPILER)
        .declares(&["a.o"])
        .begins()
        .writes("a.o")
        .writes("a.su");
    assert_eq!(command.obstacle(), "it makes a.su, which was not foretold");
}

#[test]
fn modules_are_expected_by_their_folder_and_ending() {
    let mut command = ScriptedCommand::new(COMPILER)
        .with("m/x", "")
        .declares(&["a.o"])
        .begins();
    command.modules = Some(b"./m");
    let command = command.writes("a.o").writes("m/a.mod");
    assert_eq!(
        command.outputs(),
        [("a.o".into(), Kind::File), ("m/a.mod".into(), Kind::File)]
    );
    assert_eq!(
        command.writes("m/a.txt").obstacle(),
        "it makes m/a.txt, which was not foretold"
    );
}

#[test]
fn writing_into_removing_or_renaming_an_existing_file_is_an_obstacle() {
    let update = Mode {
        reads: true,
        writes: true,
        ..Mode::default()
    };
    let command = || ScriptedCommand::new(COMPILER).with("a.a", "x").begins();
    assert_eq!(
        command().opens("a.a", update, 0).obstacle(),
        "it writes into a.a, which was there before"
    );
    let append = Mode {
        writes: true,
        creates: true,
        ..Mode::default()
    };
    assert_eq!(
        command().opens("a.a", append, 0).obstacle(),
        "it writes into a.a, which was there before"
    );
    assert_eq!(
        command().does(remove("a.a"), 0).obstacle(),
        "it removes or renames a.a, which it did not make"
    );
    assert_eq!(
        command().does(rename("a.a", "b.a"), 0).obstacle(),
        "it removes or renames a.a, which it did not make"
    );
    let new = command().opens(
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
fn another_spelling_of_an_outputs_path_is_the_output() {
    let command = ScriptedCommand::new(Policy::default()).with("d/x", "");
    symlink("d", command.root.join("l")).unwrap();
    let command = command.begins().writes("d/a.s").reads("l/a.s").reads("d/../d/a.s");
    assert_eq!(command.paths(), [""; 0]);
    let name = command.root.join("d/a.s").display().to_string();
    let command = command.reads(&name);
    assert_eq!(command.paths(), [""; 0]);
}

#[test]
fn reading_through_a_link_that_the_command_made_is_an_obstacle() {
    let command = ScriptedCommand::new(Policy::default()).with("x", "secret").begins();
    symlink("x", command.root.join("l")).unwrap();
    let command = command
        .does(
            What::Make {
                path: bytes("l"),
                is_folder: false,
            },
            0,
        )
        .reads("l");
    assert_eq!(command.obstacle(), "it reads l through a link or folder that it made");
}

#[test]
fn an_output_with_two_names_is_an_obstacle() {
    let command = ScriptedCommand::new(COMPILER).begins().writes("a.o");
    fs::hard_link(command.root.join("a.o"), command.root.join("b.o")).unwrap();
    assert_eq!(command.obstacle(), "it makes a.o, which is no plain file of one name");
}

#[test]
fn a_listed_folder_must_not_change_and_must_not_get_outputs() {
    let list = || What::List { path: bytes("d") };
    let command = ScriptedCommand::new(COMPILER).with("d/x", "").begins().does(list(), 0);
    let entry = command.entry();
    command.put("d/x", "longer");
    assert_eq!(command.changes(&entry), [""; 0]);
    command.put("d/y", "");
    assert_eq!(command.changes(&entry), ["what is in d has changed"]);
    let command = ScriptedCommand::new(COMPILER)
        .with("d/x", "")
        .begins()
        .does(list(), 0)
        .writes("d/y");
    assert_eq!(command.obstacle(), "it lists d, where it makes files");
}

#[test]
fn unusual_error_numbers_and_paths_never_panic() {
    for error in [0, 1, 4095, 4096, 65535] {
        for path in ["", "/", "..", "a\0b", &"x/".repeat(5000)] {
            let command = ScriptedCommand::new(Policy::default())
                .begins()
                .opens(path, READS, error);
            let _ = command.understand();
            let command = command.opens(path, WRITES, error).does(rename(path, path), error);
            let _ = command.does(What::Link { path: bytes(path) }, error).understand();
        }
    }
}
