//! Asks the kernel to run a thread soon after it wakes.
//!
//! Beside compilers, a thread that wakes would wait some milliseconds for the end of a compiler's slice, although it needs
//! only microseconds, and another processor may have nothing to do. From Linux 6.12 on, a thread that asks for short slices
//! runs sooner, and gets no more than its share. Older kernels ignore the request.

use log::debug;

const SLICE: u64 = 100_000; // nanoseconds, the shortest there is
/// Forked processes get slices of the usual length, and would lose a raised priority.
const RESET_ON_FORK: u64 = 1;

/// The first version of the kernel's `struct sched_attr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// For the thread with this number; 0 is the caller. A thread whose priority was raised stays as it is.
pub fn make_prompt(thread: i32) {
    let mut attributes = Attributes::default();
    let size = size_of::<Attributes>() as u32;
    let place = std::ptr::from_mut(&mut attributes);
    // SAFETY: the kernel writes no more than the size that it is told.
    let known = unsafe { libc::syscall(libc::SYS_sched_getattr, thread, place, size, 0) } == 0;
    if !known || attributes.policy != libc::SCHED_OTHER as u32 || attributes.nice < 0 {
        return;
    }
    attributes.size = size;
    attributes.flags |= RESET_ON_FORK;
    attributes.runtime = SLICE;
    // SAFETY: the kernel reads no more than the size that it is told, and changes that thread alone.
    if unsafe { libc::syscall(libc::SYS_sched_setattr, thread, std::ptr::from_ref(&attributes), 0) } != 0 {
        debug!("thread {thread} gets usual slices: {}", std::io::Error::last_os_error());
    }
}
