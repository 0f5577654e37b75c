//! Reads from a program's file whether it is an ELF file for this kind of processor, and whether a loader starts it.
//!
//! The other side of `engine/park/program.c`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The numbers that ELF files use for processors.
#[cfg(target_arch = "x86_64")]
pub const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
pub const MACHINE: u16 = 183;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub const MACHINE: u16 = 0;

/// How many bytes at its beginning are needed to classify a file.
pub const HEAD: usize = 64;
/// The marks of a 64-bit file, little-endian.
const MAGIC: &[u8] = b"\x7fELF\x02\x01";
const INTERPRETER: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A loader starts it, and loads libraries into it, ours included.
    Loaded,
    /// A static program: nothing is loaded into it.
    Static,
    /// It is for another kind of processor, or damaged.
    Foreign,
}

pub fn is_elf(head: &[u8]) -> bool {
    head.starts_with(b"\x7fELF")
}

/// Whether it is a file for this kind of processor.
pub fn is_native(head: &[u8]) -> bool {
    head.starts_with(MAGIC) && short(head, 18) == Some(MACHINE)
}

/// Reads the table of segments, one of which may name a loader.
pub fn kind(file: &File, head: &[u8]) -> io::Result<Kind> {
    let (Some(start), Some(size), Some(count)) = (long(head, 32), short(head, 54), short(head, 56)) else {
        return Ok(Kind::Foreign);
    };
    if !is_native(head) || usize::from(size) < size_of::<u32>() {
        return Ok(Kind::Foreign);
    }
    let mut segments = vec![0; usize::from(size) * usize::from(count)];
    file.read_exact_at(&mut segments, start)?;
    let names_loader = |segment: &[u8]| segment.starts_with(&INTERPRETER.to_le_bytes());
    let is_loaded = segments.chunks(size.into()).any(names_loader);
    Ok(if is_loaded { Kind::Loaded } else { Kind::Static })
}

pub fn short(bytes: &[u8], at: usize) -> Option<u16> {
    number(bytes, at).map(u16::from_le_bytes)
}

pub fn word(bytes: &[u8], at: usize) -> Option<u32> {
    number(bytes, at).map(u32::from_le_bytes)
}

pub fn long(bytes: &[u8], at: usize) -> Option<u64> {
    number(bytes, at).map(u64::from_le_bytes)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(bytes: &[u8]) -> Option<Kind> {
        let path = std::env::temp_dir().join(format!("elf-{}-{}", std::process::id(), bytes.len()));
        std::fs::write(&path, bytes).unwrap();
        let found = kind(&File::open(&path).unwrap(), &bytes[..bytes.len().min(HEAD)]);
        std::fs::remove_file(&path).unwrap();
        found.ok()
    }

    #[test]
    fn a_program_names_its_loader_or_has_none() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(kind_of(&bytes), Some(Kind::Loaded));
        let mut without = bytes.clone();
        let start = long(&bytes, 32).unwrap() as usize;
        for at in
            (0..usize::from(short(&bytes, 56).unwrap())).map(|n| start + n * usize::from(short(&bytes, 54).unwrap()))
        {
            if word(&bytes, at) == Some(INTERPRETER) {
                without[at] = 0;
            }
        }
        assert_eq!(kind_of(&without), Some(Kind::Static));
    }

    #[test]
    fn damaged_files_and_other_processors_are_foreign() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for at in [0, 4, 5, 18] {
            let mut damaged = bytes[..4096].to_vec();
            damaged[at] ^= 0xff;
            assert_eq!(kind_of(&damaged), Some(Kind::Foreign), "{at}");
        }
        assert_eq!(kind_of(&bytes[..40]), Some(Kind::Foreign));
        assert_eq!(kind_of(b""), Some(Kind::Foreign));
        let mut beyond = bytes[..4096].to_vec();
        beyond[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(kind_of(&beyond), None);
    }
}
