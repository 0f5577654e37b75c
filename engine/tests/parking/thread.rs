//! The place where a libc keeps the number of its thread is found in any layout.

use std::process::Command;

use crate::support::sandbox::Sandbox;

const BLOCKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/probes/thread.c");

/// Blocks of libcs that are not to be had here: the words are found that such a libc sets when it forks, and no others.
#[test]
fn the_words_are_those_that_a_fork_of_libc_sets() {
    let sandbox = Sandbox::without_parking();
    let path = sandbox.path("blocks");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Wextra", "-Werror", BLOCKS, "-o"]).arg(&path);
    assert!(cc.status().unwrap().success(), "cc {BLOCKS}");
    let told = Command::new(&path).output().unwrap();
    let wanted = "\
glibc 2.36: 180
at the beginning: 0
at the end: 1023
the number of the process beside it: 12 180
another word has the same value: 180
moved: 700
not kept:
kept, and not set:
it could not fork: 180
too many: 0
registered: 180
one of two:
the only one: 700
readable: 2 to 4
proved by nothing: 0
";
    assert_eq!(String::from_utf8_lossy(&told.stdout), wanted);
}
