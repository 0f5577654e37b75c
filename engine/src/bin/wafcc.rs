//! `wafcc`: the command line in front of a compiler.
#![no_main]

use std::ffi::{c_char, c_int, CStr, OsString};
use std::os::unix::ffi::OsStringExt;

/// Not Rust's own `main`: that one would open streams that are closed, and ignore SIGPIPE; what we run inherits both.
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
    let args = (0..count.max(0) as usize).map(word).collect();
    wafengine::wafcc::main(args)
}
