//! Paths in the form that facts have. They are relative to the command's folder or to a base folder, if the command named
//! them so. Then two checkouts can share the fact.
//!
//! Pure. Links and `..` are left alone: the file system resolves them, each time anew.

use std::fmt;

/// The longest path of a system call.
pub const LONGEST: usize = 4096;

/// The start of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Root {
    Absolute,
    /// It was given relative to the folder in which the command began.
    Folder,
    /// It was given as a name that begins with that of the base folder with this number.
    Base(u8),
}

impl Root {
    /// The number that stands for it in entries.
    pub fn number(self) -> u8 {
        match self {
            Root::Absolute => 0,
            Root::Folder => 1,
            Root::Base(number) => 2 + number,
        }
    }

    pub fn of_number(number: u8) -> Option<Root> {
        match number {
            0 => Some(Root::Absolute),
            1 => Some(Root::Folder),
            number => Some(Root::Base(number - 2)).filter(|_| usize::from(number) < 2 + MOST_BASES),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path {
    pub root: Root,
    /// Without a slash at its beginning, unless the root is `Absolute`. With one at its end, if it must be a folder. A zero and
    /// a digit stand for the name of a known folder that is amid the path, if the place leaves these out.
    pub rest: Vec<u8>,
}

/// The command's folder, and the folders whose names do not matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    folder: Vec<u8>,
    bases: Vec<Vec<u8>>,
    /// Folders that files may name which a command reads: the bases, and others that its command line need not leave out.
    known_folders: Vec<Vec<u8>>,
    /// Paths leave out the names of known folders that are amid them.
    leaves_amid: bool,
}

/// How many bases a path can tell apart: those that a user may set (`MOST_FOLDERS`), and those that are found.
pub const MOST_BASES: usize = 16;

impl Place {
    /// All are absolute. The root folder is not accepted as a base.
    pub fn new<'a>(folder: &[u8], bases: impl IntoIterator<Item = &'a [u8]>) -> Place {
        let plain = |path: &[u8]| trimmed(&tidy(path)).to_vec();
        let bases = bases.into_iter().map(plain);
        Place {
            folder: plain(folder),
            bases: bases.filter(|base| base.len() > 1 && base[0] == b'/').collect(),
            known_folders: Vec::new(),
            leaves_amid: false,
        }
    }

    /// For a command whose key leaves the names of known folders out of paths that have them amid others.
    pub fn leaving_amid(mut self, leaves_amid: bool) -> Place {
        self.leaves_amid = leaves_amid;
        self
    }

    pub fn leaves_amid(&self) -> bool {
        self.leaves_amid
    }

    pub fn with_known_folders(mut self, folders: &[Vec<u8>]) -> Place {
        self.known_folders = folders.to_vec();
        self
    }

    pub fn known_folders(&self) -> &[Vec<u8>] {
        &self.known_folders
    }

    pub fn folder(&self) -> &[u8] {
        &self.folder
    }

    pub fn bases(&self) -> &[Vec<u8>] {
        &self.bases
    }

    /// A path as a process in the folder `at` gave it.
    pub fn path(&self, at: &Path, given: &[u8]) -> Path {
        if given.first() == Some(&b'/') {
            return self.left_out(self.rooted(tidy(given)));
        }
        let separator: &[u8] = if at.rest.ends_with(b"/") { b"" } else { b"/" };
        let rest = match at.rest.is_empty() {
            true => tidy(given),
            false => tidy(&[at.rest.as_slice(), separator, given].concat()),
        };
        self.left_out(Path { root: at.root, rest })
    }

    fn left_out(&self, mut path: Path) -> Path {
        if self.leaves_amid {
            path.rest = without_amid(&path.rest, &self.known_folders).unwrap_or(path.rest);
        }
        path
    }

    /// In the innermost base, if one base is in another.
    fn rooted(&self, absolute: Vec<u8>) -> Path {
        let bases = self.bases.iter().enumerate();
        let around = bases.filter_map(|(number, base)| Some((number, below(base, &absolute)?)));
        match around.min_by_key(|(_, rest)| rest.len()) {
            Some((number, rest)) => Path {
                root: Root::Base(number as u8),
                rest: rest.to_vec(),
            },
            None => Path {
                root: Root::Absolute,
                rest: absolute,
            },
        }
    }

    /// A path as a process in the folder `at` spelled it, if that is the command's folder or the path is absolute.
    pub fn spelled(&self, at: &Path, given: &[u8]) -> Path {
        match given.first() {
            Some(b'/') => self.rooted(given.to_vec()),
            _ if at.rest.is_empty() => Path {
                root: at.root,
                rest: given.to_vec(),
            },
            _ => self.path(at, given),
        }
    }

    /// The name without links to which `path` leads, in the form that other checkouts can share: relative to the command's
    /// folder if it is below that folder, or if `path` itself is relative and no link leads away from it.
    ///
    /// A name that is shorter than the path stays absolute. gcc uses the shorter one of both for a header of the system, so
    /// that it is in dependency files and in `__FILE__`.
    pub fn resolved(&self, path: &Path, name: &[u8]) -> Path {
        let spelled = match path.root {
            Root::Folder => path.rest.len(),
            Root::Absolute | Root::Base(_) => self.absolute(path).len(),
        };
        let here = |rest: &[u8]| Path {
            root: Root::Folder,
            rest: rest.to_vec(),
        };
        let rooted = self.rooted(name.to_vec());
        match below(&self.folder, name) {
            _ if name.len() < spelled => Path {
                root: Root::Absolute,
                rest: name.to_vec(),
            },
            // The base may be below the command's folder.
            _ if matches!(path.root, Root::Base(_)) && path.root == rooted.root => rooted,
            Some(rest) => here(rest),
            None if path.root == Root::Folder && lexically_normal(&self.absolute(path)) == name => {
                here(&between(&self.folder, name))
            }
            None => rooted,
        }
    }

    /// Writes the path's absolute name over what `name` holds.
    pub fn write(&self, path: &Path, name: &mut Vec<u8>) {
        name.clear();
        match path.root {
            Root::Absolute => {}
            Root::Folder => name.extend_from_slice(&self.folder),
            // An entry that was made with a base is found only with a base: bases are part of the key.
            Root::Base(number) => {
                let base = self.bases.get(usize::from(number));
                name.extend_from_slice(base.map_or(b"/no-base-folder", Vec::as_slice));
            }
        }
        if path.root != Root::Absolute && !path.rest.is_empty() && !name.ends_with(b"/") {
            name.push(b'/');
        }
        self.write_rest(path, name);
    }

    fn write_rest(&self, path: &Path, name: &mut Vec<u8>) {
        let mut rest = &path.rest[..];
        // No name in a file system has a zero.
        while let Some(at) = memchr::memchr(0, rest).filter(|_| self.leaves_amid) {
            name.extend_from_slice(&rest[..at]);
            let number = rest
                .get(at + 1)
                .map_or(usize::MAX, |digit| usize::from(digit.wrapping_sub(b'0')));
            let folder = self.known_folders.get(number);
            name.extend_from_slice(folder.map_or(b"/no-known-folder", Vec::as_slice));
            rest = rest.get(at + 2..).unwrap_or_default();
        }
        name.extend_from_slice(rest);
    }

    pub fn absolute(&self, path: &Path) -> Vec<u8> {
        let root = match path.root {
            Root::Absolute => 0,
            Root::Folder => self.folder.len(),
            Root::Base(number) => self.bases.get(usize::from(number)).map_or(0, Vec::len),
        };
        let mut name = Vec::with_capacity(root + 1 + path.rest.len());
        self.write(path, &mut name);
        name
    }

    /// The path as it was given, for people.
    pub fn show(&self, path: &Path) -> String {
        let name = match path.root {
            Root::Folder if !path.rest.is_empty() => {
                let mut name = Vec::new();
                self.write_rest(path, &mut name);
                name
            }
            _ => self.absolute(path),
        };
        String::from_utf8_lossy(&name).into_owned()
    }
}

impl Path {
    /// The folder in which a command begins.
    pub fn here() -> Path {
        Path {
            root: Root::Folder,
            rest: Vec::new(),
        }
    }

    /// The name of a known folder is left out amid it.
    pub fn leaves_amid(&self) -> bool {
        self.rest.contains(&0)
    }
}

/// A path with a zero and a digit for each of these folders whose whole name is in it, but not at its beginning. None if there
/// is none.
pub fn without_amid(path: &[u8], folders: &[Vec<u8>]) -> Option<Vec<u8>> {
    // Most paths name none.
    let after_first = path.get(1..).unwrap_or_default();
    if !folders
        .iter()
        .any(|folder| memchr::memmem::find(after_first, folder).is_some())
    {
        return None;
    }
    without_names(path, folders, |at, folder| {
        at > 0 && folder.starts_with(b"/") && folder.len() > 1 && below(folder, &path[at..]).is_some()
    })
}

/// A text with a zero and a digit for each of these folders whose name is at a place where it counts: the longest one that is
/// there. None if there is none.
pub fn without_names(text: &[u8], folders: &[Vec<u8>], counts: impl Fn(usize, &[u8]) -> bool) -> Option<Vec<u8>> {
    let mut kept = Vec::with_capacity(text.len());
    let mut at = 0;
    let mut is_found = false;
    while at < text.len() {
        let here = (b'0'..=b'9').zip(folders).filter(|(_, folder)| counts(at, folder));
        match here.max_by_key(|(_, folder)| folder.len()) {
            Some((digit, folder)) => {
                kept.extend([0, digit]);
                at += folder.len();
                is_found = true;
            }
            None => {
                kept.push(text[at]);
                at += 1;
            }
        }
    }
    is_found.then_some(kept)
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = String::from_utf8_lossy(&self.rest);
        match self.root {
            Root::Absolute => write!(f, "{rest}"),
            Root::Folder if rest.is_empty() => write!(f, "."),
            Root::Folder => write!(f, "{rest}"),
            Root::Base(0) => write!(f, "BASE/{rest}"),
            Root::Base(number) => write!(f, "BASE{number}/{rest}"),
        }
    }
}

/// Whether `tidy` leaves an absolute path as it is. It may say no without need.
pub fn is_tidy(path: &[u8]) -> bool {
    let is_odd = |at: usize| matches!(path.get(at + 1), None | Some(b'/' | b'.'));
    !memchr::memchr_iter(b'/', path).any(is_odd)
}

/// Without parts that lead nowhere: `//`, `/./`. `x/..` stays: x may be a link, or may not exist.
pub fn tidy(path: &[u8]) -> Vec<u8> {
    let mut tidied = Vec::with_capacity(path.len() + 1);
    if path.first() == Some(&b'/') {
        tidied.push(b'/');
    }
    let parts = path
        .split(|b| *b == b'/')
        .filter(|part| !part.is_empty() && *part != b".");
    for part in parts {
        tidied.extend_from_slice(part);
        tidied.push(b'/');
    }
    // `x/` and `x/.` are refused if x is a file.
    if !path.ends_with(b"/") && !path.ends_with(b"/.") && tidied.len() > 1 {
        tidied.pop();
    }
    tidied
}

/// An absolute path without `..`, as if there were no links.
pub fn lexically_normal(path: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    for name in path.split(|b| *b == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    [b"/".as_slice(), &names.join(&b'/')].concat()
}

/// The way from a folder to a path. Both are absolute, and have neither links nor `..`.
fn between(folder: &[u8], path: &[u8]) -> Vec<u8> {
    let parts = |path: &'_ [u8]| -> Vec<Vec<u8>> {
        let names = path.split(|b| *b == b'/').filter(|name| !name.is_empty());
        names.map(<[u8]>::to_vec).collect()
    };
    let (from, to) = (parts(folder), parts(path));
    let common = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
    let up = from[common..].iter().map(|_| b"..".to_vec());
    up.chain(to[common..].iter().cloned()).collect::<Vec<_>>().join(&b'/')
}

/// Without a slash at the end, unless the path is `/`.
pub fn trimmed(path: &[u8]) -> &[u8] {
    match path {
        [start @ .., b'/'] if !start.is_empty() => start,
        _ => path,
    }
}

/// What follows the last slash.
pub fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// The folder and the last name of a path, if it has one: neither `..` nor a name with a slash at its end is one.
pub fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = path.iter().rposition(|b| *b == b'/')?;
    let (folder, name) = (&path[..at.max(1)], &path[at + 1..]);
    (!matches!(name, b"" | b"." | b"..")).then_some((folder, name))
}

/// Whether the path is in none of the bases, and would still be changed by a prefix map of one: it begins with the base's name.
pub fn is_beside(path: &[u8], bases: &[Vec<u8>]) -> bool {
    let begins = |base: &Vec<u8>| path.starts_with(base);
    bases.iter().any(begins) && bases.iter().all(|base| below(base, path).is_none())
}

/// The rest of a path after a folder's name, if it is below that folder, or is the folder.
pub fn below<'a>(folder: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(folder)?;
    match rest {
        [] => Some(rest),
        [b'/', rest @ ..] => Some(rest),
        _ if folder == b"/" => Some(rest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tidied(path: &str) -> String {
        String::from_utf8(tidy(path.as_bytes())).unwrap()
    }

    #[test]
    fn parts_without_effect_are_left_out() {
        assert_eq!(tidied("//a/./b//c"), "/a/b/c");
        assert_eq!(tidied("./a/../b"), "a/../b");
        assert_eq!(tidied("a/"), "a/");
        assert_eq!(tidied("a/."), "a/");
        assert_eq!(tidied("."), "");
        assert_eq!(tidied("/"), "/");
        assert_eq!(tidied("/."), "/");
        assert_eq!(tidied(".."), "..");
        for path in [
            "/", "//", "/a", "/a/", "/a/.", "/a/./b", "/a//b", "/a/b", "/a/.b", "//a", "/a/..", "/a.b/c.",
        ] {
            let is_same = tidied(path) == path;
            assert!(is_same || !is_tidy(path.as_bytes()), "{path}");
        }
        assert!(is_tidy(b"/a.b/c") && !is_tidy(b"/a/."));
    }

    #[test]
    fn relative_paths_and_paths_below_the_base_move_with_the_checkout() {
        let place = Place::new(b"/w/build/", [&b"/w"[..]]);
        let other = Place::new(b"/v/build", [&b"/v"[..]]);
        for (given, there) in [
            ("../a.h", "/v/build/../a.h"),
            ("/w/a.h", "/v/a.h"),
            ("/w/build/a.h", "/v/build/a.h"),
            ("/wo/a.h", "/wo/a.h"),
            ("/usr/a.h", "/usr/a.h"),
            (".", "/v/build"),
        ] {
            let path = place.path(&Path::here(), given.as_bytes());
            assert_eq!(other.absolute(&path), there.as_bytes(), "{given}");
        }
    }

    #[test]
    fn a_path_belongs_to_the_innermost_of_its_bases() {
        let place = Place::new(b"/w/build", [&b"/w"[..], b"/tmp/b", b"/w/build"]);
        let other = Place::new(b"/x/y", [&b"/v"[..], b"/x", b"/x/y"]);
        for (given, root, there) in [
            ("/w/a.h", Root::Base(0), "/v/a.h"),
            ("/tmp/b/a.h", Root::Base(1), "/x/a.h"),
            ("/w/build/a.h", Root::Base(2), "/x/y/a.h"),
            ("/w/buildings/a.h", Root::Base(0), "/v/buildings/a.h"),
            ("/tmp/bc", Root::Absolute, "/tmp/bc"),
        ] {
            let path = place.path(&Path::here(), given.as_bytes());
            assert_eq!((path.root, other.absolute(&path)), (root, there.into()), "{given}");
        }
    }

    #[test]
    fn without_a_base_an_absolute_name_stays_one_even_below_the_commands_folder() {
        let place = Place::new(b"/w", None);
        assert_eq!(place.path(&Path::here(), b"/w/a.h").root, Root::Absolute);
    }

    #[test]
    fn what_a_relative_path_leads_to_is_relative_if_no_link_leads_away_and_it_is_no_shorter() {
        let place = Place::new(b"/w/build/deep", None);
        let resolved = |given: &str, name: &str| {
            let path = place.spelled(&Path::here(), given.as_bytes());
            place.resolved(&path, name.as_bytes()).to_string()
        };
        for (given, name, expected) in [
            ("a.h", "/w/build/deep/a.h", "a.h"),
            ("../../f.c", "/w/f.c", "/w/f.c"),
            ("../x/f.c", "/w/build/x/f.c", "../x/f.c"),
            (".././x//f.c", "/w/build/x/f.c", "../x/f.c"),
            ("../x/f.c", "/elsewhere/f.c", "/elsewhere/f.c"),
            (
                "a/b/c/d/e/f/../../../../../../a.h",
                "/w/build/deep/a.h",
                "/w/build/deep/a.h",
            ),
            ("/w/build/x/f.c", "/w/build/x/f.c", "/w/build/x/f.c"),
            ("..", "/w/build", "../"),
        ] {
            assert_eq!(
                resolved(given, name).trim_end_matches('/'),
                expected.trim_end_matches('/'),
                "{given}"
            );
        }
    }

    #[test]
    fn the_name_of_a_known_folder_amid_a_path_moves_with_the_checkout() {
        let place = |folder: &[u8]| {
            let known = [folder.to_vec(), [folder, b"/sub"].concat()];
            Place::new(b"/build", None)
                .with_known_folders(&known)
                .leaving_amid(true)
        };
        let (one, other) = (place(b"/home/one"), place(b"/v"));
        for (given, there) in [
            ("inc/home/one/x.h", "/build/inc/v/x.h"),
            ("../inc//home/one/../../x.h", "/build/../inc/v/../../x.h"),
            ("inc/home/one", "/build/inc/v"),
            ("inc/home/one/sub/x.h", "/build/inc/v/sub/x.h"),
            ("a/home/one/b/home/one/x.h", "/build/a/v/b/v/x.h"),
            ("/opt/home/one/x.h", "/opt/v/x.h"),
            // these stay as they are
            ("inc/home/ones/x.h", "/build/inc/home/ones/x.h"),
            ("home/one/x.h", "/build/home/one/x.h"),
            ("/home/one/x.h", "/home/one/x.h"),
        ] {
            let path = one.path(&Path::here(), given.as_bytes());
            assert_eq!(String::from_utf8_lossy(&other.absolute(&path)), there, "{given}");
            assert_eq!(
                one.absolute(&path),
                one.absolute(&one.path(&Path::here(), &one.absolute(&path)))
            );
            assert_eq!(path.leaves_amid(), there.contains("/v"), "{given}");
        }
        // a stranger's entry
        for rest in [&b"a\0"[..], b"a\09/x", b"a\0/x"] {
            let path = Path {
                root: Root::Folder,
                rest: rest.to_vec(),
            };
            assert!(one.absolute(&path).starts_with(b"/build/a/no-known-folder"));
        }
    }

    #[test]
    fn only_a_name_is_found_in_a_folder() {
        assert_eq!(split(b"/a"), Some((&b"/"[..], &b"a"[..])));
        assert_eq!(split(b"/a/b"), Some((&b"/a"[..], &b"b"[..])));
        assert_eq!(split(b"/a/.."), None);
        assert_eq!(split(b"/a/"), None);
    }
}
