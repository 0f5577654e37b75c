//! Puts outputs where the command would have written them: each file whole or not at all, with the rights that a fresh
//! one has.
//!
//! What is there and no plain file of usual rights (a link, a device, a file with other names or another mode) is not
//! replaced: the command itself knows what it would do with it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What an output holds.
pub enum Content<'a> {
    /// From its beginning to its end.
    File(&'a File),
    Bytes(&'a [u8]),
}

pub struct Output<'a> {
    pub path: &'a Path,
    pub content: Content<'a>,
    pub is_executable: bool,
}

/// Why outputs were not restored; what was there is as it was, or partly the new.
#[derive(Debug)]
pub enum Unrestored {
    /// What is there is not to be replaced.
    Unusual(PathBuf),
    Failed(PathBuf, io::Error),
}

/// A file that is written beside its place, and removed unless it gets there.
struct Draft {
    path: PathBuf,
    is_placed: bool,
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Writes all outputs, and only then puts them in their places.
pub fn restore(outputs: &[Output<'_>], umask: u32) -> Result<(), Unrestored> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        |error| Unrestored::Failed(path, error)
    };
    let mut drafts = Vec::with_capacity(outputs.len());
    for output in outputs {
        let mode = if output.is_executable { 0o777 } else { 0o666 } & !umask;
        if !is_replaceable(output.path, mode).map_err(failed(output.path))? {
            return Err(Unrestored::Unusual(output.path.to_owned()));
        }
        drafts.push(draft(output, mode).map_err(failed(output.path))?);
    }
    for (draft, output) in drafts.iter_mut().zip(outputs) {
        fs::rename(&draft.path, output.path).map_err(failed(output.path))?;
        draft.is_placed = true;
    }
    Ok(())
}

/// Nothing is there, or what the command would have left there itself.
fn is_replaceable(path: &Path, mode: u32) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(found.is_file() && found.nlink() == 1 && found.mode() & 0o7777 == mode),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

fn draft(output: &Output<'_>, mode: u32) -> io::Result<Draft> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!(".wafcc-{}-{number}", std::process::id());
    let path = output.path.with_file_name(name);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    let draft = Draft { path, is_placed: false };
    match output.content {
        Content::Bytes(bytes) => file.write_all(bytes)?,
        Content::File(source) => copy(source, &file)?,
    }
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    Ok(draft)
}

/// Shares the blocks where the file system can.
fn copy(source: &File, target: &File) -> io::Result<()> {
    if rustix::fs::ioctl_ficlone(target.as_fd(), source.as_fd()).is_ok() {
        return Ok(());
    }
    let mut from = 0;
    let size = source.metadata()?.len();
    while from < size {
        let rest = (size - from).min(1 << 30) as usize;
        match rustix::fs::copy_file_range(source, Some(&mut from), target, None, rest) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // Between two file systems, or on one that cannot.
            Err(_) => return copy_by_hand(source, target, from),
        }
    }
    Ok(())
}

fn copy_by_hand(source: &File, mut target: &File, mut from: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let mut chunk = vec![0; 256 << 10];
    loop {
        match source.read_at(&mut chunk, from) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                target.write_all(&chunk[..n])?;
                from += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A folder that is gone at the end.
    struct Yard(PathBuf);

    impl Yard {
        fn new(name: &str) -> Yard {
            let path = std::env::temp_dir().join(format!("restore-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Yard(path)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        fn names(&self) -> Vec<String> {
            let names = fs::read_dir(&self.0).unwrap();
            let mut names: Vec<_> = names.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Yard {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn bytes<'a>(path: &'a Path, bytes: &'a [u8]) -> Output<'a> {
        Output {
            path,
            content: Content::Bytes(bytes),
            is_executable: false,
        }
    }

    #[test]
    fn an_output_has_the_rights_of_a_fresh_file() {
        let yard = Yard::new("rights");
        for (umask, is_executable, mode) in [(0o022, false, 0o644), (0o077, true, 0o700), (0, false, 0o666)] {
            let path = yard.path(&format!("{umask:o}"));
            let output = Output {
                is_executable,
                ..bytes(&path, b"x")
            };
            restore(&[output], umask).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode);
        }
    }

    #[test]
    fn what_was_there_is_replaced_and_not_written_into() {
        let yard = Yard::new("replaced");
        let path = yard.path("a.o");
        restore(&[bytes(&path, b"old")], 0o022).unwrap();
        let old = File::open(&path).unwrap();
        restore(&[bytes(&path, b"newer")], 0o022).unwrap();
        assert_eq!(io::read_to_string(old).unwrap(), "old");
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        assert_eq!(yard.names(), ["a.o"]);
    }

    #[test]
    fn a_blob_is_copied_whole() {
        let yard = Yard::new("blob");
        let content: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
        fs::write(yard.path("blob"), &content).unwrap();
        let blob = File::open(yard.path("blob")).unwrap();
        let path = yard.path("a.o");
        for _ in 0..2 {
            let output = Output {
                content: Content::File(&blob),
                ..bytes(&path, b"")
            };
            restore(&[output], 0o022).unwrap();
            assert!(fs::read(&path).unwrap() == content);
        }
        let target = File::create(yard.path("by-hand")).unwrap();
        copy_by_hand(&blob, &target, 0).unwrap();
        assert!(fs::read(yard.path("by-hand")).unwrap() == content);
    }

    #[test]
    fn what_is_unusual_stays() {
        let yard = Yard::new("unusual");
        let [file, link, twin, locked] = ["file", "link", "twin", "locked"].map(|name| yard.path(name));
        fs::write(&file, "mine").unwrap();
        symlink(&file, &link).unwrap();
        fs::write(&locked, "mine").unwrap();
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o400)).unwrap();
        fs::hard_link(&file, &twin).unwrap();
        for path in [&link, &twin, &locked, &yard.0, Path::new("/dev/null")] {
            let other = yard.path("other");
            let outputs = [bytes(&other, b"x"), bytes(path, b"x")];
            let found = restore(&outputs, 0o022);
            assert!(
                matches!(&found, Err(Unrestored::Unusual(which)) if which == path),
                "{path:?}: {found:?}"
            );
            assert!(!other.exists());
        }
        assert_eq!(yard.names(), ["file", "link", "locked", "twin"]);
        assert_eq!(fs::read(&file).unwrap(), b"mine");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let yard = Yard::new("nowhere");
        let path = yard.path("missing/a.o");
        assert!(matches!(restore(&[bytes(&path, b"x")], 0o022), Err(Unrestored::Failed(which, _)) if which == path));
        assert_eq!(yard.names(), [""; 0]);
    }
}
