//! Runs a command apart: it finds all files as they are, and what it does to them stays in memory of its own.
//!
//! ```text
//! the engine ─► wafd apart … ─► mounts of its own ─┬─► the command
//!                                                  └─► when that has ended: a list of what it has left, in a file of the engine
//! ```
//!
//! In some folders the command may change what it likes: over each lies a layer in memory, and the changes are there. All
//! other folders cannot be changed, and there is no network. When the last process has ended, the kernel takes everything
//! back. An ordinary user may do this where the kernel lets him have a user namespace.

use std::ffi::{CStr, CString, OsStr};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{chown, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr;

use libc::{c_char, c_int};
use rustix::mount::{mount, mount_bind_recursive, mount_change, MountFlags, MountPropagationFlags};
use rustix::process::{getegid, geteuid};
use rustix::thread::{unshare_unsafe, UnshareFlags};

use crate::bytes::digest::Digest;
use crate::observe::access::Bytes;
use crate::wire::Strings;

/// The first word of its command line.
pub const WORD: &CStr = c"apart";
/// The file with the list of what the command has left.
const LEFT: &str = "left";
/// The last record of the list.
const END: &[u8] = b"end";
/// The folder in which the layers are mounted.
const LAYERS: &str = "layers";
/// An attribute of mounts: nothing in it can be changed. See mount_setattr(2).
const READ_ONLY: u64 = 1;
/// Exit status if the command could not be started.
const NOT_STARTED: c_int = 127;

/// What may change, and what the command must not find.
pub struct Plan<'a> {
    /// A folder of ours.
    pub at: &'a Path,
    /// The most bytes that it may write.
    pub room: u64,
    /// The folders in which it may change something. None is in another one.
    pub folders: &'a [Bytes],
    /// What is removed before it starts, in these folders.
    pub hidden: &'a [Bytes],
    /// Folders that are there under other names, too: each folder, and an empty one with the other name.
    pub renamed: &'a [Bytes],
    /// Variables that are only for the command.
    pub variables: Vec<Bytes>,
}

/// What is at a path of a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Left {
    File {
        digest: Digest,
        mode: u32,
        /// When it was written: seconds and nanoseconds.
        written: (i64, u32),
    },
    Folder,
    Link(Bytes),
    /// Something that was there is not there any more.
    Gone,
    Other,
}

impl Plan<'_> {
    /// The command line with which `wafd` runs a command.
    pub fn command(&self, wafd: &[u8], argv: &Strings) -> Strings {
        let mut words = vec![wafd.to_vec(), WORD.to_bytes().to_vec()];
        words.push(self.at.as_os_str().as_bytes().to_vec());
        words.push(self.room.to_string().into_bytes());
        for list in [self.folders, self.hidden, self.renamed, &self.variables] {
            words.push(list.len().to_string().into_bytes());
            words.extend(list.iter().cloned());
        }
        words.iter().map(Vec::as_slice).chain(argv.iter()).collect()
    }
}

/// What the command has left in `folders`, by absolute path. `None` if it could not be run apart.
pub fn read_left(at: &Path, folders: &[Bytes]) -> Option<Vec<(Bytes, Left)>> {
    let text = fs::read(at.join(LEFT)).ok()?;
    let mut fields = text.split(|byte| *byte == 0);
    let mut all = Vec::new();
    loop {
        let kind = fields.next()?;
        if kind == END {
            return Some(all);
        }
        let [folder, rest, what] = [fields.next()?, fields.next()?, fields.next()?];
        let folder: usize = number(folder)?;
        let path = [folders.get(folder)?, &b"/"[..], rest].concat();
        let left = match kind {
            b"file" => {
                let mut words = std::str::from_utf8(what).ok()?.split(' ');
                Left::File {
                    digest: words.next()?.parse().ok()?,
                    mode: words.next()?.parse().ok()?,
                    written: (words.next()?.parse().ok()?, words.next()?.parse().ok()?),
                }
            }
            b"folder" => Left::Folder,
            b"link" => Left::Link(what.to_vec()),
            b"gone" => Left::Gone,
            _ => Left::Other,
        };
        all.push((path, left));
    }
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Runs the command that `argv` names after our own words. Returns its exit status.
///
/// # Safety
/// As the system calls `main`: a list of strings that ends with a zero. Nothing has set up signals or threads yet.
pub unsafe fn launch(argv: *const *const c_char) -> c_int {
    let mut words = Vec::new();
    let mut at = argv;
    // SAFETY: the list ends with a zero.
    unsafe {
        while !(*at).is_null() {
            words.push(CStr::from_ptr(*at));
            at = at.add(1);
        }
    }
    let Some(given) = Given::read(&words[2..]) else {
        eprintln!("wafd: apart is for the engine's own use");
        return NOT_STARTED;
    };
    match given.run() {
        Ok(status) => status,
        Err(why) => {
            eprintln!("wafd: apart: {why}");
            NOT_STARTED
        }
    }
}

/// The words of the command line.
struct Given<'a> {
    at: PathBuf,
    room: u64,
    folders: Vec<PathBuf>,
    hidden: Vec<PathBuf>,
    renamed: Vec<PathBuf>,
    variables: Vec<&'a CStr>,
    argv: &'a [&'a CStr],
}

fn path_of(word: &CStr) -> PathBuf {
    OsStr::from_bytes(word.to_bytes()).into()
}

impl<'a> Given<'a> {
    fn read(words: &'a [&'a CStr]) -> Option<Given<'a>> {
        let mut rest = words;
        let mut take = |count: usize| -> Option<&'a [&'a CStr]> {
            let taken = rest.get(..count)?;
            rest = &rest[count..];
            Some(taken)
        };
        let head = take(2)?;
        let mut list = || {
            let count = take(1)?[0];
            take(number(count.to_bytes())?)
        };
        let (folders, hidden, renamed, variables) = (list()?, list()?, list()?, list()?);
        let paths = |words: &[&CStr]| words.iter().map(|word| path_of(word)).collect();
        Some(Given {
            at: path_of(head[0]),
            room: number(head[1].to_bytes())?,
            folders: paths(folders),
            hidden: paths(hidden),
            renamed: paths(renamed),
            variables: variables.to_vec(),
            argv: rest,
        })
        .filter(|given| !given.argv.is_empty())
    }

    fn run(&self) -> Result<c_int, String> {
        let here = std::env::current_dir().map_err(|error| format!("its folder: {error}"))?;
        let left = OpenOptions::new().write(true).create_new(true).open(self.at.join(LEFT));
        let left = left.map_err(|error| format!("the list of what it leaves: {error}"))?;
        enter_namespaces().map_err(|error| format!("namespaces of its own: {error}"))?;
        let layers = self.mount_layers()?;
        for path in &self.hidden {
            let is_folder = fs::symlink_metadata(path).is_ok_and(|status| status.is_dir());
            let removed = match is_folder {
                true => fs::remove_dir_all(path),
                false => fs::remove_file(path),
            };
            // An earlier folder of the list may have held it.
            if let Err(error) = removed {
                if error.kind() != io::ErrorKind::NotFound {
                    return Err(format!("hide {}: {error}", path.display()));
                }
            }
        }
        // The folder may be below a layer now.
        std::env::set_current_dir(&here).map_err(|error| format!("{}: {error}", here.display()))?;
        let status = self.start_and_wait().map_err(|error| format!("start it: {error}"))?;
        let listed = self.list(left, &layers);
        listed.map_err(|error| format!("list what it has left: {error}"))?;
        Ok(status)
    }

    /// Returns the folder of the layers. Its path may lead elsewhere now.
    fn mount_layers(&self) -> Result<File, String> {
        let failed = |what: &Path| {
            let what = what.display().to_string();
            move |error: io::Error| format!("{what}: {error}")
        };
        let layers = self.at.join(LAYERS);
        fs::create_dir(&layers).map_err(failed(&layers))?;
        let size = CString::new(format!("size={},mode=700", self.room)).unwrap_or_default();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("wafd", &layers, "tmpfs", flags, size.as_c_str()).map_err(|error| failed(&layers)(error.into()))?;
        let layers = File::open(&layers).map_err(failed(&layers))?;
        for (number, folder) in self.folders.iter().enumerate() {
            let mounted = mount_layer(folder, &layer(&layers, number));
            mounted.map_err(failed(folder))?;
        }
        let mut changeable = self.folders.clone();
        for names in self.renamed.chunks_exact(2) {
            let (folder, name) = (&names[0], &names[1]);
            mount_bind_recursive(folder, name).map_err(|error| failed(name)(error.into()))?;
            if self.folders.iter().any(|known| folder.starts_with(known)) {
                changeable.push(name.clone());
            }
            let below = self.folders.iter().filter_map(|known| known.strip_prefix(folder).ok());
            changeable.extend(below.map(|rest| name.join(rest)));
        }
        change_mounts(Path::new("/"), true, READ_ONLY, 0)
            .and_then(|()| {
                let mut folders = changeable.iter();
                folders.try_for_each(|folder| change_mounts(folder, false, 0, READ_ONLY))
            })
            .map_err(failed(Path::new("/")))?;
        Ok(layers)
    }

    fn start_and_wait(&self) -> io::Result<c_int> {
        let environment = self.environment();
        let list = |words: &[&CStr]| -> Vec<*const c_char> {
            let words = words.iter().map(|word| word.as_ptr());
            words.chain([ptr::null()]).collect()
        };
        let (argv, environment) = (list(self.argv), list(&environment));
        // SAFETY: this process has one thread; the lists end with a zero.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::execvpe(argv[0], argv.as_ptr(), environment.as_ptr());
                libc::_exit(NOT_STARTED);
            }
            let mut status = 0;
            while child > 0 && libc::waitpid(child, &mut status, 0) < 0 {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            match child {
                ..=0 => Err(io::Error::last_os_error()),
                _ if libc::WIFEXITED(status) => Ok(libc::WEXITSTATUS(status)),
                _ => Err(io::Error::other("a signal has ended it")),
            }
        }
    }

    /// Ours, with the variables that are only for the command.
    fn environment(&self) -> Vec<&'a CStr> {
        extern "C" {
            static environ: *const *const c_char;
        }
        let name = |entry: &CStr| entry.to_bytes().split(|byte| *byte == b'=').next().map(<[u8]>::to_vec);
        let replaced: Vec<_> = self.variables.iter().map(|entry| name(entry)).collect();
        let mut kept = Vec::new();
        // SAFETY: the system's list of variables, which ends with a zero; there is no other thread to change it.
        unsafe {
            let mut at = environ;
            while !at.is_null() && !(*at).is_null() {
                let entry = CStr::from_ptr(*at);
                if !replaced.contains(&name(entry)) {
                    kept.push(entry);
                }
                at = at.add(1);
            }
        }
        kept.extend(&self.variables);
        kept
    }

    fn list(&self, left: File, layers: &File) -> io::Result<()> {
        let mut left = BufWriter::new(left);
        for number in 0..self.folders.len() {
            let layer = layer(layers, number).join("new");
            list_folder(&mut left, number, &layer, Path::new(""))?;
        }
        left.write_all(&[END, b"\0"].concat())?;
        left.flush()
    }
}

fn layer(layers: &File, number: usize) -> PathBuf {
    format!("/proc/self/fd/{}/{number}", layers.as_raw_fd()).into()
}

/// A user namespace is needed for the others, except for the superuser. The user keeps his number.
fn enter_namespaces() -> io::Result<()> {
    let others = UnshareFlags::NEWNS | UnshareFlags::NEWNET | UnshareFlags::NEWIPC;
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: this process has one thread, and no memory that these namespaces share.
    let is_ready = user == 0 && unsafe { unshare_unsafe(others) }.is_ok();
    if !is_ready {
        // SAFETY: as above.
        unsafe { unshare_unsafe(others | UnshareFlags::NEWUSER) }?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    Ok(())
}

/// Lays a layer over a folder.
fn mount_layer(folder: &Path, layer: &Path) -> io::Result<()> {
    let (new, work) = (layer.join("new"), layer.join("work"));
    fs::create_dir_all(&new)?;
    fs::create_dir(&work)?;
    let status = fs::metadata(folder)?;
    // In a user namespace, only the user's own files can be his.
    let _ = chown(&new, Some(status.uid()), Some(status.gid()));
    fs::set_permissions(&new, fs::Permissions::from_mode(status.mode() & 0o7777))?;
    let names = [folder, &new, &work].map(|path| path.as_os_str().as_bytes());
    if names.iter().any(|name| name.iter().any(|byte| b",:\\".contains(byte))) {
        return Err(io::Error::other("its name means something to mount"));
    }
    let [lower, upper, work] = names;
    let data = [b"lowerdir=", lower, b",upperdir=", upper, b",workdir=", work].concat();
    let with = |more: &[u8]| CString::new([&data, more].concat()).map_err(io::Error::other);
    let lay = |data: &CStr| mount("wafd", folder, "overlay", MountFlags::empty(), data);
    // Without rights of its own, the kernel notes what it needs under names that the user may write.
    if lay(&with(b",userxattr")?).is_err() {
        lay(&with(b"")?)?;
    }
    Ok(())
}

/// From now on, nothing of a mount can be changed, except for some that lie in it.
pub fn protect_mount(path: &Path, is_recursive: bool) -> io::Result<()> {
    change_mounts(path, is_recursive, READ_ONLY, 0)
}

/// Changes attributes of mounts; see mount_setattr(2).
fn change_mounts(path: &Path, is_recursive: bool, set: u64, clear: u64) -> io::Result<()> {
    /// `struct mount_attr` of the kernel.
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    let path = CString::new(path.as_os_str().as_bytes())?;
    let flags = if is_recursive { libc::AT_RECURSIVE } else { 0 };
    let attributes = Attributes {
        set,
        clear,
        propagation: 0,
        user_namespace: 0,
    };
    // SAFETY: a path that ends with a zero, and a structure of the size that is told.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &attributes,
            size_of::<Attributes>(),
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lists what is in a layer: kind, number of the layer, path, and what tells its content.
fn list_folder(to: &mut impl Write, number: usize, layer: &Path, within: &Path) -> io::Result<()> {
    for entry in fs::read_dir(layer.join(within))? {
        let path = within.join(entry?.file_name());
        let real = layer.join(&path);
        let status = fs::symlink_metadata(&real)?;
        let kind = status.file_type();
        let (kind, what) = if kind.is_file() {
            let digest = Digest::of_file(&File::open(&real)?)?;
            let mode = status.mode() & 0o7777;
            let what = format!("{digest} {mode} {} {}", status.mtime(), status.mtime_nsec());
            ("file", what.into_bytes())
        } else if kind.is_dir() {
            ("folder", Vec::new())
        } else if kind.is_symlink() {
            ("link", fs::read_link(&real)?.into_os_string().as_bytes().to_vec())
        } else if kind.is_char_device() && status.rdev() == 0 {
            ("gone", Vec::new())
        } else {
            ("other", Vec::new())
        };
        let name = path.as_os_str().as_bytes();
        for field in [kind.as_bytes(), number.to_string().as_bytes(), name, &what] {
            to.write_all(field)?;
            to.write_all(b"\0")?;
        }
        if kind == "folder" {
            list_folder(to, number, layer, &path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_read_as_it_is_written() {
        let (folders, hidden) = ([b"/w/a".to_vec(), b"/w/b c".to_vec()], [b"/w/a/out".to_vec()]);
        let renamed = [b"/w".to_vec(), b"/at/w".to_vec()];
        let plan = Plan {
            at: Path::new("/at"),
            room: 7,
            folders: &folders,
            hidden: &hidden,
            renamed: &renamed,
            variables: vec![b"A=1 2".to_vec()],
        };
        let argv: Strings = [&b"sh"[..], b"-c", b"echo"].into_iter().collect();
        let command = plan.command(b"/wafd", &argv);
        let words: Vec<CString> = command.iter().map(|word| CString::new(word).unwrap()).collect();
        let words: Vec<&CStr> = words.iter().map(CString::as_c_str).collect();
        assert_eq!((words[0], words[1]), (c"/wafd", WORD));
        let given = Given::read(&words[2..]).unwrap();
        assert_eq!((given.at.as_path(), given.room), (plan.at, 7));
        assert_eq!(given.folders, [Path::new("/w/a"), Path::new("/w/b c")]);
        assert_eq!(given.hidden, [Path::new("/w/a/out")]);
        assert_eq!(given.renamed, [Path::new("/w"), Path::new("/at/w")]);
        assert_eq!(
            (&given.variables[..], given.argv),
            (&[c"A=1 2"][..], &[c"sh", c"-c", c"echo"][..])
        );
        for wrong in [
            &words[..2],
            &words[2..4],
            &words[2..8],
            &words[2..words.len() - 3],
            &words[3..],
        ] {
            assert!(Given::read(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_left_is_read_as_it_is_written() {
        let at = std::env::temp_dir().join(format!("apart-{}", std::process::id()));
        let layer = at.join("layer");
        fs::create_dir_all(layer.join("d")).unwrap();
        fs::write(layer.join("d/file"), "text").unwrap();
        std::os::unix::fs::symlink("to", layer.join("link")).unwrap();
        let folders = [b"/w".to_vec()];
        let mut text = Vec::new();
        list_folder(&mut text, 0, &layer, Path::new("")).unwrap();
        // Without its end, the list is that of a command that was ended.
        fs::write(at.join(LEFT), &text).unwrap();
        assert_eq!(read_left(&at, &folders), None);
        text.extend_from_slice(b"end\0");
        fs::write(at.join(LEFT), &text).unwrap();
        let mut left = read_left(&at, &folders).unwrap();
        left.sort_by(|one, other| one.0.cmp(&other.0));
        let status = fs::metadata(layer.join("d/file")).unwrap();
        let file = Left::File {
            digest: Digest::of(b"text"),
            mode: status.mode() & 0o7777,
            written: (status.mtime(), status.mtime_nsec() as u32),
        };
        let expected = [
            (b"/w/d".to_vec(), Left::Folder),
            (b"/w/d/file".to_vec(), file),
            (b"/w/link".to_vec(), Left::Link(b"to".to_vec())),
        ];
        assert_eq!(left, expected);
        assert_eq!(read_left(&at, &[]), None);
        fs::remove_dir_all(&at).unwrap();
    }
}
