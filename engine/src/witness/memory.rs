//! Reads the memory of a traced process, and its entries in `/proc`.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::observe::access::{identity, Bytes};

/// The kernel takes no longer paths.
pub const LONGEST: usize = 4096;
const PAGE: usize = 4096;

fn part(start: *mut u8, size: usize) -> libc::iovec {
    libc::iovec {
        iov_base: start.cast(),
        iov_len: size,
    }
}

/// As many bytes as can be read, at most `size`.
pub fn read(process: i32, address: u64, size: usize) -> Bytes {
    let mut bytes = vec![0; size];
    let (local, remote) = (part(bytes.as_mut_ptr(), size), part(address as *mut u8, size));
    // SAFETY: our own part is a buffer of that size; the other part is the kernel's to check.
    let count = unsafe { libc::process_vm_readv(process, &local, 1, &remote, 1, 0) };
    bytes.truncate(usize::try_from(count).unwrap_or(0));
    bytes
}

/// A text up to its zero byte. None if it is longer than a path may be, or cannot be read.
pub fn text(process: i32, address: u64) -> Option<Bytes> {
    let mut text = Bytes::new();
    while address != 0 && text.len() < LONGEST {
        let at = address + text.len() as u64;
        // Reads only to the page's end: the next page may not be there.
        let left = PAGE - at as usize % PAGE;
        let part = read(process, at, left.min(512));
        if let Some(end) = part.iter().position(|byte| *byte == 0) {
            text.extend_from_slice(&part[..end]);
            return Some(text);
        }
        if part.is_empty() {
            return None;
        }
        text.extend_from_slice(&part);
    }
    None
}

pub fn number(process: i32, address: u64) -> Option<u64> {
    let bytes = read(process, address, 8);
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

/// The kernel tells a new program the address of its own object, with which the program can read the clock without a call.
/// The program must not find it. Then it makes system calls, which are seen. `stack` is the stack as the kernel has laid it
/// out for the program.
pub fn hide_clock(process: i32, stack: u64) -> Option<()> {
    let mut at = stack + 8 * (number(process, stack)? + 2);
    while number(process, at)? != 0 {
        at += 8;
    }
    loop {
        at += 8;
        match number(process, at)? {
            libc::AT_NULL => return Some(()),
            libc::AT_SYSINFO_EHDR => break,
            _ => at += 8,
        }
    }
    write(process, at, &libc::AT_IGNORE.to_ne_bytes())
}

/// All of the bytes, or nothing is known of what is there.
pub fn write(process: i32, address: u64, bytes: &[u8]) -> Option<()> {
    let size = bytes.len();
    let (local, remote) = (part(bytes.as_ptr().cast_mut(), size), part(address as *mut u8, size));
    // SAFETY: as above; the kernel only reads our part.
    let count = unsafe { libc::process_vm_writev(process, &local, 1, &remote, 1, 0) };
    (count == size as isize).then_some(())
}

/// The names in a part of a folder, as `getdents64` gives them: behind 16 bytes, their record's size and a kind.
pub fn names(mut entries: &[u8]) -> impl Iterator<Item = &[u8]> {
    const SIZE: usize = 16;
    const NAME: usize = 19;
    std::iter::from_fn(move || {
        let size = usize::from(u16::from_ne_bytes(entries.get(SIZE..SIZE + 2)?.try_into().ok()?));
        let (entry, rest) = (entries.get(NAME..size)?, entries.get(size..)?);
        entries = rest;
        entry.split(|byte| *byte == 0).next()
    })
}

/// The path of an entry of a process in `/proc`.
pub fn entry(process: i32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{process}/{name}"))
}

/// Where a link of a process leads: its folder, its program, or an open file.
pub fn link(process: i32, name: &str) -> Option<Bytes> {
    let target = fs::read_link(entry(process, name)).ok()?;
    Some(target.as_os_str().as_bytes().to_vec()).filter(|path| path.starts_with(b"/"))
}

/// The identity of the file at one of our paths; 0 if it cannot be found out.
pub fn identity_of(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |status| identity(status.dev(), status.ino()))
}

/// A line of a process's status.
pub fn status(process: i32, name: &str) -> Option<i32> {
    let text = fs::read_to_string(entry(process, "status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim_start_matches(':').trim().parse().ok()
}
