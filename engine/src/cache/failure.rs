//! Commands that fail, and which of their failures count for the next time.
//!
//! ```text
//! a compile fails ─► its compiler names a line of a source for each error ─► stored, with all its facts
//! any other command fails ─► its entry, in doubt ─► idle ─► a second run fails alike ─► the entry counts
//! anything else ─► not stored
//! ```
//!
//! A failure may be an accident: a full disk, too little memory, a signal. It would be wrong to repeat it after the accident is
//! over. So the limits of the process count, and a failure stays on the machine where it was seen.

use std::sync::atomic::Ordering;

use memchr::memmem;

use super::lookup::entry::Entry;
use super::Cache;
use crate::observe::access::Bytes;

/// The exit status of a compiler that has found errors. Others are those of a crash.
const FOUND_ERRORS: i32 = 1;
const ERROR: &[u8] = b"error: ";
const FATAL: &[u8] = b"fatal ";
/// What compilers say of a header that is not there: of all fatal errors, the only one that is no accident. gcc names the last
/// line of a source when it cannot write its result.
const MISSING: [&[u8]; 2] = [b": No such file or directory", b"' file not found"];
/// What messages about accidents contain, besides errors without a line.
const ACCIDENTS: [&[u8]; 9] = [
    b"internal compiler error",
    b"out of memory",
    b"memory exhausted",
    b"annot allocate memory",
    b"No space left",
    b"File too large",
    b"Too many open files",
    b"Input/output error",
    b"Killed",
];

impl Cache {
    /// Sets whether failures count.
    pub fn cache_failures(&self, are_cached: bool) {
        self.caches_failures.store(are_cached, Ordering::Relaxed);
    }

    pub(super) fn are_failures_cached(&self) -> bool {
        self.caches_failures.load(Ordering::Relaxed)
    }

    /// Whether an entry may be a hit now.
    pub(super) fn counts(&self, entry: &Entry) -> bool {
        entry.exit == 0 || self.are_failures_cached()
    }
}

/// Whether a compile failed because of its sources, and for no other reason.
pub(super) fn is_of_sources(code: i32, messages: &[u8]) -> bool {
    let messages = without_colors(messages);
    let holds = |part: &&[u8]| memmem::find(&messages, part).is_some();
    let mut errors = messages.split(|byte| *byte == b'\n').filter(|line| is_error(line));
    let mut count = 0;
    code == FOUND_ERRORS
        && !ACCIDENTS.iter().any(holds)
        && errors.all(|line| {
            count += 1;
            names_line(line)
        })
        && count > 0
}

/// A line of a source that is shown may contain anything: `   12 | #error: no`.
fn is_error(line: &[u8]) -> bool {
    let rest = line.trim_ascii_start();
    let shown = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b' ');
    memmem::find(line, ERROR).is_some() && shown.map_or(true, |at| rest[at] != b'|')
}

/// Whether an error is at a line of a source: `a.c:12:3: error: …`, `a.c:12: error: …`.
fn names_line(line: &[u8]) -> bool {
    let Some(at) = memmem::find(line, ERROR) else {
        return false;
    };
    let (before, after) = (&line[..at], &line[at..]);
    let (before, is_fatal) = match before.strip_suffix(FATAL) {
        Some(before) => (before, true),
        None => (before, false),
    };
    let place = before.strip_suffix(b": ").and_then(without_number);
    let place = place.map(|place| without_number(place).unwrap_or(place));
    place.is_some_and(is_name) && (!is_fatal || MISSING.iter().any(|end| after.ends_with(end)))
}

/// `a.c` of `a.c:12`.
fn without_number(place: &[u8]) -> Option<&[u8]> {
    let digits = place.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let place = &place[..place.len() - digits];
    place.strip_suffix(b":").filter(|_| digits > 0)
}

/// The input of an assembler, a macro of the command line and the like are no files.
fn is_name(place: &[u8]) -> bool {
    !place.is_empty() && !place.starts_with(b"{") && !place.starts_with(b"<") && memmem::find(place, b": ").is_none()
}

/// A text as it is for something else than a terminal.
fn without_colors(text: &[u8]) -> Bytes {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memmem::find(rest, b"\x1b[") {
        plain.extend_from_slice(&rest[..at]);
        let end = rest[at + 2..].iter().position(u8::is_ascii_alphabetic);
        rest = end.map_or(&[][..], |end| &rest[at + 2 + end + 1..]);
    }
    plain.extend_from_slice(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(messages: &str) -> bool {
        is_of_sources(1, messages.as_bytes())
    }

    #[test]
    fn an_error_at_a_line_of_a_source_counts() {
        for messages in [
            "a.c: In function 'f':\na.c:3:9: error: 'x' undeclared\n    3 |  return x; // error: none\n      |         ^\n",
            "a.c:1:10: fatal error: b.h: No such file or directory\n    1 | #include <b.h>\ncompilation terminated.\n",
            "a.c:1:10: fatal error: 'b.h' file not found\n1 error generated.\n",
            "In file included from a.c:1:\nb.h:7: error: #error no\na.c:2:1: warning: unused\n",
            "a.c:2:1: error: unused [-Werror=unused]\ncc1: all warnings being treated as errors\n",
            "\x1b[01m\x1b[Ka.c:3:9:\x1b[m\x1b[K \x1b[01;31m\x1b[Kerror: \x1b[m\x1b[K'x' undeclared\n",
        ] {
            assert!(counts(messages), "{messages}");
        }
    }

    #[test]
    fn anything_that_may_be_an_accident_does_not_count() {
        for messages in [
            "",
            "a.c:3:9: warning: nothing is wrong\n",
            "a.c:300:1: fatal error: error writing to /tmp/x.s: No space left on device\n",
            "a.c:300:1: fatal error: closing dependency file a.d: File too large\n",
            "a.c:1:10: fatal error: b.h: Input/output error\n",
            "a.c:1:10: fatal error: b.h: Permission denied\n",
            "a.c:3:9: error: 'x' undeclared\ngcc: fatal error: Killed signal terminated program cc1\n",
            "a.c:3:9: internal compiler error: Segmentation fault\n",
            "a.c:3:9: error: 'x' undeclared\ncc1: out of memory allocating 65536 bytes\n",
            "cc1: error: too many filenames given\n",
            "gcc: error: a.c: No such file or directory\n",
            "{standard input}:12: error: no such instruction\n",
            "<command-line>:1:1: error: no macro\n",
            "<stdin>:1:1: error: no\n",
            "collect2: error: ld returned 1 exit status\n",
            "clang: error: unable to execute command: Killed\n",
            "a.c:3:9: error: 'x' undeclared\nclang: error: clang frontend command failed\n",
            "error: \n",
            ":3: error: x\n",
            "\x1b[",
        ] {
            assert!(!counts(messages), "{messages}");
        }
        assert!(!is_of_sources(4, b"a.c:3:9: error: 'x' undeclared\n"));
        assert!(!is_of_sources(-9, b"a.c:3:9: error: 'x' undeclared\n"));
    }
}
