//! Which program begins when a file is executed: the other side of `engine/park/program.c`.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::cache::access::identity;

/// The kernel reads no more of a script's first line.
const LINE: u64 = 256;
/// An interpreter may be a script itself; the kernel gives up after so many.
const SCRIPTS: u32 = 5;
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const MACHINE: u16 = 0;

/// The identity of the program that the kernel starts for a file, which for a script is its interpreter. 0 if it cannot be told.
pub fn find(program: &Path) -> u64 {
    follow(program, SCRIPTS).unwrap_or(0)
}

/// The interpreters that the kernel starts for a file one after the other: none if it is no script.
pub fn interpreters(program: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let next = |path: &Path| {
        read_head(path)
            .filter(|(_, head)| !is_elf(head))
            .and_then(|(_, head)| interpreter_of(&head))
    };
    let mut at = next(program);
    while let Some(path) = at.filter(|_| found.len() < SCRIPTS as usize) {
        at = next(&path);
        found.push(path);
    }
    found
}

/// Whether the second witness can observe what the kernel starts for a file: a program of this kind of processor that has no
/// loader, into which nothing is loaded therefore. The other side of `wafpark_inspect`.
pub fn is_static(program: &Path) -> bool {
    let last = interpreters(program).pop().unwrap_or_else(|| program.to_path_buf());
    read_head(&last)
        .is_some_and(|(status, head)| status.mode() & 0o6000 == 0 && is_elf(&head) && !has_loader(&last, &head))
}

fn has_loader(program: &Path, head: &[u8]) -> bool {
    const PROGRAM_INTERPRETER: u32 = 3;
    let number = |at: usize| {
        head.get(at..at + 8)
            .map_or(0, |bytes| u64::from_ne_bytes(bytes.try_into().unwrap_or_default()))
    };
    let short = |at: usize| number(at) as u16;
    let is_ours = head.get(4) == Some(&2) && short(18) == MACHINE && short(54) == 56;
    if !is_ours {
        return true;
    }
    let (place, count) = (number(32), usize::from(short(56)));
    let mut parts = vec![0; count * 56];
    let read = File::open(program).and_then(|file| file.read_exact_at(&mut parts, place));
    let is_loader = |part: &[u8]| part.starts_with(&PROGRAM_INTERPRETER.to_ne_bytes());
    read.is_err() || parts.chunks(56).any(is_loader)
}

fn is_elf(head: &[u8]) -> bool {
    head.starts_with(b"\x7fELF")
}

fn follow(program: &Path, depth: u32) -> Option<u64> {
    let (status, head) = read_head(program)?;
    if is_elf(&head) {
        return Some(identity(status.dev(), status.ino()));
    }
    follow(&interpreter_of(&head)?, depth.checked_sub(1)?)
}

fn interpreter_of(head: &[u8]) -> Option<PathBuf> {
    interpreter(head).map(|path| Path::new(std::ffi::OsStr::from_bytes(path)).to_path_buf())
}

fn read_head(program: &Path) -> Option<(Metadata, Vec<u8>)> {
    // Anything else than a plain file is not executed, and a pipe would block.
    let status = std::fs::metadata(program).ok().filter(|status| status.is_file())?;
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(program)
        .ok()?;
    let mut head = Vec::new();
    file.take(LINE).read_to_end(&mut head).ok()?;
    Some((status, head))
}

fn interpreter(head: &[u8]) -> Option<&[u8]> {
    // Text without such a line is what a shell executes.
    let Some(line) = head.strip_prefix(b"#!") else {
        return Some(b"/bin/sh");
    };
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let line = &line[line.iter().position(|byte| !is_blank(byte))?..];
    let end = line
        .iter()
        .position(|byte| is_blank(byte) || *byte == b'\n' || *byte == 0)?;
    Some(&line[..end]).filter(|path| path.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreter_stands_in_the_first_line() {
        for (head, path) in [
            (&b"#!/bin/sh\n"[..], Some(&b"/bin/sh"[..])),
            (b"#! \t/usr/bin/env python3\n", Some(b"/usr/bin/env")),
            (b"echo\n", Some(b"/bin/sh")),
            (b"#!sh\n", None),
            (b"#!/bin/sh", None),
            (b"#!", None),
        ] {
            assert_eq!(interpreter(head), path, "{head:?}");
        }
    }

    #[test]
    fn a_script_is_begun_by_its_interpreter() {
        let script = std::env::temp_dir().join(format!("trace-program-{}", std::process::id()));
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        let shell = std::fs::metadata("/bin/sh").unwrap();
        assert_eq!(find(&script), identity(shell.dev(), shell.ino()));
        std::fs::remove_file(&script).unwrap();
        assert_eq!(find(&script), 0);
    }
}
