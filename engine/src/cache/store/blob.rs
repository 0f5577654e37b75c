//! A blob's content, and how it is read from the disk. Nothing of it is used before its digest is checked.

use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{linkat, AtFlags, CWD};

use super::files::Files;
use super::location::Location;
use super::number::Number;
use super::pack;
use super::table::Slot;
use super::volumes::Volumes;
use crate::bytes::digest::Digest;

/// A blob's content, whose digest was checked.
#[derive(Debug)]
pub enum Blob {
    Bytes(Vec<u8>),
    /// Its file is plain, so it can be cloned instead of written.
    Plain {
        file: File,
        bytes: Vec<u8>,
    },
    /// Too large for memory.
    Large {
        file: File,
        length: u64,
    },
}

impl Blob {
    pub fn length(&self) -> u64 {
        match self {
            Blob::Bytes(bytes) | Blob::Plain { bytes, .. } => bytes.len() as u64,
            Blob::Large { length, .. } => *length,
        }
    }

    /// Copies it into an empty file: by cloning if the file system can, otherwise by writing.
    pub fn write_to(&self, mut target: &File) -> io::Result<()> {
        match self {
            Blob::Plain { file, .. } | Blob::Large { file, .. } if clone(file, target) => Ok(()),
            Blob::Bytes(bytes) | Blob::Plain { bytes, .. } => io::Write::write_all(&mut target, bytes),
            Blob::Large { file, .. } => io::copy(&mut &*file, &mut target).map(drop),
        }
    }

    /// Gives its own file one more name, with this mode and the present time. Fails if it has no file of its own, if other
    /// users of the file need another mode, and on another file system.
    pub fn link_to(&self, path: &Path, mode: u32) -> io::Result<()> {
        let (Blob::Plain { file, .. } | Blob::Large { file, .. }) = self else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let found = file.metadata()?;
        if found.mode() & 0o7777 != mode && found.nlink() != 1 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // Through the open file, because this is the one whose digest was checked.
        let open = format!("/proc/self/fd/{}", file.as_raw_fd());
        linkat(CWD, open, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        // Builds compare times.
        file.set_modified(SystemTime::now())
    }

    pub fn into_bytes(self) -> Option<Vec<u8>> {
        match self {
            Blob::Bytes(bytes) | Blob::Plain { bytes, .. } => Some(bytes),
            Blob::Large { .. } => None,
        }
    }
}

pub fn clone(source: &File, target: &File) -> bool {
    rustix::fs::ioctl_ficlone(target, source).is_ok()
}

/// The place of a blob.
pub struct Place {
    pub slot: Slot,
    pub number: Number,
    pub digest: Digest,
    pub location: Location,
}

/// A problem of this process, and not of the blob.
pub fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, OutOfMemory};
    let too_many = [libc::EMFILE, libc::ENFILE].map(Some).contains(&error.raw_os_error());
    too_many || matches!(error.kind(), Interrupted | OutOfMemory)
}

/// `None` if it does not have its digest.
pub fn load(files: &Files, volumes: &Volumes, place: &Place) -> io::Result<Option<Blob>> {
    let Location::Piece(piece) = &place.location else {
        return load_file(files, place);
    };
    let stored = volumes.read(piece)?;
    let bytes = match place.number.is_packed() {
        true => pack::unpack(&stored),
        false => Some(stored),
    };
    Ok(checked(bytes, place))
}

fn checked(bytes: Option<Vec<u8>>, place: &Place) -> Option<Blob> {
    let bytes = bytes.filter(|bytes| Digest::of(bytes) == place.digest);
    bytes.map(Blob::Bytes)
}

fn load_file(files: &Files, place: &Place) -> io::Result<Option<Blob>> {
    let mut file = files.read(place.number)?;
    let length = file.metadata()?.len();
    if length > pack::LARGEST as u64 {
        let right = !place.number.is_packed() && Digest::of_file(&file)? == place.digest;
        io::Seek::rewind(&mut file)?;
        return Ok(right.then_some(Blob::Large { file, length }));
    }
    let mut bytes = Vec::with_capacity(length as usize);
    (&file).take(pack::LARGEST as u64).read_to_end(&mut bytes)?;
    if !place.number.is_packed() {
        let right = Digest::of(&bytes) == place.digest;
        return Ok(right.then_some(Blob::Plain { file, bytes }));
    }
    Ok(checked(pack::unpack(&bytes), place))
}
