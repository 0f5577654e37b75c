//! Panics. Each panic is a mistake of ours, and ends the whole process. The exception is code that serves one of many
//! peers: there it ends only what that peer asked for.
//!
//! Otherwise a thread that panics would end alone, and others would wait for it for ever.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};

const _: () = assert!(
    cfg!(panic = "unwind"),
    "with panic=abort a single connection could end wafd serve; see docs/design.md"
);

thread_local! {
    static IS_CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// After this call, a panic that is not contained is logged, and ends the process by SIGABRT.
pub fn end_process_on_panic() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        print(info);
        if !IS_CONTAINED.get() {
            std::process::abort();
        }
    }));
}

/// The result of `act`; None if it panics. The caller must then drop what `act` was changing.
pub fn contain<T>(act: impl FnOnce() -> T) -> Option<T> {
    let was_contained = IS_CONTAINED.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(act));
    IS_CONTAINED.set(was_contained);
    done.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    const INNER: &str = "process::fault::tests::panics_in_a_process_of_its_own";

    /// The test below runs this in a process that it ends.
    #[test]
    #[ignore = "it ends its process"]
    fn panics_in_a_process_of_its_own() {
        end_process_on_panic();
        let contained = std::thread::spawn(|| contain(|| contain(|| panic!("contained"))).is_some());
        assert!(contained.join().unwrap());
        eprintln!("still here");
        let _ = std::thread::spawn(|| panic!("not contained")).join();
        eprintln!("never here");
    }

    #[test]
    fn a_panic_ends_the_process_unless_it_is_contained() {
        let done = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", INNER, "--ignored", "--nocapture"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.signal(), Some(libc::SIGABRT), "{text}");
        assert!(text.contains("still here") && !text.contains("never here"), "{text}");
    }
}
