//! Opens regular files of this user, and nothing else. A FIFO, a socket or a device in their place could block for ever. A
//! file of another user, or behind a link, could contain anything.
//!
//! Anything else is an error that names the file. If a file of the store was wanted, that is a miss.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{openat, Mode, OFlags};

/// Limit for an engine's own files. Those of the store have readers with limits of their own.
const CAP: u64 = 64 << 20;

/// Makes room for a file of ours. Anything else at its path is removed, unless it is a folder, and a file of ours gets
/// readable and writable for its owner. To be used in folders that belong to us alone.
pub fn make_way(path: &Path) {
    let Ok(found) = fs::symlink_metadata(path) else {
        return;
    };
    // If this fails, the next call reports why.
    if !found.is_file() {
        let _ = fs::remove_file(path);
    } else if found.mode() & OPEN != OPEN {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(found.mode() & 0o777 | OPEN));
    }
}

/// Opens for reading and writing by its owner.
const OPEN: u32 = 0o600;

/// Opens a file of ours for reading.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true), path)
}

/// Opens a file of ours for appending, and makes it if it is not there.
pub fn append(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().append(true).create(true), path)
}

/// Opens a file of ours whose content has no meaning, and makes it if it is not there.
pub fn open_lock(path: &Path) -> io::Result<File> {
    open_with(
        OpenOptions::new().read(true).write(true).create(true).truncate(false),
        path,
    )
}

/// Opens with further options. A new file is for this user alone.
pub fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options
        .mode(OPEN)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
        .open(path)?;
    checked(file)
}

/// Opens a file of ours in a folder for reading.
pub fn open_at(folder: impl AsFd, name: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    checked(openat(folder, name, flags, Mode::empty())?.into())
}

/// Opens a file that its user names, behind any links and with any owner, without blocking.
pub fn open_named(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(other("not a regular file")),
    }
}

/// The whole content of a file of ours.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let size = open(path)?.take(CAP + 1).read_to_end(&mut bytes)?;
    match size as u64 > CAP {
        true => Err(other("too large")),
        false => Ok(bytes),
    }
}

pub fn read_to_string(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| other("not UTF-8"))
}

/// Makes a file for this user alone. It must not exist.
pub fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(OPEN).open(path)?;
    file.write_all(bytes)
}

/// Replaces a file in one step. `fresh` is a path beside it for the new content.
pub fn replace(path: &Path, fresh: &Path, bytes: &[u8]) -> io::Result<()> {
    let written = create(fresh, bytes).and_then(|()| fs::rename(fresh, path));
    if written.is_err() {
        let _ = fs::remove_file(fresh);
    }
    written
}

/// Replaces a file that users edit, too, in one step. Its permissions stay. If the path is a link, the link stays, and its
/// target is replaced.
pub fn rewrite(path: &Path, text: &str) -> io::Result<()> {
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let fresh = PathBuf::from(name);
    let written = write_whole(&fresh, text)
        .and_then(|()| fs::metadata(path).map_or(Ok(()), |old| fs::set_permissions(&fresh, old.permissions())))
        .and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written
}

fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Whether an error says that there is no such file.
pub fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR))
}

fn checked(file: File) -> io::Result<File> {
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(other("not a regular file"));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(other("not a file of this user"));
    }
    Ok(file)
}

fn other(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{mknodat, FileType, CWD};
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("regular-{}-{name}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn other_kinds_of_files_are_errors_without_blocking() {
        let folder = folder("others");
        let [fifo, socket, link, file] = ["fifo", "socket", "link", "file"].map(|name| folder.join(name));
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        fs::write(&file, "text").unwrap();
        symlink(&file, &link).unwrap();
        for path in [&fifo, &socket, &link, &folder, Path::new("/dev/null")] {
            assert!(read(path).is_err(), "{path:?}");
            assert!(append(path).is_err(), "{path:?}");
            assert!(open_lock(path).is_err(), "{path:?}");
        }
        assert!(open_named(&fifo).is_err());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
        for path in [&fifo, &socket, &link, &file, &folder, &folder.join("new")] {
            make_way(path);
            assert_eq!(open_lock(path).is_ok(), path != &folder, "{path:?}");
        }
        fs::remove_file(&link).unwrap();
        symlink(&file, &link).unwrap();
        assert!(open_named(&link).is_ok());
        assert_eq!(read_to_string(&file).unwrap(), "text");
        fs::remove_dir_all(&folder).unwrap();
    }
}
