//! `waf`: answers from a resident process's record, or starts the `waf` of Python.
#![no_main]

use std::ffi::{c_char, c_int, CStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use wafengine::launcher;

/// Not Rust's own `main`, which opens closed streams and ignores SIGPIPE. Python would inherit both.
///
/// # Safety
/// As the system calls it: `argv` has `count` strings.
#[no_mangle]
pub unsafe extern "C" fn main(count: c_int, argv: *const *const c_char) -> c_int {
    let word = |i| {
        // SAFETY: see above.
        let word = unsafe { CStr::from_ptr(*argv.add(i)) };
        OsString::from_vec(word.to_bytes().to_vec())
    };
    let args: Vec<OsString> = (0..count.max(0) as usize).map(word).collect();
    launcher::main(&args, Path::new(&launcher::own_path()))
}
