//! Paths that the kernel resolves by the state of a process: an open file, its folder, its root.
//!
//! The other side of `follow_state` in `engine/park/record.c`, for a process other than our own.

use super::memory::link;
use crate::observe::access::Bytes;

/// A path through the state of a process.
#[derive(Debug, PartialEq, Eq)]
pub struct ByState {
    /// The entry of its `/proc` folder that is a link: `fd/3`, `cwd`, `root`.
    entry: String,
    rest: Bytes,
}

fn after_number(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let size = path.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (size > 0).then(|| path.split_at(size))
}

fn is_end(rest: &[u8]) -> bool {
    rest.first().map_or(true, |byte| *byte == b'/')
}

impl ByState {
    pub fn of(path: &[u8]) -> Option<ByState> {
        let by = |entry: &[u8], rest: &[u8]| {
            let entry = String::from_utf8(entry.to_vec()).ok()?;
            is_end(rest).then(|| ByState {
                entry,
                rest: rest.to_vec(),
            })
        };
        let by_file = |rest: &[u8]| {
            let (number, rest) = after_number(rest)?;
            by(&[b"fd/", number].concat(), rest)
        };
        if let Some(rest) = path.strip_prefix(b"/dev/fd/") {
            return by_file(rest);
        }
        for (name, entry) in [("/dev/stdin", "fd/0"), ("/dev/stdout", "fd/1"), ("/dev/stderr", "fd/2")] {
            if let Some(rest) = path.strip_prefix(name.as_bytes()) {
                return by(entry.as_bytes(), rest);
            }
        }
        let at = path.strip_prefix(b"/proc/")?;
        let own = at.strip_prefix(b"self/").or_else(|| at.strip_prefix(b"thread-self/"));
        let mut rest = own.or_else(|| after_number(at)?.1.strip_prefix(b"/"))?;
        let thread = rest.strip_prefix(b"task/").and_then(after_number);
        if let Some(of_thread) = thread.and_then(|(_, rest)| rest.strip_prefix(b"/")) {
            rest = of_thread;
        }
        if let Some(rest) = rest.strip_prefix(b"fd/") {
            return by_file(rest);
        }
        let of_folder = |name: &[u8]| by(name, rest.strip_prefix(name)?);
        of_folder(b"cwd").or_else(|| of_folder(b"root"))
    }

    /// Whether the path is the link itself.
    pub fn is_link(&self) -> bool {
        self.rest.is_empty()
    }

    /// The path to which it leads. None if there is no path, as for a pipe.
    pub fn follow(&self, process: i32) -> Option<Bytes> {
        Some([link(process, &self.entry)?, self.rest.clone()].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_an_open_file_a_folder_or_a_root() {
        for (path, told) in [
            ("/proc/self/fd/12", Some(("fd/12", ""))),
            ("/dev/fd/3/x", Some(("fd/3", "/x"))),
            ("/dev/stdin", Some(("fd/0", ""))),
            ("/proc/77/task/78/cwd/a", Some(("cwd", "/a"))),
            ("/proc/thread-self/root", Some(("root", ""))),
            ("/proc/self/fdx", None),
            ("/proc/self/cwdx", None),
            ("/proc/meminfo", None),
            ("/dev/stdinx", None),
            ("/usr/include", None),
        ] {
            let found = ByState::of(path.as_bytes());
            let found = found.map(|found| (found.entry, String::from_utf8(found.rest).unwrap()));
            assert_eq!(
                found,
                told.map(|(entry, rest)| (entry.to_owned(), rest.to_owned())),
                "{path}"
            );
        }
    }
}
