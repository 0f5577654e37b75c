//! Becoming another program.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::iter;
use std::os::unix::ffi::OsStrExt;

/// Only one system call, which returns only if it fails. `Command` would first change signals, and give up if that fails.
pub fn exec_program(program: &OsStr, name: &OsStr, args: &[OsString]) -> io::Error {
    let text = |word: &OsStr| CString::new(word.as_bytes()).unwrap_or_default();
    let program = text(program);
    let words: Vec<CString> = iter::once(name)
        .chain(args.iter().map(|arg| &**arg))
        .map(text)
        .collect();
    let mut argv: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    argv.push(std::ptr::null());
    // SAFETY: zero-terminated strings, and a list of them that ends with a null pointer.
    unsafe { libc::execvp(program.as_ptr(), argv.as_ptr()) };
    io::Error::last_os_error()
}
