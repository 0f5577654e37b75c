//! Which program begins when a file is executed: the other side of `engine/park/program.c`.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::cache::access::identity;

/// The kernel reads no more of a script's first line.
const LINE: u64 = 256;
/// An interpreter may be a script itself; the kernel gives up after so many.
const SCRIPTS: u32 = 5;

/// The identity of the program that the kernel starts for a file, which for a script is its interpreter. 0 if it cannot be told.
pub fn find(program: &Path) -> u64 {
    follow(program, SCRIPTS).unwrap_or(0)
}

fn follow(program: &Path, depth: u32) -> Option<u64> {
    // Anything else than a plain file is not executed, and a pipe would block.
    let status = std::fs::metadata(program).ok().filter(|status| status.is_file())?;
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(program)
        .ok()?;
    let mut head = Vec::new();
    file.take(LINE).read_to_end(&mut head).ok()?;
    if head.starts_with(b"\x7fELF") {
        return Some(identity(status.dev(), status.ino()));
    }
    let interpreter = interpreter(&head)?;
    follow(
        Path::new(std::ffi::OsStr::from_bytes(interpreter)),
        depth.checked_sub(1)?,
    )
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
