//! Looks for names in a file of any size.

use std::io::{self, ErrorKind, Read};

use memchr::memmem;

/// How much is in memory at once, apart from the part that two reads have in common.
const STEP: usize = 1 << 20;

/// Whether what is left to read contains one of these names. An empty name is in no file.
pub fn holds_any<N: AsRef<[u8]>>(mut file: impl Read, names: &[N]) -> io::Result<bool> {
    let names = names.iter().map(AsRef::as_ref).filter(|name| !name.is_empty());
    let finders: Vec<_> = names.map(memmem::Finder::new).collect();
    // A name may begin in one read and end in the next.
    let Some(kept) = finders.iter().map(|finder| finder.needle().len() - 1).max() else {
        return Ok(false);
    };
    let mut bytes = vec![0; kept + STEP];
    let mut filled = 0;
    loop {
        let read = match file.read(&mut bytes[filled..]) {
            Ok(0) => return Ok(false),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        filled += read;
        if finders.iter().any(|finder| finder.find(&bytes[..filled]).is_some()) {
            return Ok(true);
        }
        let rest = filled.saturating_sub(kept);
        bytes.copy_within(rest..filled, 0);
        filled -= rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a few bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let end = self.1.min(into.len());
            self.0.read(&mut into[..end])
        }
    }

    #[test]
    fn a_name_is_found_wherever_reads_end() {
        let text = [&vec![b'.'; 3 * STEP][..], b"/work/one", &[b'.'; 10]].concat();
        for step in [STEP - 4, STEP, 3 * STEP + 5, usize::MAX] {
            let found = |names: &[&[u8]]| holds_any(Slow(&text, step), names).unwrap();
            assert!(found(&[b"/work/one"]), "{step}");
            assert!(found(&[b"/x", b"/work"]), "{step}");
            assert!(!found(&[b"/work/two", b""]), "{step}");
            assert!(!found(&[]), "{step}");
        }
        for step in 1..12 {
            assert!(holds_any(Slow(b"....../a/b...", step), &[&b"/a/b"[..], b"/a/bcdefghi"]).unwrap());
        }
    }
}
