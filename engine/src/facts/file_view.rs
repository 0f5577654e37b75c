//! What one request, or several that arrived together, finds in the file system. Each thing is looked at once, however its
//! path is spelled.
//!
//! Compilers look into the same few folders by paths such as `/usr/lib/gcc/…/12/../../../../include`. If the folder before
//! a `..` is known to be no link, the rest has a shorter path, which was mostly looked at already.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::time::Instant;

use rustc_hash::FxBuildHasher;
use rustix::fs::{self, Access, AtFlags, CWD};
use rustix::io::Errno;

use super::fact::Kind;
use super::listing::Listing;
use super::path::{below, split};
use super::status::Status;
use super::world::World;

/// The number of paths of a usual compile.
const CAPACITY: usize = 128;
/// Paths with more links in a row, or longer than this, are left to the kernel, which knows where they must end.
const LINKS: usize = 8;
const NAMES: usize = 64;

/// A folder in which names are looked for.
#[derive(Clone)]
pub enum FolderNames {
    Missing,
    Listed(Arc<Listing>),
    /// Its names are looked up one by one.
    Unknown,
}

/// By path.
type Known<T> = HashMap<Vec<u8>, T, FxBuildHasher>;

/// The state of files that was found since the view began. It serves requests that had arrived before that, and no later ones.
pub struct FileView {
    began: Instant,
    /// No request is served by it any more. Only its allocated memory is kept.
    is_over: bool,
    /// The status of names themselves, links included.
    names: Known<Result<Status, Errno>>,
    /// The status of what links lead to.
    targets: Known<Result<Status, Errno>>,
    /// The targets of links.
    links: Known<Result<Vec<u8>, Errno>>,
    folders: Known<FolderNames>,
    /// The real paths of folders, and folders that are not there.
    real: Known<Result<Vec<u8>, Errno>>,
    /// Real paths of folders in which names may be looked up.
    searched: Vec<Vec<u8>>,
}

/// How a path is spelled.
enum Spelling<'p> {
    /// Each name follows the one before.
    Plain,
    /// A slash at the end: the part before it must be a folder.
    Folder(&'p [u8]),
    /// The folder above this one.
    Above(&'p [u8]),
    /// A name in a folder that has another spelling.
    Indirect(&'p [u8], &'p [u8]),
}

impl Spelling<'_> {
    fn of(path: &[u8]) -> Spelling<'_> {
        if path.first() != Some(&b'/') || path.len() == 1 {
            return Spelling::Plain;
        }
        let end = path.iter().rposition(|b| *b != b'/').map_or(1, |at| at + 1);
        if end < path.len() {
            return Spelling::Folder(&path[..end]);
        }
        let at = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
        let (folder, name) = (&path[..at.max(1)], &path[at + 1..]);
        match name {
            b"." => Spelling::Folder(folder),
            b".." => Spelling::Above(folder),
            _ if is_indirect(folder) => Spelling::Indirect(folder, name),
            _ => Spelling::Plain,
        }
    }
}

fn is_indirect(folder: &[u8]) -> bool {
    let is_odd = |name: &[u8]| matches!(name, b"" | b"." | b"..");
    folder.len() > 1 && folder[1..].split(|b| *b == b'/').any(is_odd)
}

impl FileView {
    pub fn begin() -> FileView {
        FileView {
            began: Instant::now(),
            is_over: false,
            names: Known::with_capacity_and_hasher(CAPACITY, FxBuildHasher),
            targets: Known::with_capacity_and_hasher(CAPACITY, FxBuildHasher),
            links: Known::default(),
            folders: Known::with_capacity_and_hasher(CAPACITY, FxBuildHasher),
            real: Known::default(),
            searched: Vec::new(),
        }
    }

    /// Ends the view, and forgets everything.
    pub fn end(&mut self) {
        self.is_over = true;
        self.names.clear();
        self.targets.clear();
        self.links.clear();
        self.folders.clear();
        self.real.clear();
        self.searched.clear();
    }

    fn begin_again(mut self) -> FileView {
        self.end();
        self.is_over = false;
        self.began = Instant::now();
        self
    }

    /// Keeps this view, if it began when the next request had already arrived. Otherwise a new view begins now.
    pub fn for_request(known: Option<FileView>, arrived: Instant) -> FileView {
        match known {
            Some(view) if !view.is_over && arrived <= view.began => view,
            Some(view) => view.begin_again(),
            None => FileView::begin(),
        }
    }

    pub fn status_of_name(&mut self, path: &[u8]) -> Result<Status, Errno> {
        if let Some(found) = self.names.get(path) {
            return *found;
        }
        let found = match Spelling::of(path) {
            Spelling::Plain => status_of_name(path),
            Spelling::Folder(inner) => self.folder(inner),
            Spelling::Above(folder) => self.above(folder).and_then(|above| self.status_of_name(&above)),
            Spelling::Indirect(folder, name) => {
                let direct = self.direct(folder, name);
                direct.and_then(|path| self.status_of_name(&path))
            }
        };
        self.names.insert(path.to_vec(), found);
        found
    }

    /// The status of what the path leads to. One look is enough for both: a path that is no link leads to itself.
    pub fn status(&mut self, path: &[u8]) -> Result<Status, Errno> {
        if let Some(found) = self.targets.get(path) {
            return *found;
        }
        let name = self.status_of_name(path);
        if !name.is_ok_and(|status| status.kind() == Kind::Link) {
            return name;
        }
        self.status_behind(path)
    }

    /// The same for a path that is likely to be a link.
    pub fn status_behind(&mut self, path: &[u8]) -> Result<Status, Errno> {
        if let Some(found) = self.targets.get(path) {
            return *found;
        }
        let found = match Spelling::of(path) {
            Spelling::Plain => status(path),
            Spelling::Folder(inner) => self.folder(inner),
            Spelling::Above(_) => return self.status_of_name(path),
            Spelling::Indirect(folder, name) => {
                let direct = self.direct(folder, name);
                direct.and_then(|path| self.status(&path))
            }
        };
        self.targets.insert(path.to_vec(), found);
        found
    }

    fn folder(&mut self, path: &[u8]) -> Result<Status, Errno> {
        let found = self.status(path)?;
        (found.kind() == Kind::Folder).then_some(found).ok_or(Errno::NOTDIR)
    }

    /// A name in a folder, by the folder's real path.
    fn direct(&mut self, folder: &[u8], name: &[u8]) -> Result<Vec<u8>, Errno> {
        let folder = self.resolved_folder(folder, LINKS)?;
        Ok(join(&folder, name))
    }

    /// The real path of the folder above, if the folder may be searched.
    fn above(&mut self, folder: &[u8]) -> Result<Vec<u8>, Errno> {
        let folder = self.resolved_folder(folder, LINKS)?;
        self.above_real(folder)
    }

    fn above_real(&mut self, folder: Vec<u8>) -> Result<Vec<u8>, Errno> {
        self.folder(&folder)?;
        if !self.searched.iter().any(|known| below(&folder, known).is_some()) {
            fs::accessat(CWD, folder.as_slice(), Access::EXEC_OK, AtFlags::empty())?;
            self.searched.push(folder.clone());
        }
        let above = split(&folder).map_or(&b"/"[..], |(above, _)| above);
        Ok(above.to_vec())
    }

    /// The target of a link.
    pub fn link(&mut self, path: &[u8]) -> Result<Vec<u8>, Errno> {
        if let Some(known) = self.links.get(path) {
            return known.clone();
        }
        let found = fs::readlink(path, Vec::new()).map(|text| text.into_bytes());
        self.links.insert(path.to_vec(), found.clone());
        found
    }

    /// The path without links, if it exists. It is resolved folder by folder, because the paths of one command have most
    /// folders in common.
    pub fn resolved(&mut self, path: &[u8]) -> Result<Vec<u8>, Errno> {
        self.resolved_within(path, LINKS)
    }

    fn resolved_within(&mut self, path: &[u8], links: usize) -> Result<Vec<u8>, Errno> {
        let names = path.iter().filter(|b| **b == b'/').count();
        if path.first() != Some(&b'/') || names > NAMES || links == 0 {
            return resolve(path);
        }
        if path.len() == 1 {
            return Ok(path.to_vec());
        }
        match Spelling::of(path) {
            Spelling::Folder(inner) => {
                let found = self.resolved_within(inner, links)?;
                self.folder(&found)?;
                Ok(found)
            }
            Spelling::Above(folder) => {
                let folder = self.resolved_folder(folder, links)?;
                self.above_real(folder)
            }
            Spelling::Plain | Spelling::Indirect(..) => {
                let Some((folder, name)) = split(path) else {
                    return resolve(path);
                };
                let folder = self.resolved_folder(folder, links)?;
                let found = join(&folder, name);
                if self.status_of_name(&found)?.kind() != Kind::Link {
                    return Ok(found);
                }
                let text = self.link(&found)?;
                let target = if text.starts_with(b"/") {
                    text
                } else {
                    join(&folder, &text)
                };
                self.resolved_within(&target, links - 1)
            }
        }
    }

    fn resolved_folder(&mut self, path: &[u8], links: usize) -> Result<Vec<u8>, Errno> {
        if let Some(known) = self.real.get(path) {
            return known.clone();
        }
        let found = self.resolved_within(path, links);
        if matches!(found, Ok(_) | Err(Errno::NOENT)) {
            self.real.insert(path.to_vec(), found.clone());
        }
        found
    }

    /// The status of what the path leads to, by its real path.
    pub fn found(&mut self, path: &[u8]) -> Result<(Vec<u8>, Status), Errno> {
        let real = self.resolved(path)?;
        let status = self.status_of_name(&real)?;
        Ok((real, status))
    }

    /// The name of a folder without links, if it is there.
    pub fn real(&mut self, folder: &[u8]) -> Option<Vec<u8>> {
        self.resolved_folder(folder, LINKS).ok()
    }

    pub fn folder_names(&mut self, folder: &[u8], world: &World) -> FolderNames {
        if let Some(folder_names) = self.folders.get(folder) {
            return folder_names.clone();
        }
        // If a folder is missing, everything below it is. Compilers look in vain for whole families of folders.
        let above = split(folder).filter(|(above, _)| *above != folder);
        let is_missing = above.is_some_and(|(above, name)| match self.folders.get(above) {
            Some(FolderNames::Missing) => true,
            Some(FolderNames::Listed(listing)) => listing.lacks(name),
            _ => false,
        });
        let folder_names = if is_missing {
            Err(Errno::NOENT)
        } else {
            self.status(folder)
        };
        let folder_names = match folder_names {
            Err(Errno::NOENT) => FolderNames::Missing,
            Ok(status) if status.kind() == Kind::Folder => {
                let names = world.names(folder, &status);
                names.map_or(FolderNames::Unknown, FolderNames::Listed)
            }
            _ => FolderNames::Unknown,
        };
        self.folders.insert(folder.to_vec(), folder_names.clone());
        folder_names
    }

    /// Whether the list of its folder shows that a file is not there.
    pub fn surely_lacks(&mut self, path: &[u8], world: &World) -> bool {
        let Some((folder, name)) = split(path) else {
            return false;
        };
        match self.folder_names(folder, world) {
            FolderNames::Missing => true,
            FolderNames::Listed(listing) => listing.lacks(name),
            FolderNames::Unknown => false,
        }
    }
}

fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if folder == b"/" { b"" } else { b"/" };
    [folder, slash, name].concat()
}

pub fn status(path: &[u8]) -> Result<Status, Errno> {
    fs::stat(path).map(Status::from)
}

/// The status of a link itself.
pub fn status_of_name(path: &[u8]) -> Result<Status, Errno> {
    fs::lstat(path).map(Status::from)
}

fn resolve(path: &[u8]) -> Result<Vec<u8>, Errno> {
    let found = std::fs::canonicalize(OsStr::from_bytes(path));
    found
        .map(|path| path.into_os_string().into_vec())
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_serves_requests_that_had_arrived_when_it_began() {
        let early = Instant::now();
        let mut view = FileView::for_request(None, early);
        let began = view.began;
        view.names.insert(b"seen".to_vec(), Err(Errno::NOENT));
        let again = FileView::for_request(Some(view), began);
        assert_eq!(again.names.len(), 1);
        let later = began + std::time::Duration::from_nanos(1);
        assert!(FileView::for_request(Some(again), later).names.is_empty());
        let mut over = FileView::begin();
        let began = over.began;
        over.end();
        assert!(FileView::for_request(Some(over), began).began > began);
    }

    #[test]
    fn a_path_is_resolved_as_by_the_kernel() {
        use std::os::unix::fs::symlink;
        let root = std::env::temp_dir().join(format!("file-view-{}", std::process::id()));
        std::fs::create_dir_all(root.join("a/b/c")).unwrap();
        std::fs::write(root.join("a/b/file"), "").unwrap();
        for (text, name) in [
            ("a/b", "folder"),
            ("b/../b/file", "a/file"),
            ("nowhere", "dangling"),
            ("loop", "loop"),
            ("loop/x", "a/round"),
            ("../folder/./c/", "a/far"),
            ("1", "0"),
            ("2", "1"),
            ("3", "2"),
            ("4", "3"),
            ("5", "4"),
            ("6", "5"),
            ("7", "6"),
            ("8", "7"),
            ("9", "8"),
            ("a/b/file", "9"),
        ] {
            symlink(text, root.join(name)).unwrap();
        }
        symlink(root.join("a"), root.join("a/b/top")).unwrap();
        let names = [
            "",
            "a",
            "a/",
            "a//b/file",
            "a/b/../b/file",
            "a/b/..",
            "a/b/../",
            "a/b/c/../../b",
            "a/b/c/../../..",
            "folder",
            "folder/file",
            "folder/../file",
            "folder/..",
            "folder/../b/file",
            "a/file",
            "./a/./b",
            "a/.",
            "dangling",
            "dangling/..",
            "missing",
            "missing/..",
            "missing/../a",
            "a/missing/file",
            "a/b/file/",
            "a/b/file/..",
            "a/b/file/../file",
            "a/b/file/.",
            "folder/",
            "folder/.",
            "loop",
            "loop/..",
            "loop/../a",
            "a/round",
            "a/far",
            "a/far/",
            "a/far/../file",
            "0",
            "0/",
            "1/..",
            "8",
            "a/b/top/b/top/b/file",
            "a/b/top/../a/far",
            "../../../../../../../../..",
        ];
        let mut together = FileView::begin();
        for name in names {
            let path = root.join(name);
            let path = path.as_os_str().as_bytes();
            assert_eq!(FileView::begin().resolved(path), resolve(path), "{name}");
            assert_eq!(FileView::begin().status(path), status(path), "{name}");
            assert_eq!(FileView::begin().status_of_name(path), status_of_name(path), "{name}");
            assert_eq!(together.resolved(path), resolve(path), "{name}");
            assert_eq!(together.status(path), status(path), "{name}");
            assert_eq!(together.status_of_name(path), status_of_name(path), "{name}");
        }
        std::fs::remove_dir_all(root).unwrap();
    }
}
