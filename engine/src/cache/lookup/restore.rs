//! Writes outputs to where the command would have written them. Each file is written completely or not at all, with the
//! permissions that a new file gets.
//!
//! If something unusual is in its place (a link, a device, a file with several names or another mode), it is not replaced:
//! the command itself knows what to do with it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    futimens, openat, renameat, renameat_with, statat, unlinkat, AtFlags, FileType, Mode, OFlags, RenameFlags,
    Timespec, Timestamps, UTIME_OMIT,
};
use rustix::io::Errno;

use super::claim::Claim;
use super::destination::Destination;
use crate::facts::status::Stamp;

pub struct Output<'a> {
    /// For messages.
    pub path: &'a Path,
    pub destination: Destination,
    /// Writes the whole content into an empty file.
    pub content: &'a dyn Fn(&File) -> io::Result<()>,
    pub mode: u32,
    /// When it says that it was written, if that is not now.
    pub dated: Option<Stamp>,
    /// Gives a file of the store this name and mode, instead of writing it.
    pub link: Option<Link<'a>>,
}

/// The permissions that the command would give it.
pub fn mode_of_output(is_program: bool, umask: u32) -> u32 {
    let mode = if is_program { 0o777 } else { 0o666 };
    mode & !umask
}

pub type Link<'a> = &'a dyn Fn(&Path, u32) -> io::Result<()>;

/// A file with several names must not be writable.
const READ_ONLY: u32 = 0o444;

/// Why outputs were not restored. What was there is unchanged, or partly replaced.
#[derive(Debug)]
pub enum Unrestored {
    /// Something at this path must not be replaced.
    Unusual(PathBuf),
    Failed(PathBuf, io::Error),
    /// The command does not wait for them any more.
    Late,
}

/// A file that is written beside its place. It is removed unless it gets to its place.
struct Draft {
    destination: Destination,
    name: String,
    is_placed: bool,
}

impl Draft {
    fn remove(&self) -> io::Result<()> {
        Ok(unlinkat(self.destination.folder(), &self.name, AtFlags::empty())?)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = self.remove();
        }
    }
}

/// Writes all outputs, and only then moves them to their places.
pub fn restore(outputs: &[Output<'_>], claim: &Claim) -> Result<(), Unrestored> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        |error| Unrestored::Failed(path, error)
    };
    let mut drafts = Vec::with_capacity(outputs.len());
    for output in outputs {
        let inherits = inherits_rights(&output.destination);
        // The draft gets the permissions that a new file in this folder gets.
        let draft = match inherits {
            true => Some(draft(output, inherits).map_err(failed(output.path))?),
            false => None,
        };
        let rights = draft.as_ref().map_or(Rights::of_mode(output.mode), |draft| {
            Rights::at(&draft.destination.beside(&draft.name))
        });
        if !is_replaceable(output, &rights).map_err(failed(output.path))? {
            return Err(Unrestored::Unusual(output.path.to_owned()));
        }
        let draft = draft.map_or_else(|| self::draft(output, inherits).map_err(failed(output.path)), Ok)?;
        drafts.push(draft);
    }
    if !claim.answer() {
        return Err(Unrestored::Late);
    }
    for (draft, output) in drafts.iter_mut().zip(outputs) {
        place(draft, output).map_err(failed(output.path))?;
    }
    Ok(())
}

/// Moves a draft to its place. If there is a file, the two are exchanged, and the old file is removed. A plain `rename`
/// over a file would make ext4 write the new one to the disk first, and a compiler's output need not wait for the disk.
fn place(draft: &mut Draft, output: &Output<'_>) -> io::Result<()> {
    let (folder, name) = (output.destination.folder(), output.destination.name());
    if output.link.is_some() {
        // A rename between two names of the same file does nothing. Then the draft is removed, as after an error.
        return Ok(renameat(folder, &draft.name, folder, name)?);
    }
    let renamed = |flags| renameat_with(folder, &draft.name, folder, name, flags);
    match renamed(RenameFlags::NOREPLACE) {
        Err(Errno::EXIST) if renamed(RenameFlags::EXCHANGE).is_ok() => return draft.remove(),
        // Some file systems cannot exchange files.
        Err(_) => renameat(folder, &draft.name, folder, name)?,
        Ok(()) => {}
    }
    draft.is_placed = true;
    Ok(())
}

/// Removes a file that may be a link into the store. The command would write into the store, or fail.
pub fn make_way(path: &Path) {
    if fs::symlink_metadata(path).is_ok_and(|found| is_read_only(&found)) {
        let _ = fs::remove_file(path);
    }
}

fn is_read_only(found: &fs::Metadata) -> bool {
    found.is_file() && found.mode() & 0o222 == 0
}

/// The permissions of a file: its mode, and its access control list if it has one.
#[derive(Debug, PartialEq, Eq)]
struct Rights {
    mode: u32,
    list: Option<Vec<u8>>,
}

impl Rights {
    fn of_mode(mode: u32) -> Rights {
        Rights { mode, list: None }
    }

    fn at(path: &Path) -> Rights {
        let mode = fs::symlink_metadata(path).map_or(0, |found| found.mode() & 0o7777);
        let mut list = vec![0; LONGEST_LIST];
        let size = rustix::fs::lgetxattr(path, "system.posix_acl_access", &mut list[..]);
        let list = size.ok().map(|size| {
            list.truncate(size);
            list
        });
        Rights { mode, list }
    }
}

/// File systems accept no longer list.
const LONGEST_LIST: usize = 64 << 10;

/// The folder's default access control list. If there is one, the umask does not count.
fn inherits_rights(destination: &Destination) -> bool {
    let found = rustix::fs::getxattr(destination.beside("."), "system.posix_acl_default", &mut [0; 256][..]);
    matches!(found, Ok(_) | Err(Errno::RANGE))
}

/// Whether nothing is there, or what the command itself would have left there, or a link of ours.
fn is_replaceable(output: &Output<'_>, rights: &Rights) -> io::Result<bool> {
    let (folder, name) = (output.destination.folder(), output.destination.name());
    let found = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(true),
        Err(error) => return Err(error.into()),
    };
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    if output.link.is_some() && found.st_mode & 0o222 == 0 {
        return Ok(is_file);
    }
    let has_rights = match rights.list {
        Some(_) => Rights::at(&output.destination.itself()) == *rights,
        None => found.st_mode & 0o7777 == rights.mode,
    };
    Ok(is_file && found.st_nlink == 1 && has_rights)
}

fn draft(output: &Output<'_>, inherits: bool) -> io::Result<Draft> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let draft = Draft {
        destination: output.destination.clone(),
        name: format!(".wafcc-{}-{number}", std::process::id()),
        is_placed: false,
    };
    // A file with many names has the same permissions under all of them.
    if let Some(link) = output.link.filter(|_| output.mode & 0o111 == 0 && !inherits) {
        // A file that cannot be linked is written.
        if link(&draft.destination.beside(&draft.name), output.mode & READ_ONLY).is_ok() {
            return Ok(draft);
        }
        let _ = draft.remove();
    }
    write(output, draft, inherits)
}

fn write(output: &Output<'_>, draft: Draft, inherits: bool) -> io::Result<Draft> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Like compilers, which open their output with this mode. The folder's list is limited to it.
    let mode = Mode::from_bits_truncate(if inherits { 0o666 } else { 0o600 });
    let file = File::from(openat(draft.destination.folder(), &draft.name, flags, mode)?);
    (output.content)(&file)?;
    if let Some(dated) = output.dated {
        set_time(&file, dated)?;
    }
    // Like linkers, which make their output executable.
    let mode = match inherits {
        true if output.mode & 0o111 == 0 => return Ok(draft),
        true => file.metadata()?.mode() & 0o7777 | output.mode & 0o111,
        false => output.mode,
    };
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    Ok(draft)
}

fn set_time(file: &File, dated: Stamp) -> io::Result<()> {
    let time = |seconds, nanoseconds| Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    };
    let times = Timestamps {
        last_access: time(0, UTIME_OMIT),
        last_modification: time(dated.seconds, dated.nanoseconds.into()),
    };
    Ok(futimens(file, &times)?)
}

#[cfg(test)]
mod tests {
    use super::super::destination::{freshen, Folders};
    use super::*;
    use crate::cache::test_support::TestFolder;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    impl TestFolder {
        fn names(&self) -> Vec<String> {
            let names = fs::read_dir(&self.0).unwrap();
            let mut names: Vec<_> = names.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    /// Writes texts to paths.
    fn put(outputs: &[(&Path, &str)], umask: u32, is_executable: bool) -> Result<(), Unrestored> {
        let writers: Vec<_> = outputs
            .iter()
            .map(|(_, text)| move |mut file: &File| file.write_all(text.as_bytes()))
            .collect();
        let mut all = Vec::new();
        for ((path, _), content) in outputs.iter().zip(&writers) {
            let destination = Folders::default().known(path);
            all.push(Output {
                path,
                destination: destination.map_err(|error| Unrestored::Failed(path.to_path_buf(), error))?,
                content,
                mode: mode_of_output(is_executable, umask),
                dated: None,
                link: None,
            });
        }
        restore(&all, &Claim::default())
    }

    #[test]
    fn an_output_has_the_rights_of_a_fresh_file() {
        let folder = TestFolder::new();
        for (umask, is_executable, mode) in [(0o022, false, 0o644), (0o077, true, 0o700), (0, false, 0o666)] {
            let path = folder.path(&format!("{umask:o}"));
            put(&[(&path, "x")], umask, is_executable).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode);
        }
    }

    #[test]
    fn an_old_output_is_replaced_and_not_written_into() {
        let folder = TestFolder::new();
        let path = folder.path("a.o");
        put(&[(&path, "old")], 0o022, false).unwrap();
        let old = File::open(&path).unwrap();
        put(&[(&path, "newer")], 0o022, false).unwrap();
        assert_eq!(io::read_to_string(old).unwrap(), "old");
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        assert_eq!(folder.names(), ["a.o"]);
    }

    #[test]
    fn an_unusual_file_is_not_replaced() {
        let folder = TestFolder::new();
        let [file, link, twin, locked] = ["file", "link", "twin", "locked"].map(|name| folder.path(name));
        fs::write(&file, "mine").unwrap();
        symlink(&file, &link).unwrap();
        fs::write(&locked, "mine").unwrap();
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o400)).unwrap();
        fs::hard_link(&file, &twin).unwrap();
        for path in [&link, &twin, &locked, &folder.0, Path::new("/dev/null")] {
            let other = folder.path("other");
            let found = put(&[(&other, "x"), (path, "x")], 0o022, false);
            assert!(
                matches!(&found, Err(Unrestored::Unusual(which)) if which == path),
                "{path:?}: {found:?}"
            );
            assert!(!other.exists());
        }
        assert_eq!(folder.names(), ["file", "link", "locked", "twin"]);
        assert_eq!(fs::read(&file).unwrap(), b"mine");
    }

    #[test]
    fn a_link_takes_the_place_of_a_link() {
        let folder = TestFolder::new();
        let [blob, path] = ["blob", "a.o"].map(|name| folder.path(name));
        fs::write(&blob, "stored").unwrap();
        let link = |name: &Path, mode: u32| {
            fs::hard_link(&blob, name)?;
            fs::set_permissions(name, fs::Permissions::from_mode(mode))
        };
        let refuses = |_: &Path, _: u32| Err(io::ErrorKind::CrossesDevices.into());
        let content = |mut file: &File| file.write_all(b"written");
        let place = |link: Link<'_>| {
            let output = Output {
                path: &path,
                destination: Folders::default().known(&path).unwrap(),
                content: &content,
                mode: mode_of_output(false, 0o027),
                dated: None,
                link: Some(link),
            };
            restore(&[output], &Claim::default()).unwrap();
            let found = fs::metadata(&path).unwrap();
            (found.nlink(), found.mode() & 0o7777, fs::read_to_string(&path).unwrap())
        };
        for _ in 0..2 {
            assert_eq!(place(&link), (2, 0o440, "stored".to_owned()));
            assert_eq!(folder.names(), ["a.o", "blob"]);
        }
        assert_eq!(place(&refuses), (1, 0o640, "written".to_owned()));
        assert_eq!(place(&link), (2, 0o440, "stored".to_owned()));
        make_way(&path);
        fs::write(&path, "mine").unwrap();
        make_way(&path);
        assert_eq!(
            (fs::read_to_string(&path).unwrap(), fs::read(&blob).unwrap()),
            ("mine".to_owned(), b"stored".to_vec())
        );
    }

    /// If a link is changed between the check and the write, the file is written to the folder that was checked.
    #[test]
    fn a_link_that_is_changed_meanwhile_is_not_followed() {
        let folder = TestFolder::new();
        let [named, moved, other] = ["named", "moved", "other"].map(|name| folder.path(name));
        fs::create_dir(&named).unwrap();
        fs::create_dir(&other).unwrap();
        let path = named.join("a.o");
        let destination = Folders::default().declared(&folder.0, &path).unwrap();
        fs::rename(&named, &moved).unwrap();
        symlink(&other, &named).unwrap();
        let output = Output {
            path: &path,
            destination,
            content: &|mut file: &File| file.write_all(b"written"),
            mode: mode_of_output(false, 0o022),
            dated: None,
            link: None,
        };
        restore(&[output], &Claim::default()).unwrap();
        assert_eq!(fs::read(moved.join("a.o")).unwrap(), b"written");
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let folder = TestFolder::new();
        let path = folder.path("missing/a.o");
        assert!(matches!(put(&[(&path, "x")], 0o022, false), Err(Unrestored::Failed(which, _)) if which == path));
        assert_eq!(folder.names(), [""; 0]);
    }

    /// The old file is replaced as a whole, and nothing else is left.
    #[test]
    fn an_output_is_exchanged_with_the_old_one() {
        let folder = TestFolder::new();
        let path = folder.path("out");
        put(&[(&path, "old")], 0o022, false).unwrap();
        let before = fs::metadata(&path).unwrap().ino();
        put(&[(&path, "new")], 0o022, false).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_ne!(fs::metadata(&path).unwrap().ino(), before);
        assert_eq!(folder.names(), ["out"]);
    }

    #[test]
    fn an_output_that_is_kept_gets_the_present_time() {
        let folder = TestFolder::new();
        let path = folder.path("out");
        fs::write(&path, "same").unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1);
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(old)
            .unwrap();
        assert!(freshen(&path));
        let now = fs::metadata(&path).unwrap().modified().unwrap();
        assert!(now.elapsed().unwrap() < std::time::Duration::from_secs(3600));
        assert!(!freshen(&folder.path("missing")));
    }
}
