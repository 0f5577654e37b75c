//! `wafcc`: the command line in front of a compiler.
#![no_main]

use std::ffi::{c_char, c_int, CStr, OsString};
use std::os::unix::ffi::OsStringExt;

/// Not Rust's own `main`, which opens closed streams and ignores SIGPIPE. The command would inherit both.
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
    wafengine::wafcc::main(args, front::asked())
}

/// The connection that `front/front.c` has opened, if it is linked.
#[cfg(wafcc_front)]
mod front {
    use std::os::fd::FromRawFd;
    use std::os::unix::net::UnixStream;

    use wafengine::client::Client;

    #[repr(C)]
    struct Front {
        socket: i32,
        size: u32,
        bytes: *const u8,
    }

    extern "C" {
        static wafcc_front: Front;
    }

    /// A connection over which the command was sent already.
    pub fn asked() -> Option<Client> {
        // SAFETY: written before libc began, and not changed since. No other code owns the descriptor and the bytes.
        unsafe {
            let front = &wafcc_front;
            if front.socket < 0 {
                return None;
            }
            let bytes = match front.size {
                0 => &[],
                size => std::slice::from_raw_parts(front.bytes, size as usize),
            };
            Some(Client::resume(UnixStream::from_raw_fd(front.socket), bytes))
        }
    }
}

#[cfg(not(wafcc_front))]
mod front {
    use wafengine::client::Client;

    pub fn asked() -> Option<Client> {
        None
    }
}
