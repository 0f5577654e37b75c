//! Foresees what a compile will read, so that it can be sent to a cluster: a guess, made of its command line, of the names
//! that its sources include, and of the facts of its last run.
//!
//! ```text
//! command line ─► source, folders that are searched ─► names in its text ─► every file that one of them can mean ─► their names …
//! ```
//!
//! The folders of the system are the worker's own. What it read there comes back as facts, like everything else. So a wrong
//! guess costs a run here, and never a wrong result.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path as FilePath;
use std::sync::{Arc, Mutex, PoisonError};

use super::compiler::action::Named;
use crate::cluster::message::MOST_PARTS;
use crate::facts::file_view::{status, status_of_name};
use crate::facts::includes::{self, Scan};
use crate::facts::path::below;
use crate::facts::status::Status;
use crate::observe::access::Bytes;

/// Folders that a worker has itself.
const SYSTEM: [&[u8]; 14] = [
    b"/bin", b"/boot", b"/dev", b"/etc", b"/lib", b"/lib32", b"/lib64", b"/libx32", b"/nix", b"/opt", b"/proc",
    b"/sbin", b"/sys", b"/usr",
];
/// In these a worker has what every program needs, so that they cannot come from us alone.
const SHARED: [&[u8]; 4] = [b"/run", b"/tmp", b"/var", b"/var/tmp"];
/// So many parts of a path name the folder that comes from us alone.
const PLACE_DEPTH: usize = 3;
const MOST_FILES: usize = 20_000;
/// If a source computes a name, so many headers are sent of the folders that are searched, and of those below them.
const MOST_GUESSED: usize = 2000;
const GUESSED_DEPTH: usize = 4;
const HEADERS: [&[u8]; 12] = [
    b"h", b"H", b"hh", b"hpp", b"hxx", b"h++", b"inc", b"inl", b"ipp", b"tcc", b"def", b"tbl",
];
const LARGEST_SOURCE: u64 = 64 << 20;
/// As the kernel has it.
const MOST_LINKS: usize = 40;
const MOST_SCANS: usize = 1 << 16;

/// The names in files that were read before, by device and inode.
#[derive(Default)]
pub struct Scans(Mutex<HashMap<(u64, u64), Scanned>>);

/// A file as it was when it was read, and the names in it.
type Scanned = (Status, Arc<Scan>);

/// What is sent. All paths are absolute, without links and dots, except those of links themselves.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Foreseen {
    pub files: BTreeSet<Bytes>,
    pub folders: BTreeSet<Bytes>,
    pub links: BTreeMap<Bytes, Bytes>,
}

/// Why a command cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unforeseen {
    /// It is, or one of its files is, where a worker has files of its own.
    Place,
    TooMuch,
    NoSource,
}

/// What a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    File(Bytes, Status),
    Folder(Bytes),
    OfSystem,
}

pub struct Search<'a> {
    scans: &'a Scans,
    foreseen: Foreseen,
    /// Where folders lead, as they were spelled.
    known: HashMap<Bytes, Option<Bytes>>,
}

impl Scans {
    fn of(&self, path: &[u8], status: &Status) -> Arc<Scan> {
        let key = (status.device, status.inode);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, names)) = known.get(&key).filter(|(of, _)| of == status) {
            return names.clone();
        }
        drop(known);
        let text = match status.size <= LARGEST_SOURCE {
            true => fs::read(OsStr::from_bytes(path)).unwrap_or_default(),
            false => Vec::new(),
        };
        let names = Arc::new(includes::scan(&text));
        known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_SCANS {
            known.clear();
        }
        known.insert(key, (*status, names.clone()));
        names
    }
}

pub fn is_of_system(path: &[u8]) -> bool {
    let is_in = |folder: &[u8]| {
        path.strip_prefix(folder)
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    };
    SYSTEM.iter().any(|folder| is_in(folder))
}

fn joined(folder: &[u8], name: &[u8]) -> Bytes {
    match (name.first(), folder.last()) {
        (Some(b'/'), _) => name.to_vec(),
        (_, Some(b'/')) => [folder, name].concat(),
        _ => [folder, b"/", name].concat(),
    }
}

/// A path's folder and its last part, which may be empty.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    (&path[..slash.max(1)], path.get(slash + 1..).unwrap_or_default())
}

impl<'a> Search<'a> {
    pub fn new(scans: &'a Scans) -> Search<'a> {
        Search {
            scans,
            foreseen: Foreseen::default(),
            known: HashMap::from([(b"/".to_vec(), Some(b"/".to_vec()))]),
        }
    }

    /// Where a folder really is. Links on the way are noted.
    fn real_folder(&mut self, path: &[u8], depth: usize) -> Option<Bytes> {
        if let Some(known) = self.known.get(path) {
            return known.clone();
        }
        let (above, name) = split(path);
        let real = self.real_folder(above, depth).and_then(|above| match name {
            b"" | b"." => Some(above),
            b".." => {
                // It must be there, although nothing in it may be needed.
                self.note_folder(&above);
                Some(split(&above).0.to_vec())
            }
            name => match self.look(&above, name, depth)? {
                Found::Folder(real) => Some(real),
                Found::File(..) | Found::OfSystem => None,
            },
        });
        self.known.insert(path.to_vec(), real.clone());
        real
    }

    /// What a name in a real folder leads to.
    fn look(&mut self, folder: &[u8], name: &[u8], depth: usize) -> Option<Found> {
        let path = joined(folder, name);
        if is_of_system(&path) {
            return Some(Found::OfSystem);
        }
        let status = status_of_name(&path).ok()?;
        match status.mode & libc::S_IFMT {
            libc::S_IFREG => Some(Found::File(path, status)),
            libc::S_IFDIR => Some(Found::Folder(path)),
            libc::S_IFLNK if depth < MOST_LINKS => {
                let text = fs::read_link(OsStr::from_bytes(&path)).ok()?;
                let text = text.as_os_str().as_bytes().to_vec();
                let target = joined(folder, &text);
                self.foreseen.links.insert(path, text);
                self.find(&target, depth + 1)
            }
            _ => None,
        }
    }

    fn find(&mut self, path: &[u8], depth: usize) -> Option<Found> {
        let (above, name) = split(path);
        if is_of_system(path) && !path.windows(3).any(|part| part == b"/..") {
            return Some(Found::OfSystem);
        }
        match name {
            b"" | b"." | b".." => self.real_folder(path, depth).map(Found::Folder),
            name => {
                let above = self.real_folder(above, depth)?;
                self.look(&above, name, depth)
            }
        }
    }

    fn note_folder(&mut self, real: &[u8]) {
        if !is_of_system(real) && real.len() > 1 {
            self.foreseen.folders.insert(real.to_vec());
        }
    }

    /// Adds what is at an absolute path, if anything is.
    pub fn add(&mut self, path: &[u8]) {
        match self.find(path, 0) {
            Some(Found::File(real, _)) => drop(self.foreseen.files.insert(real)),
            Some(Found::Folder(real)) => self.note_folder(&real),
            Some(Found::OfSystem) | None => {}
        }
    }

    /// Adds a folder whose name is sent anyway, unless it is one that each machine has for itself.
    pub fn add_named_folder(&mut self, path: &[u8]) {
        if let Some(Found::Folder(real)) = self.find(path, 0) {
            if places(std::iter::once(real.clone())).is_ok() {
                self.note_folder(&real);
            }
        }
    }

    /// Adds what another machine says that the command needs, but nothing outside of the folders in which the command has
    /// something anyway, and nothing hidden there. Otherwise that machine could have any file sent.
    pub fn add_asked(&mut self, paths: &[Bytes]) -> Result<(), Unforeseen> {
        let places = self.places()?;
        let may_be_asked = |real: &Bytes| {
            let mut rest = places.iter().filter_map(|place| below(place, real));
            rest.any(|rest| !rest.split(|byte| *byte == b'/').any(|part| part.starts_with(b".")))
        };
        for path in paths {
            match self.find(path, 0) {
                Some(Found::File(real, _)) if may_be_asked(&real) => drop(self.foreseen.files.insert(real)),
                Some(Found::Folder(real)) if may_be_asked(&real) => self.note_folder(&real),
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds a source, and each file that one of the names in it can mean, as long as there are such.
    pub fn add_sources(&mut self, folder: &[u8], named: &Named) -> Result<(), Unforeseen> {
        let mut searched = Vec::new();
        let mut sources = vec![joined(folder, &named.source)];
        for path in &named.paths {
            let path = joined(folder, path);
            match self.find(&path, 0) {
                Some(Found::Folder(real)) => {
                    self.note_folder(&real);
                    searched.push(path);
                }
                Some(Found::File(..)) => {
                    // A header that was compiled before takes its place.
                    self.add(&[&path[..], b".gch"].concat());
                    sources.push(path);
                }
                Some(Found::OfSystem) | None => {}
            }
        }
        named
            .response_files
            .iter()
            .for_each(|file| self.add(&joined(folder, file)));
        let mut tried: HashSet<Bytes> = HashSet::new();
        let (mut is_first, mut is_computed) = (true, false);
        for include in &named.defined {
            let own = split(&sources[0]).0.to_vec();
            sources.extend(
                searched
                    .iter()
                    .chain([&own])
                    .map(|folder| joined(folder, &include.name)),
            );
        }
        // The source is looked at first, the last of the others.
        sources.reverse();
        loop {
            let Some(path) = sources.pop() else {
                if !std::mem::take(&mut is_computed) {
                    break;
                }
                let own = split(&joined(folder, &named.source)).0.to_vec();
                let mut left = MOST_GUESSED;
                for folder in searched.iter().chain([&own]) {
                    headers_in(folder, GUESSED_DEPTH, &mut left, &mut sources);
                }
                // Each of them may compute names, too, but there are no others.
                sources.retain(|path| tried.insert(path.clone()));
                continue;
            };
            let Some(Found::File(real, status)) = self.find(&path, 0) else {
                continue;
            };
            if !self.foreseen.files.insert(real.clone()) && !is_first {
                continue;
            }
            is_first = false;
            if self.foreseen.files.len() > MOST_FILES {
                return Err(Unforeseen::TooMuch);
            }
            let own = split(&path).0.to_vec();
            let scan = self.scans.of(&real, &status);
            is_computed |= scan.is_computed;
            for include in &scan.includes {
                let own = include.is_quoted.then_some(&own);
                for folder in own.into_iter().chain(&searched) {
                    let candidate = joined(folder, &include.name);
                    if tried.insert(candidate.clone()) {
                        sources.push(candidate);
                    }
                }
            }
        }
        match self.find(&joined(folder, &named.source), 0) {
            Some(Found::File(..)) => Ok(()),
            _ => Err(Unforeseen::NoSource),
        }
    }

    /// All that was found, and the folders in which nothing else may be.
    pub fn finish(self) -> Result<(Foreseen, Vec<Bytes>), Unforeseen> {
        let places = self.places()?;
        let foreseen = self.foreseen;
        let parts = foreseen.files.len() + foreseen.folders.len() + foreseen.links.len();
        match parts > MOST_PARTS {
            true => Err(Unforeseen::TooMuch),
            false => Ok((foreseen, places)),
        }
    }

    fn places(&self) -> Result<Vec<Bytes>, Unforeseen> {
        let Foreseen { files, folders, links } = &self.foreseen;
        let above = files.iter().chain(links.keys()).map(|path| split(path).0.to_vec());
        let all = above.chain(folders.iter().cloned());
        places(all.filter(|folder| folder.len() > 1))
    }
}

/// The topmost folders around these that can be ours alone.
fn places(folders: impl Iterator<Item = Bytes>) -> Result<Vec<Bytes>, Unforeseen> {
    let mut places = BTreeSet::new();
    for folder in folders {
        let parts: Vec<&[u8]> = folder.split(|byte| *byte == b'/').skip(1).take(PLACE_DEPTH).collect();
        let place = [b"/".to_vec(), parts.join(&b'/')].concat();
        if SHARED.contains(&&place[..]) || place.contains(&b':') {
            return Err(Unforeseen::Place);
        }
        places.insert(place);
    }
    let mut topmost: Vec<Bytes> = Vec::new();
    for place in places {
        let is_inside = |above: &Bytes| {
            place
                .strip_prefix(&above[..])
                .is_some_and(|rest| rest.starts_with(b"/"))
        };
        if !topmost.iter().any(is_inside) {
            topmost.push(place);
        }
    }
    Ok(topmost)
}

/// All files below a folder that look like headers.
fn headers_in(folder: &[u8], depth: usize, left: &mut usize, found: &mut Vec<Bytes>) {
    let entries = fs::read_dir(OsStr::from_bytes(folder)).into_iter().flatten().flatten();
    for entry in entries {
        if *left == 0 {
            return;
        }
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let ending = path.extension().map(OsStr::as_bytes).unwrap_or_default();
        let path = path.as_os_str().as_bytes();
        if is_folder && depth > 0 {
            headers_in(path, depth - 1, left, found);
        } else if !is_folder && HEADERS.contains(&ending) {
            *left -= 1;
            found.push(path.to_vec());
        }
    }
}

/// Whether a program is one that a worker has itself.
pub fn is_program_of_system(real: &FilePath) -> bool {
    is_of_system(real.as_os_str().as_bytes()) && status(real.as_os_str().as_bytes()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Tree {
            let root = std::env::temp_dir().join(format!("wafcc-foresee-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            fs::create_dir_all(&root).unwrap();
            Tree(fs::canonicalize(root).unwrap())
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn bytes(&self, name: &str) -> Bytes {
            self.0.join(name).as_os_str().as_bytes().to_vec()
        }

        fn shown<'a>(&self, paths: impl IntoIterator<Item = &'a Bytes>) -> Vec<String> {
            let root = self.0.as_os_str().as_bytes();
            let own = paths
                .into_iter()
                .filter_map(|path| path.strip_prefix(root)?.strip_prefix(b"/"));
            own.map(|path| String::from_utf8(path.to_vec()).unwrap()).collect()
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn named(source: &str, paths: &[&str]) -> Named {
        Named {
            source: source.into(),
            paths: paths.iter().map(|path| path.as_bytes().to_vec()).collect(),
            response_files: Vec::new(),
            defined: Vec::new(),
        }
    }

    #[test]
    fn every_file_that_a_name_can_mean_is_sent() {
        let tree = Tree::new("names");
        tree.write(
            "src/a.c",
            "#include \"a.h\"\n#include <b.h>\n#include <stdio.h>\n#include \"none.h\"\n",
        );
        tree.write("src/a.h", "#include \"deep/c.h\"\n");
        tree.write("inc/b.h", "#include \"a.h\"\n");
        tree.write("inc/a.h", "");
        tree.write("inc/deep/c.h", "");
        tree.write("inc/other.h", "");
        let scans = Scans::default();
        let mut search = Search::new(&scans);
        search
            .add_sources(
                &tree.bytes("build/.."),
                &named("src/a.c", &["inc", "/usr/include", "missing"]),
            )
            .unwrap_err();
        fs::create_dir(tree.0.join("build")).unwrap();
        let mut search = Search::new(&scans);
        search
            .add_sources(
                &tree.bytes("build"),
                &named("../src/a.c", &["../inc", "/usr/include", "missing"]),
            )
            .unwrap();
        let (foreseen, places) = search.finish().unwrap();
        let expected = ["inc/a.h", "inc/b.h", "inc/deep/c.h", "src/a.c", "src/a.h"];
        assert_eq!(tree.shown(&foreseen.files), expected);
        assert_eq!(tree.shown(&foreseen.folders), ["build", "inc"]);
        let root = tree.0.as_os_str().as_bytes();
        let is_around = |place: &Bytes| place.starts_with(root) || root.starts_with(place);
        assert!(!places.is_empty() && places.iter().all(is_around), "{places:?}");
    }

    #[test]
    fn a_name_that_is_computed_may_be_each_header() {
        let tree = Tree::new("computed");
        tree.write("a.c", "#define NAME(x) <x.h>\n#include NAME(b)\n");
        tree.write("inc/b.h", "#include NAME(c)\n");
        tree.write("inc/deep/c.h", "");
        tree.write("inc/notes.txt", "");
        let scans = Scans::default();
        let mut search = Search::new(&scans);
        search.add_sources(&tree.bytes(""), &named("a.c", &["inc"])).unwrap();
        let (foreseen, _) = search.finish().unwrap();
        assert_eq!(tree.shown(&foreseen.files), ["a.c", "inc/b.h", "inc/deep/c.h"]);
    }

    #[test]
    fn a_header_that_the_command_line_names_is_sent() {
        let tree = Tree::new("defined");
        tree.write("a.c", "#include CONFIG\n");
        tree.write("inc/config.h", "");
        let scans = Scans::default();
        let mut search = Search::new(&scans);
        let mut named = named("a.c", &["inc"]);
        named.defined.extend(includes::name(b"<config.h>"));
        search.add_sources(&tree.bytes(""), &named).unwrap();
        assert_eq!(tree.shown(&search.finish().unwrap().0.files), ["a.c", "inc/config.h"]);
    }

    #[test]
    fn links_on_the_way_are_sent_as_links() {
        let tree = Tree::new("links");
        tree.write("real/a.c", "#include \"b.h\"\n");
        tree.write("real/c.h", "");
        symlink("c.h", tree.0.join("real/b.h")).unwrap();
        symlink("real", tree.0.join("src")).unwrap();
        symlink("/usr", tree.0.join("system")).unwrap();
        let scans = Scans::default();
        let mut search = Search::new(&scans);
        search
            .add_sources(&tree.bytes(""), &named("src/a.c", &["system/include"]))
            .unwrap();
        let (foreseen, _) = search.finish().unwrap();
        assert_eq!(tree.shown(&foreseen.files), ["real/a.c", "real/c.h"]);
        assert_eq!(tree.shown(foreseen.links.keys()), ["real/b.h", "src", "system"]);
    }

    #[test]
    fn another_machine_can_ask_for_no_file_elsewhere() {
        let tree = Tree::new("asked");
        for name in ["p/src/x.c", "p/inc/x.h", "p/.netrc", "p/.git/config", "q/x.h"] {
            tree.write(name, "");
        }
        symlink("../q", tree.0.join("p/way")).unwrap();
        let scans = Scans::default();
        let mut search = Search::new(&scans);
        search.add(&tree.bytes("p/src/x.c"));
        let places = search.places().unwrap();
        let asked = ["inc/x.h", ".netrc", ".git/config", "way/x.h", "src/../../q/x.h"];
        search
            .add_asked(&asked.map(|name| tree.bytes(&format!("p/{name}"))))
            .unwrap();
        let files = search.finish().unwrap().0.files;
        let is_inside = |path: &Bytes| places.iter().any(|place| below(place, path).is_some());
        assert!(files.iter().all(is_inside), "{files:?}");
        let visible: Vec<_> = tree
            .shown(&files)
            .into_iter()
            .filter(|name| name.starts_with("p/"))
            .collect();
        assert_eq!(visible, ["p/inc/x.h", "p/src/x.c"]);
    }

    #[test]
    fn a_loop_of_links_is_nothing() {
        let tree = Tree::new("loop");
        symlink("b", tree.0.join("a")).unwrap();
        symlink("a", tree.0.join("b")).unwrap();
        let scans = Scans::default();
        let mut search = Search::new(&scans);
        search.add(&tree.bytes("a"));
        search.add(&tree.bytes("a/x"));
        assert!(search.finish().unwrap().0.files.is_empty());
    }

    #[test]
    fn places_are_the_topmost_folders_that_can_be_ours() {
        let of = |folders: &[&str]| {
            let all = places(folders.iter().map(|folder| folder.as_bytes().to_vec()));
            all.map(|all| {
                all.into_iter()
                    .map(|place| String::from_utf8(place).unwrap())
                    .collect::<Vec<_>>()
            })
        };
        assert_eq!(of(&["/home/u/p/src", "/home/u/p/build/deep"]).unwrap(), ["/home/u/p"]);
        assert_eq!(of(&["/work", "/work/a/b", "/home/u"]).unwrap(), ["/home/u", "/work"]);
        assert_eq!(of(&["/tmp/x/y/z"]).unwrap(), ["/tmp/x/y"]);
        assert_eq!(of(&["/a", "/a b", "/a/c"]).unwrap(), ["/a", "/a b"]);
        for folder in ["/tmp", "/var/tmp", "/home/a:b"] {
            assert_eq!(of(&[folder]), Err(Unforeseen::Place), "{folder}");
        }
    }

    #[test]
    fn folders_of_the_system_are_the_workers_own() {
        assert!(is_of_system(b"/usr/include/x.h") && is_of_system(b"/lib64"));
        assert!(!is_of_system(b"/home/usr") && !is_of_system(b"/library/x"));
    }
}
