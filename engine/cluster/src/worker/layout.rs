//! Lays the inputs of a command out in a slot's folder. What is there already stays, and what does not belong there goes.
//!
//! The command before may have left anything in the folder, and processes of it may still run. So each folder is opened
//! in the one above it, and no link is followed.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{
    chownat, ioctl_ficlone, linkat, mkdirat, openat, readlinkat, statat, symlinkat, unlinkat, AtFlags, Dir, FileType,
    Gid, Mode, OFlags, Stat, Uid, CWD,
};

use super::store::{Pins, Wanted, TIME};
use super::tree::{Node, Tree};

/// How deep a command may nest folders, before the slot is made anew.
const MOST_DEPTH: usize = 512;
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// What this slot has of files, by path.
#[derive(Default)]
pub struct Laid(HashMap<String, Mark>);

/// A file that was laid out. The user of the slot cannot change it without changing one of these.
struct Mark {
    wanted: Wanted,
    inode: u64,
    changed: (i64, u64),
}

impl Mark {
    fn of(wanted: Wanted, found: &Stat) -> Mark {
        Mark {
            wanted,
            inode: found.st_ino,
            changed: (found.st_ctime, found.st_ctime_nsec),
        }
    }

    fn fits(&self, wanted: &Wanted, found: &Stat) -> bool {
        let now = Mark::of(*wanted, found);
        self.wanted == now.wanted && self.inode == now.inode && self.changed == now.changed
    }
}

/// How it is to be laid out.
pub struct Manner<'a> {
    /// Paths below which folders belong to the slot's user.
    pub places: &'a [String],
    pub user: Option<u32>,
    /// Files are links to those of the store. Then other slots change their times, which a cache would notice.
    pub links: bool,
}

struct Work<'a> {
    manner: &'a Manner<'a>,
    pins: &'a Pins,
    laid: &'a mut Laid,
    below: HashMap<&'a str, Vec<(&'a str, &'a Node)>>,
    has_changed: bool,
}

/// Lays out a tree below a folder. Tells whether anything had to be written.
pub fn lay_out(root: &Path, tree: &Tree, pins: &Pins, laid: &mut Laid, manner: &Manner<'_>) -> io::Result<bool> {
    let mut below: HashMap<&str, Vec<(&str, &Node)>> = HashMap::new();
    for (path, node) in tree {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        below.entry(folder).or_default().push((name, node));
    }
    laid.0.retain(|path, _| matches!(tree.get(path), Some(Node::File(_))));
    let mut work = Work {
        manner,
        pins,
        laid,
        below,
        has_changed: false,
    };
    let top: OwnedFd = openat(CWD, root, FOLDER, Mode::empty())?;
    work.folder(top.as_fd(), "", 0)?;
    Ok(work.has_changed)
}

impl Work<'_> {
    fn folder(&mut self, folder: BorrowedFd<'_>, path: &str, depth: usize) -> io::Result<()> {
        let wanted = self.below.remove(path).unwrap_or_default();
        let names: HashMap<&str, &Node> = wanted.iter().copied().collect();
        for name in entries(folder)? {
            if name.to_str().map_or(true, |name| !names.contains_key(name)) {
                remove(folder, &name, depth)?;
                self.has_changed = true;
            }
        }
        for (name, node) in wanted {
            let inner = match path {
                "" => name.to_owned(),
                _ => format!("{path}/{name}"),
            };
            let name = CString::new(name)?;
            match node {
                Node::Folder => {
                    let opened = self.open(folder, &name, &inner, depth)?;
                    self.folder(opened.as_fd(), &inner, depth + 1)?;
                }
                Node::File(wanted) => self.file(folder, &name, inner, *wanted, depth)?,
                Node::Link { target } => self.link(folder, &name, target, depth)?,
            }
        }
        Ok(())
    }

    fn open(&mut self, folder: BorrowedFd<'_>, name: &CStr, path: &str, depth: usize) -> io::Result<OwnedFd> {
        match openat(folder, name, FOLDER, Mode::empty()) {
            Ok(opened) => return Ok(opened),
            Err(rustix::io::Errno::NOENT) => {}
            Err(_) => remove(folder, name, depth)?,
        }
        self.has_changed = true;
        mkdirat(folder, name, Mode::from_raw_mode(0o755))?;
        let is_own =
            |place: &String| path == place || path.strip_prefix(place).is_some_and(|rest| rest.starts_with('/'));
        if self.manner.places.iter().any(is_own) {
            self.give(folder, name)?;
        }
        Ok(openat(folder, name, FOLDER, Mode::empty())?)
    }

    fn give(&self, folder: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        let Some(user) = self.manner.user else { return Ok(()) };
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(user));
        Ok(chownat(
            folder,
            name,
            Some(user),
            Some(group),
            AtFlags::SYMLINK_NOFOLLOW,
        )?)
    }

    fn file(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &CStr,
        path: String,
        wanted: Wanted,
        depth: usize,
    ) -> io::Result<()> {
        match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if self.laid.0.get(&path).is_some_and(|mark| mark.fits(&wanted, &found)) => return Ok(()),
            Ok(_) => remove(folder, name, depth)?,
            Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        self.has_changed = true;
        let source = self.pins.path(&wanted);
        if self.manner.links {
            linkat(CWD, &source, folder, name, AtFlags::empty())?;
        } else {
            copy(&source, folder, name, wanted.is_program)?;
        }
        let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        self.laid.0.insert(path, Mark::of(wanted, &found));
        Ok(())
    }

    fn link(&mut self, folder: BorrowedFd<'_>, name: &CStr, target: &str, depth: usize) -> io::Result<()> {
        match readlinkat(folder, name, Vec::new()) {
            Ok(found) if found.as_bytes() == target.as_bytes() => return Ok(()),
            Err(rustix::io::Errno::NOENT) => {}
            _ => remove(folder, name, depth)?,
        }
        self.has_changed = true;
        symlinkat(target, folder, name)?;
        self.give(folder, name)
    }
}

/// A copy that the slot's user can only read, if that is another one than ours.
fn copy(source: &Path, folder: BorrowedFd<'_>, name: &CStr, is_program: bool) -> io::Result<()> {
    let mut source = File::open(source)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut target = File::from(openat(folder, name, flags, Mode::from_raw_mode(0o600))?);
    if ioctl_ficlone(&target, &source).is_err() {
        io::copy(&mut source, &mut target)?;
    }
    target.set_permissions(Permissions::from_mode(if is_program { 0o755 } else { 0o644 }))?;
    target.set_modified(SystemTime::UNIX_EPOCH + TIME)
}

fn entries(folder: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Removes what is there, with all that is in it.
pub fn remove(folder: BorrowedFd<'_>, name: &CStr, depth: usize) -> io::Result<()> {
    if depth > MOST_DEPTH {
        return Err(io::Error::other("folders lie too deep"));
    }
    let found = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        found => found?,
    };
    if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
        return Ok(unlinkat(folder, name, AtFlags::empty())?);
    }
    let opened = openat(folder, name, FOLDER, Mode::empty())?;
    for inner in entries(opened.as_fd())? {
        remove(opened.as_fd(), &inner, depth + 1)?;
    }
    Ok(unlinkat(folder, name, AtFlags::REMOVEDIR)?)
}

/// Removes all that is in a folder, except what has one of these names.
pub fn empty(folder: &Path, kept: &[&str]) -> io::Result<()> {
    let opened = openat(CWD, folder, FOLDER, Mode::empty())?;
    for name in entries(opened.as_fd())? {
        if !name.to_str().is_ok_and(|name| kept.contains(&name)) {
            remove(opened.as_fd(), &name, 0)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Connection;
    use crate::contents::Contents;
    use crate::digests::Digest;
    use crate::worker::store::Store;
    use crate::worker::tree::files;
    use std::fs;
    use std::os::unix::fs::{symlink, MetadataExt};
    use std::path::PathBuf;
    use std::sync::Arc;
    use wafengine::settings::address::{parse_all, Limits};

    /// A store that has these texts, and a folder to lay them out in.
    struct Ground {
        folder: PathBuf,
        store: Arc<Store>,
        laid: Laid,
    }

    impl Drop for Ground {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    fn file(text: &str) -> Node {
        Node::File(Wanted {
            digest: Digest::of(text.as_bytes()),
            is_program: false,
        })
    }

    fn tree<const N: usize>(nodes: [(&str, Node); N]) -> Tree {
        nodes.into_iter().map(|(path, node)| (path.to_owned(), node)).collect()
    }

    impl Ground {
        fn new(name: &str, texts: &[&str]) -> Ground {
            let folder = std::env::temp_dir().join(format!("wafcluster-layout-{name}-{}", std::process::id()));
            let inputs = folder.join("inputs");
            for text in texts {
                let digest = Digest::of(text.as_bytes());
                let shelf = inputs.join(&digest.name()[..2]);
                fs::create_dir_all(&shelf).unwrap();
                fs::write(shelf.join(format!("{}-{}-f", digest.name(), digest.size)), text).unwrap();
            }
            fs::create_dir_all(folder.join("root")).unwrap();
            Ground {
                store: Store::open(&inputs, u64::MAX).unwrap(),
                folder,
                laid: Laid::default(),
            }
        }

        fn root(&self) -> PathBuf {
            self.folder.join("root")
        }

        /// Lays a tree out. What it needs is in the store, so that no cluster is asked.
        fn lay_out(&mut self, tree: &Tree, links: bool) -> bool {
            let files = files(tree);
            let store = self.store.clone();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let pins = runtime.block_on(async {
                let address = parse_all("grpc://127.0.0.1:1").unwrap().remove(0);
                let contents = Contents::new(&Connection::new(&address).unwrap(), Limits::default());
                store.bring(&contents, &files).await.unwrap().unwrap()
            });
            let manner = Manner {
                places: &[],
                user: None,
                links,
            };
            lay_out(&self.root(), tree, &pins, &mut self.laid, &manner).unwrap()
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.root().join(name)).unwrap()
        }
    }

    #[test]
    fn what_is_there_stays_and_all_else_goes() {
        let mut ground = Ground::new("stays", &["one", "two"]);
        let first = tree([("d", Node::Folder), ("d/a", file("one")), ("d/b", file("one"))]);
        assert!(ground.lay_out(&first, false));
        assert!(!ground.lay_out(&first, false));
        let inode = |ground: &Ground, name: &str| fs::metadata(ground.root().join(name)).unwrap().ino();
        let before = inode(&ground, "d/a");
        fs::create_dir_all(ground.root().join("rest/of/it")).unwrap();
        fs::write(ground.root().join("d/made"), "x").unwrap();
        let link = Node::Link { target: "a".to_owned() };
        let second = tree([
            ("d", Node::Folder),
            ("d/a", file("one")),
            ("d/b", file("two")),
            ("d/l", link),
        ]);
        assert!(ground.lay_out(&second, false));
        assert_eq!(inode(&ground, "d/a"), before);
        assert_eq!(
            (ground.read("d/b"), ground.read("d/l")),
            ("two".to_owned(), "one".to_owned())
        );
        assert!(!ground.root().join("rest").exists() && !ground.root().join("d/made").exists());
        assert_eq!(
            fs::metadata(ground.root().join("d/a")).unwrap().mtime(),
            TIME.as_secs() as i64
        );
    }

    #[test]
    fn a_file_that_was_changed_is_laid_out_anew() {
        let mut ground = Ground::new("changed", &["one"]);
        let wanted = tree([("a", file("one"))]);
        ground.lay_out(&wanted, false);
        let path = ground.root().join("a");
        fs::write(&path, "bad").unwrap();
        let time = SystemTime::UNIX_EPOCH + TIME;
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(time)
            .unwrap();
        assert!(ground.lay_out(&wanted, false));
        assert_eq!(ground.read("a"), "one");
    }

    #[test]
    fn no_link_of_a_command_leads_out() {
        let mut ground = Ground::new("links", &["one", "two"]);
        let outside = ground.folder.join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("a"), "mine").unwrap();
        ground.lay_out(&tree([("d", Node::Folder), ("d/a", file("one"))]), false);
        fs::remove_dir_all(ground.root().join("d")).unwrap();
        symlink(&outside, ground.root().join("d")).unwrap();
        ground.lay_out(&tree([("d", Node::Folder), ("d/a", file("two"))]), false);
        assert_eq!(ground.read("d/a"), "two");
        symlink(&outside, ground.root().join("d/e")).unwrap();
        ground.lay_out(&tree([("d", Node::Folder)]), false);
        assert_eq!(fs::read_to_string(outside.join("a")).unwrap(), "mine");
        assert!(fs::read_dir(ground.root().join("d")).unwrap().next().is_none());
    }

    #[test]
    fn a_file_may_become_a_folder_and_a_folder_a_file() {
        let mut ground = Ground::new("kinds", &["one"]);
        ground.lay_out(
            &tree([("x", Node::Folder), ("x/y", file("one")), ("z", file("one"))]),
            true,
        );
        ground.lay_out(&tree([("x", file("one")), ("z", Node::Folder)]), true);
        assert_eq!(ground.read("x"), "one");
        assert!(ground.root().join("z").is_dir());
    }

    #[test]
    fn a_folder_is_emptied_except_for_some_names() {
        let ground = Ground::new("empty", &[]);
        let root = ground.root();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir_all(root.join("kept/b")).unwrap();
        fs::write(root.join("c"), "").unwrap();
        empty(&root, &["kept"]).unwrap();
        let left: Vec<_> = fs::read_dir(&root)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["kept"]);
        assert!(root.join("kept/b").is_dir());
    }
}
