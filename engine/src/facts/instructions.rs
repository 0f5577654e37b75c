//! Finds the abilities that a program or library has by its own instructions, without the C library: system calls, random
//! numbers, the clock, the kind of processor.
//!
//! Pure. Instructions are decoded one after the other. A search for their bytes would also find constants and addresses.
//! Bytes that are no instruction are skipped one by one.

use crate::bytes::elf;

/// The abilities found in a whole file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Findings {
    /// System calls that may tell the program something.
    pub calls: bool,
    pub random: bool,
    pub clock: bool,
    pub processor: bool,
}

/// Libraries whose calls are intercepted by our library, and the loader.
const WATCHED: [&str; 12] = [
    "libc.so",
    "ld-linux",
    "ld-musl",
    "ld64.so",
    "libc.musl",
    "libpthread.so",
    "librt.so",
    "libdl.so",
    "libm.so",
    "libresolv.so",
    "libutil.so",
    "libwafpark.so",
];
/// Its random numbers are used through `std::random_device`, which our library intercepts, too.
const STANDARD_LIBRARY: &str = "libstdc++.so";

/// The first one has tables in its code that look like calls. The other one waits and wakes.
const QUIET: [&str; 2] = ["libcrypto.so", "libgomp.so"];

/// The abilities of an ELF file's machine code. None if the file is not for this machine.
pub fn find(bytes: &[u8]) -> Findings {
    let Some(file) = Elf::of(bytes) else {
        return Findings::default();
    };
    let name = file.soname().unwrap_or_default();
    if WATCHED.iter().any(|watched| name.starts_with(watched)) {
        return Findings::default();
    }
    let mut findings = Findings::default();
    for part in file.code() {
        machine::sweep(part, &mut findings);
    }
    findings.calls &= !QUIET.iter().any(|quiet| name.starts_with(quiet));
    findings.random &= !name.starts_with(STANDARD_LIBRARY);
    findings
}

/// A little-endian 64-bit file.
struct Elf<'a> {
    bytes: &'a [u8],
}

const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const EXECUTABLE: u64 = 1;
const SECTION_EXECUTABLE: u64 = 4;
const SECTION_PROGRAM: u32 = 1;
const STRINGS: u64 = 5;
const OWN_NAME: u64 = 14;

impl<'a> Elf<'a> {
    fn of(bytes: &'a [u8]) -> Option<Elf<'a>> {
        elf::is_native(bytes).then_some(Elf { bytes })
    }

    fn short(&self, at: usize) -> Option<u16> {
        elf::short(self.bytes, at)
    }

    fn word(&self, at: usize) -> Option<u32> {
        elf::word(self.bytes, at)
    }

    fn long(&self, at: usize) -> Option<u64> {
        elf::long(self.bytes, at)
    }

    fn part(&self, at: u64, size: u64) -> Option<&'a [u8]> {
        let (at, size) = (usize::try_from(at).ok()?, usize::try_from(size).ok()?);
        let end = at.checked_add(size)?.min(self.bytes.len());
        self.bytes.get(at..end)
    }

    /// The entries of a table: its place, the size of each, and how many there are.
    fn table(&self, place: usize, size: usize) -> Vec<usize> {
        let read = || Some((self.long(place)?, self.short(size)?, self.short(size + 2)?));
        let Some((start, size, count)) = read() else {
            return Vec::new();
        };
        let entries = (0..u64::from(count)).map(|n| start.saturating_add(n * u64::from(size)) as usize);
        entries.collect()
    }

    fn segments(&self) -> Vec<usize> {
        self.table(32, 54)
    }

    /// Its executable sections or, if it has no list of them, its executable segments.
    fn code(&self) -> Vec<&'a [u8]> {
        let section = |at: usize| {
            let is_code = self.word(at + 4)? == SECTION_PROGRAM && self.long(at + 8)? & SECTION_EXECUTABLE != 0;
            is_code.then(|| self.part(self.long(at + 24)?, self.long(at + 32)?))?
        };
        let sections: Vec<_> = self.table(40, 58).into_iter().filter_map(section).collect();
        if !sections.is_empty() {
            return sections;
        }
        let segment = |at: usize| {
            let is_code = self.word(at)? == LOAD && u64::from(self.word(at + 4)?) & EXECUTABLE != 0;
            is_code.then(|| self.part(self.long(at + 8)?, self.long(at + 32)?))?
        };
        self.segments().into_iter().filter_map(segment).collect()
    }

    /// The place of an address in the file.
    fn place(&self, address: u64) -> Option<u64> {
        self.segments().into_iter().find_map(|at| {
            let (start, size) = (self.long(at + 16)?, self.long(at + 32)?);
            let is_in = self.word(at)? == LOAD && address >= start && address - start < size;
            is_in.then(|| Some(self.long(at + 8)? + (address - start)))?
        })
    }

    /// The name by which programs refer to it, if it is a library.
    fn soname(&self) -> Option<&'a str> {
        let segments = self.segments();
        let at = segments.into_iter().find(|at| self.word(*at) == Some(DYNAMIC))?;
        let table = self.part(self.long(at + 8)?, self.long(at + 32)?)?;
        let value = |wanted: u64| {
            let mut entries = table.chunks_exact(16);
            let found = entries.find(|entry| elf::long(entry, 0) == Some(wanted))?;
            elf::long(found, 8)
        };
        let text = self.place(value(STRINGS)?)?.checked_add(value(OWN_NAME)?)?;
        let text = self.bytes.get(usize::try_from(text).ok()?..)?;
        std::str::from_utf8(text.split(|byte| *byte == 0).next()?).ok()
    }
}

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as machine;
#[cfg(target_arch = "x86_64")]
use x86_64 as machine;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod machine {
    use super::Findings;

    pub fn sweep(_: &[u8], _: &mut Findings) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_files_are_read_without_harm() {
        let mut bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        bytes.truncate(1 << 16);
        for at in 0..64 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xff;
            find(&damaged);
            find(&bytes[..at]);
        }
    }
}
