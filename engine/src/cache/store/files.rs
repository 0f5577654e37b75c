//! The files that hold blobs: each has a number that is used once, ever, so that no removal meets a file that is new.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{mkdirat, openat, unlinkat, AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

/// Above: a random number of the process that made it; below: a count; the last bit: whether it is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Number(pub u64);

impl Number {
    pub fn is_packed(self) -> bool {
        self.0 & 1 == 1
    }

    fn session(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn folder(self) -> String {
        format!("{:02x}", (self.0 >> 1) as u8)
    }

    fn path(self) -> String {
        format!("{}/{:016x}", self.folder(), self.0)
    }

    fn of_name(name: &[u8]) -> Option<Number> {
        let name = std::str::from_utf8(name).ok().filter(|name| name.len() == 16)?;
        u64::from_str_radix(name, 16).ok().map(Number)
    }
}

pub struct Files {
    folder: OwnedFd,
    session: u32,
    count: AtomicU32,
}

/// A file that was written to its end.
pub struct Written {
    pub number: Number,
    pub file: File,
    pub blocks: u32,
}

impl Files {
    pub fn open(folder: &Path) -> io::Result<Files> {
        fs::create_dir_all(folder)?;
        let folder = rustix::fs::open(
            folder,
            OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let session = getrandom::u32().map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Files {
            folder,
            session,
            count: AtomicU32::new(0),
        })
    }

    /// A new file that `fill` has filled. If that fails, it is gone again.
    pub fn write(&self, packed: bool, fill: impl FnOnce(&File) -> io::Result<()>) -> io::Result<Written> {
        let (number, file) = self.create(packed)?;
        let written = fill(&file).and_then(|()| blocks(&file));
        match written {
            Ok(blocks) => Ok(Written { number, file, blocks }),
            Err(error) => {
                self.remove(number);
                Err(error)
            }
        }
    }

    fn create(&self, packed: bool) -> io::Result<(Number, File)> {
        loop {
            let count = self.count.fetch_add(2, Ordering::Relaxed);
            let number = Number(u64::from(self.session) << 32 | u64::from(count) | u64::from(packed));
            match self.create_at(number) {
                Err(error) if error == Errno::EXIST => continue,
                file => return Ok((number, file?)),
            }
        }
    }

    fn create_at(&self, number: Number) -> rustix::io::Result<File> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let create = || openat(&self.folder, number.path(), flags, Mode::from_raw_mode(0o600)).map(File::from);
        match create() {
            Err(Errno::NOENT) => match mkdirat(&self.folder, number.folder(), Mode::from_raw_mode(0o700)) {
                Ok(()) | Err(Errno::EXIST) => create(),
                Err(error) => Err(error),
            },
            made => made,
        }
    }

    pub fn read(&self, number: Number) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(openat(&self.folder, number.path(), flags, Mode::empty())?.into())
    }

    /// One that is left behind is found by the next process.
    pub fn remove(&self, number: Number) {
        let _ = unlinkat(&self.folder, number.path(), AtFlags::empty());
    }

    /// Removes what other processes left that is not `known`: what they wrote only half, or dropped.
    pub fn sweep(&self, known: &HashSet<Number>, stop: impl Fn() -> bool) {
        for folder in 0..=u8::MAX {
            if stop() {
                return;
            }
            let left = self.list(folder).unwrap_or_default();
            let strange = |number: &&Number| number.session() != self.session && !known.contains(number);
            left.iter().filter(strange).for_each(|number| self.remove(*number));
        }
    }

    fn list(&self, folder: u8) -> io::Result<Vec<Number>> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let folder = openat(&self.folder, format!("{folder:02x}"), flags, Mode::empty())?;
        let names = Dir::new(folder)?.filter_map(Result::ok);
        Ok(names
            .filter_map(|name| Number::of_name(name.file_name().to_bytes()))
            .collect())
    }
}

/// What the disk holds for it, in units of 512 bytes.
fn blocks(file: &File) -> io::Result<u32> {
    let status = file.metadata()?;
    // Some file systems allocate only when they write to the disk.
    let blocks = status.blocks().max(status.len().div_ceil(512));
    Ok(u32::try_from(blocks).unwrap_or(u32::MAX))
}

/// Fills with these bytes.
pub fn holding(bytes: &[u8]) -> impl FnOnce(&File) -> io::Result<()> + '_ {
    move |mut file| file.write_all(bytes)
}
