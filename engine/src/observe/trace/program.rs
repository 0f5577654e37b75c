//! Which program begins when a file is executed: the other side of `engine/park/program.c`.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::bytes::elf;
use crate::observe::access::identity;

/// The kernel reads no more of a script's first line.
const LINE: u64 = 256;
/// An interpreter may be a script itself. The kernel gives up after this many.
const SCRIPTS: u32 = 5;

/// The identity of the program that the kernel starts for a file; for a script, this is its interpreter. 0 if it cannot be
/// found out.
pub fn find(program: &Path) -> u64 {
    follow(program, SCRIPTS).unwrap_or(0)
}

/// The interpreters that the kernel starts for a file, one after the other. None if the file is no script.
pub fn interpreters(program: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let next = |path: &Path| {
        read_head(path)
            .filter(|(_, head)| !elf::is_elf(head))
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
/// loader. The other side of `wafpark_inspect`.
pub fn is_static(program: &Path) -> bool {
    let last = interpreters(program).pop().unwrap_or_else(|| program.to_path_buf());
    let Some((_, head)) = read_head(&last) else {
        return false;
    };
    let kind = File::open(&last).and_then(|file| elf::kind(&file, &head));
    kind.is_ok_and(|kind| kind == elf::Kind::Static) && !gives_rights(&last)
}

/// Whether a program runs as another user or group, or with capabilities of its own. The kernel gives these only to programs that
/// are not traced.
pub fn gives_rights(program: &Path) -> bool {
    // Larger than the attribute that the kernel stores there.
    let mut value = [0u8; 64];
    std::fs::metadata(program).is_ok_and(|status| status.mode() & 0o6000 != 0)
        || rustix::fs::getxattr(program, c"security.capability", &mut value).is_ok()
}

fn follow(program: &Path, depth: u32) -> Option<u64> {
    let (status, head) = read_head(program)?;
    if elf::is_elf(&head) {
        return Some(identity(status.dev(), status.ino()));
    }
    follow(&interpreter_of(&head)?, depth.checked_sub(1)?)
}

fn interpreter_of(head: &[u8]) -> Option<PathBuf> {
    interpreter(head).map(|path| Path::new(std::ffi::OsStr::from_bytes(path)).to_path_buf())
}

fn read_head(program: &Path) -> Option<(Metadata, Vec<u8>)> {
    // Only plain files can be executed, and opening a pipe would block.
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
    // A shell executes text without such a line.
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
