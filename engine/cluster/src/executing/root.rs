//! The input root of a command: a tree of folders that mirrors `/`, as far as the command is thought to need it.
//!
//! A path may lead through links. Each of them is in the tree, and so is what it leads to, if that lies in one of the places
//! that the worker gets from us. What lies elsewhere is the system, of which the worker has its own.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;

use super::files::{Files, Found};
use crate::contents::Source;
use crate::digests::Digest;
use crate::reapi::{Directory, DirectoryNode, FileNode, SymlinkNode};

/// As many links as the system follows.
const MOST_LINKS: usize = 40;

#[derive(Default)]
struct Folder {
    folders: BTreeMap<String, Folder>,
    leaves: BTreeMap<String, Leaf>,
}

enum Leaf {
    File { digest: Digest, is_program: bool },
    Link { target: String },
}

/// Gathers what the input root of one command has.
pub struct Root<'a> {
    files: &'a Files,
    places: &'a [PathBuf],
    seen: HashMap<PathBuf, Found>,
    top: Folder,
    sources: HashMap<Digest, Source>,
}

/// The digest of an input root, and all that the cluster must have of it.
pub struct Built {
    pub digest: Digest,
    pub blobs: Vec<(Digest, Source)>,
}

/// Why a path cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsendable(pub String);

impl<'a> Root<'a> {
    /// `places` are absolute, and no links lead to them.
    pub fn new(files: &'a Files, places: &'a [PathBuf]) -> Root<'a> {
        Root {
            files,
            places,
            seen: HashMap::new(),
            top: Folder::default(),
            sources: HashMap::new(),
        }
    }

    /// Adds what is at a path, and the folders and links on the way to it. A path at which nothing is adds its folders.
    pub fn add(&mut self, path: &Path) -> Result<(), Unsendable> {
        let mut left: VecDeque<OsString> = names(path);
        let mut here = PathBuf::from("/");
        let mut links = 0;
        while let Some(name) = left.pop_front() {
            if name == ".." {
                here.pop();
                continue;
            }
            here.push(name);
            if !self.is_ours(&here) {
                continue;
            }
            match self.look(&here) {
                Found::Nothing | Found::Other => return Ok(()),
                Found::Folder => {
                    self.folder(&here)?;
                }
                Found::File { digest, is_program } => {
                    self.leaf(&here, Leaf::File { digest, is_program })?;
                    self.sources.insert(digest, Source::File(here));
                    return Ok(());
                }
                Found::Link { target } => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Ok(());
                    }
                    let text = text_of(&target)?;
                    self.leaf(&here, Leaf::Link { target: text })?;
                    if target.is_absolute() {
                        here = PathBuf::from("/");
                    } else {
                        here.pop();
                    }
                    let mut further = names(&target);
                    further.append(&mut left);
                    left = further;
                }
            }
        }
        Ok(())
    }

    /// Adds a folder that must be there, even if it is not here yet.
    pub fn add_folder(&mut self, path: &Path) -> Result<(), Unsendable> {
        self.add(path)?;
        match self.look(path) {
            Found::Nothing if self.is_ours(path) => self.folder(path).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Whether it lies in a place, or leads to one.
    fn is_ours(&self, path: &Path) -> bool {
        self.places.iter().any(|place| path.starts_with(place))
    }

    fn look(&mut self, path: &Path) -> Found {
        if let Some(found) = self.seen.get(path) {
            return found.clone();
        }
        let found = self.files.look(path);
        self.seen.insert(path.to_owned(), found.clone());
        found
    }

    fn folder(&mut self, path: &Path) -> Result<&mut Folder, Unsendable> {
        let mut folder = &mut self.top;
        for name in names(path) {
            folder = folder.folders.entry(text_of(Path::new(&name))?).or_default();
        }
        Ok(folder)
    }

    fn leaf(&mut self, path: &Path, leaf: Leaf) -> Result<(), Unsendable> {
        if let (Some(folder), Some(name)) = (path.parent(), path.file_name()) {
            let name = text_of(Path::new(name))?;
            self.folder(folder)?.leaves.insert(name, leaf);
        }
        Ok(())
    }

    /// Moves all that is in it into a folder. Its links are taken out and returned: the path of each, and what is in it.
    pub fn move_into(&mut self, folder: &str) -> Vec<(String, String)> {
        let mut links = Vec::new();
        let mut top = std::mem::take(&mut self.top);
        take_links(&mut top, "", &mut links);
        for name in folder.rsplit('/') {
            let inner = std::mem::take(&mut top);
            top.folders.insert(name.to_owned(), inner);
        }
        self.top = top;
        links
    }

    /// Puts a program of this machine into its topmost folder.
    pub fn add_program(&mut self, name: &str, path: PathBuf) -> Result<(), Unsendable> {
        let Found::File { digest, .. } = self.look(&path) else {
            return Err(Unsendable(format!("{} cannot be read", path.display())));
        };
        self.sources.insert(digest, Source::File(path));
        let leaf = Leaf::File {
            digest,
            is_program: true,
        };
        self.top.leaves.insert(name.to_owned(), leaf);
        Ok(())
    }

    /// Puts a file with this content into its topmost folder.
    pub fn add_content(&mut self, name: &str, content: Bytes) {
        let digest = Digest::of(&content);
        self.sources.insert(digest, Source::Bytes(content));
        let leaf = Leaf::File {
            digest,
            is_program: false,
        };
        self.top.leaves.insert(name.to_owned(), leaf);
    }

    pub fn build(self) -> Built {
        let mut blobs = self.sources;
        let digest = pack(&self.top, &mut blobs);
        Built {
            digest,
            blobs: blobs.into_iter().collect(),
        }
    }
}

fn take_links(folder: &mut Folder, path: &str, links: &mut Vec<(String, String)>) {
    folder.leaves.retain(|name, leaf| match leaf {
        Leaf::File { .. } => true,
        Leaf::Link { target } => {
            links.push((format!("{path}/{name}"), std::mem::take(target)));
            false
        }
    });
    for (name, inner) in &mut folder.folders {
        take_links(inner, &format!("{path}/{name}"), links);
    }
}

fn names(path: &Path) -> VecDeque<OsString> {
    let wanted = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().filter_map(wanted).collect()
}

/// The API has names in UTF-8 alone.
fn text_of(path: &Path) -> Result<String, Unsendable> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| Unsendable(format!("{} is no UTF-8", path.display())))
}

/// The digest of a folder. The API demands names in order.
fn pack(folder: &Folder, blobs: &mut HashMap<Digest, Source>) -> Digest {
    let mut message = Directory::default();
    for (name, leaf) in &folder.leaves {
        let name = name.clone();
        match leaf {
            Leaf::File { digest, is_program } => message.files.push(FileNode {
                name,
                digest: Some(digest.to_message()),
                is_executable: *is_program,
                node_properties: None,
            }),
            Leaf::Link { target } => message.symlinks.push(SymlinkNode {
                name,
                target: target.clone(),
                node_properties: None,
            }),
        }
    }
    for (name, inner) in &folder.folders {
        message.directories.push(DirectoryNode {
            name: name.clone(),
            digest: Some(pack(inner, blobs).to_message()),
        });
    }
    let (digest, bytes) = Digest::of_message(&message);
    blobs.insert(digest, Source::Bytes(bytes));
    digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use std::fs;
    use std::os::unix::fs::symlink;

    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Tree {
            let path = std::env::temp_dir().join(format!("wafcluster-root-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Tree(path.canonicalize().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// All paths below the place, with what is there.
    fn listed(built: &Built, place: &Path) -> Vec<String> {
        let blobs: HashMap<Digest, Source> = built.blobs.iter().cloned().collect();
        let mut all = Vec::new();
        let mut left = vec![(PathBuf::from("/"), built.digest)];
        while let Some((path, digest)) = left.pop() {
            let Some(Source::Bytes(bytes)) = blobs.get(&digest) else {
                panic!("a folder is not there");
            };
            let folder = Directory::decode(bytes.clone()).unwrap();
            let digest = |node: &DirectoryNode| Digest::from_message(node.digest.as_ref().unwrap()).unwrap();
            all.extend(folder.files.iter().map(|file| (path.join(&file.name), String::new())));
            let links = folder.symlinks.iter();
            all.extend(links.map(|link| (path.join(&link.name), format!(" -> {}", link.target))));
            for inner in &folder.directories {
                all.push((path.join(&inner.name), "/".to_owned()));
                left.push((path.join(&inner.name), digest(inner)));
            }
        }
        let shown = all.iter().filter_map(|(path, kind)| {
            let rest = path.strip_prefix(place).ok()?;
            (!rest.as_os_str().is_empty()).then(|| format!("{}{kind}", rest.display()))
        });
        let mut shown: Vec<_> = shown.collect();
        shown.sort_unstable();
        shown
    }

    #[test]
    fn what_links_lead_to_is_there() {
        let tree = Tree::new("links");
        fs::create_dir_all(tree.path("real/include")).unwrap();
        fs::write(tree.path("real/include/a.h"), "a").unwrap();
        symlink("real", tree.path("relative")).unwrap();
        symlink(tree.path("relative/include"), tree.path("absolute")).unwrap();
        symlink("/usr/include", tree.path("system")).unwrap();
        let (files, places) = (Files::default(), [tree.0.clone()]);
        let mut root = Root::new(&files, &places);
        root.add(&tree.path("absolute/a.h")).unwrap();
        root.add(&tree.path("system/stdio.h")).unwrap();
        root.add(&tree.path("none/b.h")).unwrap();
        root.add(Path::new("/usr/include/stdio.h")).unwrap();
        let built = root.build();
        let target = tree.path("relative/include");
        assert_eq!(
            listed(&built, &tree.0),
            [
                format!("absolute -> {}", target.display()),
                "real/".to_owned(),
                "real/include/".to_owned(),
                "real/include/a.h".to_owned(),
                "relative -> real".to_owned(),
                "system -> /usr/include".to_owned(),
            ]
        );
        assert!(listed(&built, Path::new("/usr")).is_empty());
    }

    #[test]
    fn links_in_a_circle_end() {
        let tree = Tree::new("circle");
        symlink("b", tree.path("a")).unwrap();
        symlink("a", tree.path("b")).unwrap();
        let (files, places) = (Files::default(), [tree.0.clone()]);
        let mut root = Root::new(&files, &places);
        root.add(&tree.path("a/c")).unwrap();
        assert_eq!(listed(&root.build(), &tree.0), ["a -> b", "b -> a"]);
    }

    #[test]
    fn a_folder_that_is_wanted_is_there() {
        let tree = Tree::new("folder");
        let (files, places) = (Files::default(), [tree.0.clone()]);
        let mut root = Root::new(&files, &places);
        root.add_folder(&tree.path("build/objects")).unwrap();
        root.add_folder(Path::new("/usr/local/none")).unwrap();
        let built = root.build();
        assert_eq!(listed(&built, &tree.0), ["build/", "build/objects/"]);
        assert!(listed(&built, Path::new("/usr")).is_empty());
    }

    #[test]
    fn the_order_of_paths_does_not_count() {
        let tree = Tree::new("order");
        for name in ["b.h", "a.h", "B.h"] {
            fs::write(tree.path(name), name).unwrap();
        }
        let (files, places) = (Files::default(), [tree.0.clone()]);
        let digest = |names: &[&str]| {
            let mut root = Root::new(&files, &places);
            names.iter().for_each(|name| root.add(&tree.path(name)).unwrap());
            root.build().digest
        };
        assert_eq!(digest(&["a.h", "b.h", "B.h"]), digest(&["B.h", "b.h", "a.h", "b.h"]));
        assert_ne!(digest(&["a.h"]), digest(&["b.h"]));
    }
}
