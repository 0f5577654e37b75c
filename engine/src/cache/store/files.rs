//! Blobs with a file of their own: large ones, and those that will be linked.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{mkdirat, openat, statat, unlinkat, AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use super::number::Number;

use crate::files::regular;

pub struct Files {
    folder: OwnedFd,
}

/// A file that was written completely.
pub struct Written {
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
        Ok(Files { folder })
    }

    pub fn folder(&self) -> &OwnedFd {
        &self.folder
    }

    /// A new file with the content that `fill` writes. If that fails, the file is removed.
    pub fn write(&self, number: Number, fill: impl FnOnce(&File) -> io::Result<()>) -> io::Result<Written> {
        let file = self.create(number)?;
        let written = fill(&file).and_then(|()| blocks(&file));
        match written {
            Ok(blocks) => Ok(Written { file, blocks }),
            Err(error) => {
                self.remove(number);
                Err(error)
            }
        }
    }

    fn create(&self, number: Number) -> rustix::io::Result<File> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let create = || openat(&self.folder, path(number), flags, Mode::from_raw_mode(0o600)).map(File::from);
        match create() {
            Err(Errno::NOENT) => match mkdirat(&self.folder, folder(number), Mode::from_raw_mode(0o700)) {
                Ok(()) | Err(Errno::EXIST) => create(),
                Err(error) => Err(error),
            },
            made => made,
        }
    }

    pub fn read(&self, number: Number) -> io::Result<File> {
        regular::open_at(&self.folder, &path(number))
    }

    /// True also if this cannot be found out.
    pub fn has(&self, number: Number) -> bool {
        let found = statat(&self.folder, path(number), AtFlags::SYMLINK_NOFOLLOW);
        !matches!(found, Err(Errno::NOENT))
    }

    /// A file that is left behind is found by the next process.
    pub fn remove(&self, number: Number) {
        let _ = unlinkat(&self.folder, path(number), AtFlags::empty());
    }

    /// Removes `leftover` files: those that dead processes wrote only in part, or had dropped.
    pub fn sweep(&self, leftover: impl Fn(&Number) -> bool, stop: impl Fn() -> bool) {
        for folder in (0..=u8::MAX).take_while(|_| !stop()) {
            let mut left = self.list(folder).unwrap_or_default();
            left.retain(&leftover);
            left.iter().for_each(|number| self.remove(*number));
        }
    }

    fn list(&self, folder: u8) -> io::Result<Vec<Number>> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let folder = openat(&self.folder, format!("{folder:02x}"), flags, Mode::empty())?;
        numbers_in(folder)
    }
}

fn folder(number: Number) -> String {
    format!("{:02x}", (number.0 >> 1) as u8)
}

fn path(number: Number) -> String {
    format!("{}/{number}", folder(number))
}

/// The numbers that are names of files in a folder.
pub fn numbers_in(folder: OwnedFd) -> io::Result<Vec<Number>> {
    let names = Dir::new(folder)?.filter_map(Result::ok);
    Ok(names
        .filter_map(|name| Number::of_name(name.file_name().to_bytes()))
        .collect())
}

/// The disk space of a file, in units of 512 bytes.
fn blocks(file: &File) -> io::Result<u32> {
    let status = file.metadata()?;
    // Some file systems allocate space only when they write to the disk.
    let blocks = status.blocks().max(status.len().div_ceil(512));
    Ok(u32::try_from(blocks).unwrap_or(u32::MAX))
}

/// Writes these bytes.
pub fn holding(bytes: &[u8]) -> impl FnOnce(&File) -> io::Result<()> + '_ {
    move |mut file| file.write_all(bytes)
}
